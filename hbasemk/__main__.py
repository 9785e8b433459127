"""``python -m hbasemk`` is the command line."""

import sys


def run() -> None:
    """Import the command line, which takes a while, and run it."""
    try:
        import signal

        from hbasemk.cli.main import main
    except (KeyboardInterrupt, RuntimeError) as error:
        # Before Python 3.12, an interruption inside of __set_name__ becomes a RuntimeError.
        if isinstance(error, RuntimeError) and not isinstance(error.__cause__, KeyboardInterrupt):
            raise
        sys.stderr.write("hbasemk: interrupted\n")
        sys.exit(130)
    try:
        main()
    finally:
        # The exit code is known. Python would restore the default handler while it exits, and the signal would replace it.
        signal.signal(signal.SIGINT, signal.SIG_IGN)


if __name__ == "__main__":
    run()

"""``python -m hbasemk`` is the command line."""

import signal
import sys


def run() -> None:
    """Import the command line, which takes a while, and run it."""
    try:
        from hbasemk.cli.main import main
    except KeyboardInterrupt:
        sys.stderr.write("hbasemk: interrupted\n")
        sys.exit(130)
    try:
        main()
    finally:
        # The exit code is known. Python would restore the default handler while it exits, and the signal would replace it.
        signal.signal(signal.SIGINT, signal.SIG_IGN)


if __name__ == "__main__":
    run()

"""``python -m hbasemk`` is the command line."""

import sys


def run() -> None:
    """Import the command line, which takes a while, and run it."""
    try:
        from hbasemk.cli.main import main
    except KeyboardInterrupt:
        sys.stderr.write("hbasemk: interrupted\n")
        sys.exit(130)
    main()


if __name__ == "__main__":
    run()

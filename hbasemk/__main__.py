"""``python -m hbasemk`` is the command line."""

from hbasemk.cli.main import main

main()

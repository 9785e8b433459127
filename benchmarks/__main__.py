"""``python -m benchmarks``: the same as ``hbasemk bench``."""

import sys

from hbasemk.cli.main import main

if __name__ == "__main__":
    main(["bench", *sys.argv[1:]])

"""``python -m benchmarks`` measures; run it in a checkout."""

from benchmarks.command import main

if __name__ == "__main__":
    main()

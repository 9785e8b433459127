"""Runs of the benchmarks that are programs of their own."""

from __future__ import annotations

import subprocess
import sys

HANGS = 1_200
"""Seconds after which a program surely hangs. A busy machine makes a slow program slower by a factor of five."""


def ended(name: str, *arguments: str) -> tuple[int, str, str]:
    """Run ``python -m benchmarks.NAME``; return its exit code, its output and its errors."""
    command = [sys.executable, "-m", f"benchmarks.{name}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=HANGS)
    return done.returncode, done.stdout, done.stderr


def cells(printed: str) -> list[list[str]]:
    """Return the cells of each row of a printed table, without its head."""
    return [[cell.strip() for cell in line.strip("| ").split("|")] for line in printed.splitlines()[2:]]

"""The command line, run in the process of a test."""

from __future__ import annotations

import sys
from typing import AnyStr

import pytest

from hbasemk.cli.main import main


def run_captured(capture: pytest.CaptureFixture[AnyStr], *arguments: str) -> tuple[int, AnyStr, AnyStr]:
    """Run a command line; return its exit code, and what it alone wrote to standard output and error."""
    capture.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    sys.stdout.flush()
    out, err = capture.readouterr()
    return int(ended.value.code or 0), out, err

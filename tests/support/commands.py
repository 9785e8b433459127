"""The command line, run in the process of a test."""

from __future__ import annotations

import io
import sys
from typing import AnyStr

import pytest

from hbasemk.cli.main import main


def run_captured(
    capture: pytest.CaptureFixture[AnyStr], *arguments: str, stdin: bytes | None = None
) -> tuple[int, AnyStr, AnyStr]:
    """Run a command line; return its exit code, and what it alone wrote to standard output and error."""
    capture.readouterr()
    with pytest.MonkeyPatch.context() as patched, pytest.raises(SystemExit) as ended:
        if stdin is not None:
            patched.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8"))
        main(arguments)
    sys.stdout.flush()
    out, err = capture.readouterr()
    return int(ended.value.code or 0), out, err

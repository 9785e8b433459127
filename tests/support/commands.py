"""The command line, run in the process of a test."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any, AnyStr, NamedTuple

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


DONE, NO, USAGE, CONFLICT, UNREACHABLE = range(5)


class Ran(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


Run = Callable[..., Ran]


def process(*arguments: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, "-m", "hbasemk", *arguments], capture_output=True, check=False, **options)


def assert_one_line(ran: Ran, code: int, *parts: str) -> None:
    assert ran.code == code
    assert ran.out == ""
    assert ran.err.count("\n") == 1
    assert ran.err.startswith("hbasemk: ")
    for part in parts:
        assert part in ran.err

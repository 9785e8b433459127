"""After an edit by hand, an import says how to correct the totals of its directory."""

from __future__ import annotations

import shlex
from pathlib import Path

from tests.support.commands import DONE, NO, Run
from tests.support.imports import write_files


def test_the_commands_in_the_message_correct_the_totals(run: Run, tmp_path: Path) -> None:
    top = write_files(tmp_path / "my docs", {"a": b"1\n", "b": b"2\n"})
    assert run("import", str(top), "--at", "/my docs", "-w", "1").code == DONE
    assert run("rm", "/my docs/a").code == DONE
    ran = run("import", str(top), "--at", "/my docs", "-w", "1")
    assert ran.code == NO
    corrections = [line.partition("hbasemk set ")[2] for line in ran.err.splitlines() if "the total :" in line]
    assert len(corrections) == 3
    for correction in corrections:
        assert run("set", *shlex.split(correction)).code == DONE
    assert run("import", str(top), "--at", "/my docs", "-w", "1").code == DONE

"""The scripts of `scripts`: what they pass to the programs that they run, and which arguments they refuse.

Each test runs a copy of them. The Python of its `.venv` is a script that records how it was called.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROGRAM = """\
#!/bin/sh
case "$1 $2" in
"-c import pip") ;;
-c\\ *) exec {python} "$@" ;;
*) printf "%s\\n" "$(printf "'%s' " "${{0##*/}}" "$@")" >>{record} ;;
esac
"""


class Copy:
    """A copy of the scripts in a folder, with programs that only record their arguments."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._record = root / "calls"
        shutil.copytree(ROOT / "scripts", root / "scripts")
        programs = root / ".venv" / "bin"
        programs.mkdir(parents=True)
        for name in ("python", "hbasemk", "ruff", "mypy", "lint-imports", "codespell", "apt-get"):
            program = programs / name
            program.write_text(
                PROGRAM.format(python=shlex.quote(sys.executable), record=shlex.quote(str(self._record)))
            )
            program.chmod(0o755)

    def run(self, script: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a script, whose tests on HBase would use one that nobody reaches."""
        variables = {name: value for name, value in os.environ.items() if name != "PYTHON"}
        variables |= {"HBASEMK_TEST_HBASE": "nowhere:1"} | environment
        command = [self.root / "scripts" / script, *arguments]
        return subprocess.run(command, env=variables, capture_output=True, text=True, timeout=60, check=False)

    def calls(self, *beginning: str) -> list[list[str]]:
        """Return the calls that begin so, each without its beginning."""
        lines = self._record.read_text().splitlines() if self._record.exists() else []
        found = [shlex.split(line) for line in lines]
        return [call[len(beginning) :] for call in found if call[: len(beginning)] == list(beginning)]


@pytest.fixture
def scripts(tmp_path: Path) -> Copy:
    return Copy(tmp_path)


@pytest.mark.parametrize(
    "arguments", [[], ["tests/kernel", "-k", "lease"], ["--coverage", "tests/kernel"]], ids=" ".join
)
def test_the_tests_leave_out_the_proofs_with_and_without_arguments(scripts: Copy, arguments: list[str]) -> None:
    assert scripts.run("test", *arguments).returncode == 0
    (call,) = scripts.calls("python", "-m", "pytest")
    assert call[call.index("-m") + 1] == "not proof"
    rest = [one for one in arguments if one != "--coverage"]
    assert call[len(call) - len(rest) :] == rest


def test_a_mark_expression_of_the_user_comes_after_that_of_the_script(scripts: Copy) -> None:
    assert scripts.run("test", "-m", "proof").returncode == 0
    (call,) = scripts.calls("python", "-m", "pytest")
    assert call == ["-m", "not proof", "-m", "proof"]


@pytest.mark.parametrize(
    "arguments", [["abc"], ["8h"], ["1.5.2"], ["."], ["-1"], ["1", "x"], ["1", "-5"], ["1", "2", "3"]], ids=" ".join
)
def test_soak_refuses_what_is_no_number(scripts: Copy, arguments: list[str]) -> None:
    done = scripts.run("soak", *arguments)
    assert (done.returncode, scripts.calls("python")) == (2, [])
    assert "usage" in done.stderr
    assert "HOURS" in done.stderr


@pytest.mark.parametrize("arguments", [["0"], ["0.0"], ["0", "17"]], ids=" ".join)
def test_soak_accepts_numbers(scripts: Copy, arguments: list[str]) -> None:
    done = scripts.run("soak", *arguments)
    assert done.returncode == 0
    assert "0 rounds" in done.stderr


@pytest.mark.parametrize(("script", "arguments"), [("lint", ["hbasemk"]), ("main-job", ["a", "b", "c"])])
def test_a_script_refuses_arguments_that_it_does_not_use(scripts: Copy, script: str, arguments: list[str]) -> None:
    done = scripts.run(script, *arguments)
    assert (done.returncode, scripts.calls()) == (2, [])
    assert f"usage: {scripts.root}/scripts/{script}" in done.stderr


@pytest.mark.parametrize("script", ["lint", "test", "main-job"])
def test_a_python_that_is_no_command_is_an_error(scripts: Copy, script: str) -> None:
    done = scripts.run(script, PYTHON="nosuchpython", PATH=f"{scripts.root}/.venv/bin:{os.environ['PATH']}")
    assert (done.returncode, scripts.calls()) == (1, [])
    assert (
        done.stderr == f"{script}: PYTHON=nosuchpython is not a command; set it to Python 3.10 or newer, or unset it\n"
    )

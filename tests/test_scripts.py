"""The scripts of `scripts`: what they pass to the programs that they run, and which arguments they refuse.

Each test runs a copy of them. The Python of its `.venv` is a script that records how it was called.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import urllib.parse
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROGRAM = """\
#!/bin/sh
{first}
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
        for folder in ("scripts", "docker", ".ci"):
            shutil.copytree(ROOT / folder, root / folder)
        for file in ("setup.cfg", "setup.py", "pyproject.toml", "hbasemk/__init__.py"):
            (root / file).parent.mkdir(exist_ok=True)
            shutil.copy(ROOT / file, root / file)
        programs = root / ".venv" / "bin"
        programs.mkdir(parents=True)
        for name in ("python", "hbasemk", "ruff", "mypy", "lint-imports", "codespell", "apt-get", "docker"):
            self.replace(programs / name)

    def replace(self, program: Path, first: str = "") -> None:
        """Put a program that records its arguments in place of another one; it runs the line ``first`` before."""
        python, record = shlex.quote(sys.executable), shlex.quote(str(self._record))
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(PROGRAM.format(first=first, python=python, record=record))
        program.chmod(0o755)

    def run(self, script: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a script of `scripts`, whose tests on HBase would use one that nobody reaches."""
        return self.execute(str(self.root / "scripts" / script), *arguments, **environment)

    def execute(self, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the folder of the copy."""
        variables = {name: value for name, value in os.environ.items() if name != "PYTHON"}
        variables |= {"HBASEMK_TEST_HBASE": "nowhere:1"} | environment
        return subprocess.run(
            command, cwd=self.root, env=variables, capture_output=True, text=True, timeout=60, check=False
        )

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
    "arguments",
    [
        ["abc"],
        ["8h"],
        ["1.5.2"],
        ["."],
        ["-1"],
        ["1", "x"],
        ["1", "-5"],
        ["1", "017"],
        ["1", "1234567890123456"],
        ["1", "2", "3"],
    ],
    ids=" ".join,
)
def test_soak_refuses_what_is_no_number(scripts: Copy, arguments: list[str]) -> None:
    done = scripts.run("soak", *arguments)
    assert (done.returncode, scripts.calls("python")) == (2, [])
    assert "usage" in done.stderr
    assert "HOURS" in done.stderr


@pytest.mark.parametrize("arguments", [["0"], ["0.0"], ["0", "17"], ["0", "0"], ["0", "123456789012345"]], ids=" ".join)
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
    (scripts.root / ".venv" / "bin" / "python").unlink()
    done = scripts.run(script, PYTHON="nosuchpython", PATH=f"{scripts.root}/.venv/bin:{os.environ['PATH']}")
    assert (done.returncode, scripts.calls()) == (1, [])
    assert (
        done.stderr == f"{script}: PYTHON=nosuchpython is not a command; set it to Python 3.10 or newer, or unset it\n"
    )


OLD = "case $2 in *version_info*) exit 1 ;; esac"
"""A line of a program that is an old Python."""


def test_an_existing_environment_keeps_its_python_whatever_is_installed(scripts: Copy) -> None:
    scripts.replace(scripts.root / "old" / "python3", OLD)
    done = scripts.run("test", PATH=f"{scripts.root}/old:{os.environ['PATH']}")
    assert (done.returncode, len(scripts.calls("python", "-m", "pytest"))) == (0, 1)
    assert scripts.run("test", PYTHON="nosuchpython").returncode == 0


def test_an_environment_with_an_old_python_is_refused_and_stays(scripts: Copy) -> None:
    python = scripts.root / ".venv" / "bin" / "python"
    scripts.replace(python, OLD)
    done = scripts.run("lint")
    assert (done.returncode, scripts.calls()) == (1, [])
    assert done.stderr == "lint: the Python of .venv is older than 3.10; remove .venv\n"
    assert python.exists()


def test_an_environment_without_pip_gets_it_and_stays(scripts: Copy) -> None:
    python = scripts.root / ".venv" / "bin" / "python"
    scripts.replace(python, 'case "$*" in "-c import pip") exit 1 ;; esac')
    assert scripts.run("test").returncode == 0
    assert [call[0] for call in scripts.calls("python", "-m")] == ["ensurepip", "pip", "pytest"]


def test_an_environment_whose_python_does_not_start_is_made_anew(scripts: Copy) -> None:
    (scripts.root / ".venv" / "bin" / "python").unlink()
    other = scripts.root / "other" / "python"
    scripts.replace(other, 'case "$2" in venv) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;; esac')
    done = scripts.run("test", PYTHON=str(other))
    assert done.stderr.startswith("test: the Python of .venv does not start; making .venv anew\n")
    assert [call[0] for call in scripts.calls("python", "-m")] == ["venv", "pip", "pytest"]


def test_pip_runs_again_only_if_what_it_installs_may_have_changed(scripts: Copy) -> None:
    def installed(*names: str) -> list[str]:
        before = len(scripts.calls("python", "-m", "pip"))
        for name in names:
            assert scripts.run(name).returncode == 0
        return [call[-1].removeprefix(str(scripts.root)) for call in scripts.calls("python", "-m", "pip")[before:]]

    assert installed("test", "proof", "lint", "test", "lint") == ["[test]", "[test,lint]"]
    for file in ("setup.cfg", "setup.py", "pyproject.toml", "hbasemk/__init__.py"):
        with (scripts.root / file).open("a") as changed:
            changed.write("\n# changed\n")
        assert installed("lint", "lint") == ["[test,lint]"]
    assert installed("test") == ["[test]"]


def test_pip_runs_again_in_a_folder_that_has_moved(scripts: Copy, tmp_path: Path) -> None:
    assert scripts.run("test").returncode == 0
    moved = tmp_path / "moved"
    shutil.copytree(scripts.root, moved, ignore=shutil.ignore_patterns("moved"))
    assert scripts.execute(str(moved / "scripts" / "test")).returncode == 0
    assert [call[-1] for call in scripts.calls("python", "-m", "pip")] == [f"{tmp_path}[test]", f"{moved}[test]"]


def test_pip_runs_again_after_it_has_failed(scripts: Copy) -> None:
    python = scripts.root / ".venv" / "bin" / "python"
    scripts.replace(python, 'case "$2" in pip) exit 1 ;; esac')
    assert scripts.run("test").returncode == 1
    assert scripts.calls("python", "-m") == []
    scripts.replace(python)
    assert scripts.run("test").returncode == 0
    assert [call[0] for call in scripts.calls("python", "-m")] == ["pip", "pytest"]


@pytest.mark.parametrize(
    "command", [["scripts/test"], ["docker/cluster", "up"], ["docker/hbase/build.sh"], [".ci/run"]], ids=" ".join
)
def test_an_exported_cdpath_changes_nothing(scripts: Copy, tmp_path: Path, command: list[str]) -> None:
    path = f"{scripts.root}/.venv/bin:{os.environ['PATH']}"
    scripts.replace(scripts.root / ".venv" / "bin" / "docker", 'case "$1 $2" in "container inspect") exit 1 ;; esac')
    expected = scripts.execute(*command, PATH=path)
    calls = scripts.calls()
    for stamp in (scripts.root / ".venv").glob("installed*"):
        stamp.unlink()
    other = tmp_path / "other"
    for folder in ("scripts", "docker/hbase", ".ci"):
        (other / folder).mkdir(parents=True)
    done = scripts.execute(*command, PATH=path, CDPATH=str(other))
    assert expected.returncode == 0, expected.stderr
    assert (done.returncode, done.stdout) == (0, expected.stdout)
    assert [call[:3] for call in scripts.calls()] == [call[:3] for call in calls * 2]


@pytest.fixture
def machine(scripts: Copy) -> Copy:
    """The scripts as root on a machine without an engine. The file `up` says that one answers; its package starts one."""
    script = scripts.root / "scripts" / "engine.sh"
    script.write_text(script.read_text().replace("/var/run/", f"{scripts.root}/"))
    (scripts.root / "temporary").mkdir()
    programs = scripts.root / "programs"
    programs.mkdir()
    for name in ("basename", "cat", "dirname", "grep", "mktemp", "rm", "seq", "sleep", "tail"):
        (programs / name).symlink_to(shutil.which(name) or name)
    scripts.replace(programs / "docker", f"[ -e {scripts.root}/up ] || exit 1")
    scripts.replace(programs / "id", "echo 0")
    scripts.replace(programs / "iptables")
    scripts.replace(programs / "apt-get", f'[ "$1" = update ] || : >{scripts.root}/up')
    return scripts


def test_an_engine_that_the_package_has_started_is_used(machine: Copy) -> None:
    programs = machine.root / "programs"
    machine.replace(programs / "dockerd")
    (programs / "iptables").unlink()
    (machine.root / "docker.pid").write_text("1")
    done = machine.run("test", HBASEMK_TEST_HBASE="", PATH=str(programs), TMPDIR=f"{machine.root}/temporary")
    assert done.returncode == 0, done.stderr
    assert len(machine.calls("apt-get", "install")) == 1
    assert machine.calls("dockerd") == []
    assert (machine.root / "docker.pid").exists()


@pytest.mark.parametrize("stale", ["", "1", "99999999"])
def test_an_engine_that_the_script_starts_leaves_no_files(machine: Copy, stale: str) -> None:
    (machine.root / "docker.pid").write_text(stale)
    dockerd = f"cd {machine.root}; [ ! -e docker.pid ] || exit 1; : >started; : >up"
    machine.replace(machine.root / "programs" / "dockerd", dockerd)
    done = machine.run(
        "test", HBASEMK_TEST_HBASE="", PATH=f"{machine.root}/programs", TMPDIR=f"{machine.root}/temporary"
    )
    assert done.returncode == 0, done.stderr
    assert (machine.root / "started").exists()
    assert list((machine.root / "temporary").iterdir()) == []


@pytest.mark.parametrize("name", ["a b%41#c?d.db", "ü.db"])
def test_the_main_job_quotes_the_name_of_its_file(scripts: Copy, name: str) -> None:
    assert scripts.run("main-job", ".", name).returncode == 0
    (call,) = scripts.calls("hbasemk", "import")
    url = call[call.index("--url") + 1]
    assert url == "sqlite:///" + urllib.parse.quote(str(scripts.root / name))


def test_the_check_after_the_main_job_finds_its_file_in_any_folder(scripts: Copy) -> None:
    temporary = scripts.root / "a b%41"
    temporary.mkdir()
    done = scripts.execute(".ci/run", TMPDIR=str(temporary))
    assert done.returncode == 0, done.stderr
    assert scripts.calls("hbasemk", "check") == [["--url", "sqlite:///main-job.db"]]

"""The command line as a process: closed pipes, interruptions, and files of the wrong kind."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import hbasemk
from hbasemk import connect
from hbasemk.cli.main import main
from tests.support.repositories import problems

DONE, NO, USAGE = range(3)
INTERRUPTED = 130
NODES = 3000


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A repository whose tree and log exceed a pipe's buffer; the integrity check runs at the end."""
    made = f"sqlite:///{tmp_path_factory.mktemp('process') / 'content.db'}"
    with connect(made, poll_interval=0) as repository:
        with repository.transaction("x" * 30_000) as tx:
            for number in range(NODES):
                tx.add(f"/node-with-a-long-name-{number:08}", {"text": "x" * 30})
        for number in range(3):
            repository.run(lambda tx: tx.set("/", "n", number), "y" * 30_000)  # noqa: B023
    yield made
    with connect(made, create=False, poll_interval=0) as repository:
        assert problems(repository) == []


def process(arguments: Sequence[str], **options: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "hbasemk", *arguments], **options)  # type: ignore[call-overload,no-any-return]


# --- pipes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ("ls",),
        ("ls", "-r", "--output", "json"),
        ("log", "-n", "100"),
        ("nodes",),
        ("export", "/", "-f", "json"),
        ("export", "/node-with-a-long-name-00000001", "-f", "json"),
        ("cat", "/"),
        ("status",),
        ("check",),
        ("branch",),
        ("--help",),
        ("ls", "--help"),
        ("--version",),
    ],
    ids=" ".join,
)
def test_a_closed_pipe_ends_every_command_with_0_and_no_message(url: str, arguments: tuple[str, ...]) -> None:
    theirs, ours = os.pipe()
    os.close(theirs)
    with process(["--url", url, *arguments], stdout=ours, stderr=subprocess.PIPE) as running:
        os.close(ours)
        _, stderr = running.communicate()

    assert (running.returncode, stderr) == (DONE, b"")


def test_a_pipe_that_closes_midway_ends_a_command_with_0(url: str) -> None:
    script = f"set -o pipefail; {sys.executable} -m hbasemk --url {url} log -n 100 | head -c 10"
    ran = subprocess.run(["bash", "-c", script], capture_output=True, check=False)

    assert (ran.returncode, len(ran.stdout), ran.stderr) == (DONE, 10, b"")


def test_a_blob_may_be_read_in_part(url: str, tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(bytes(3_000_000))
    with process(["--url", url, "blob", "put", str(tmp_path / "large")], stdout=subprocess.PIPE) as running:
        blob = running.communicate()[0].decode().strip()
    with process(["--url", url, "blob", "get", blob], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.read(10)
        running.stdout.close()
        assert running.stderr.read() == b""

    assert running.returncode == DONE


@pytest.mark.parametrize(("arguments", "code"), [(("ls", "/nowhere"), NO), (("fly",), USAGE)])
def test_an_error_is_still_an_error_when_its_pipe_is_closed(url: str, arguments: tuple[str, ...], code: int) -> None:
    theirs, ours = os.pipe()
    os.close(theirs)
    with process(["--url", url, *arguments], stdout=ours, stderr=ours) as running:
        os.close(ours)

    assert running.returncode == code


def test_a_pipe_that_broke_and_is_not_the_output_is_an_error(
    url: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise BrokenPipeError(32, "Broken pipe", "somewhere")

    monkeypatch.setattr(hbasemk.Repository, "refresh", broken)
    with pytest.raises(SystemExit) as ended:
        main(["--url", url, "ls"])

    assert ended.value.code == NO
    assert "somewhere" in capfd.readouterr().err


# --- errors that were tracebacks --------------------------------------------------------------------------


def test_the_version_is_printed_without_an_installation() -> None:
    code = (
        "import importlib.metadata as m, sys\n"
        "def missing(name):\n    raise m.PackageNotFoundError(name)\n"
        "m.version = m.distribution = missing\n"
        "from hbasemk.cli.main import main\n"
        "main(['--version'])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)

    assert (ran.returncode, ran.stderr) == (DONE, b"")
    assert hbasemk.__version__ in ran.stdout.decode()


def test_an_interruption_while_modules_are_imported_is_one_line() -> None:
    code = (
        "import runpy, sys\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'click':\n            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "runpy.run_module('hbasemk', run_name='__main__')"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)

    assert (ran.returncode, ran.stdout, ran.stderr) == (INTERRUPTED, b"", b"hbasemk: interrupted\n")


@pytest.mark.parametrize("place", ["hbasemk.cli.main", "hbasemk.store.sqlite.store"], ids=["start", "command"])
def test_an_interruption_while_a_class_is_made_is_one_line(place: str, tmp_path: Path) -> None:
    """Before Python 3.12 it becomes a RuntimeError, if a method __set_name__ is running; that printed a traceback."""
    code = (
        "import sys\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {place!r}:\n"
        "            raise RuntimeError('Error calling __set_name__') from KeyboardInterrupt()\n"
        "sys.meta_path.insert(0, Interrupting())\n"
        f"sys.argv[1:] = ['--url', 'sqlite:///{tmp_path}/content.db', 'status']\n"
        "import hbasemk.__main__\n"
        "hbasemk.__main__.run()\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (INTERRUPTED, b"", b"hbasemk: interrupted\n")


def test_the_start_imports_little_before_it_handles_interruptions() -> None:
    code = "import sys; before = set(sys.modules); import hbasemk.__main__; print(sorted(set(sys.modules) - before))"
    place = Path(hbasemk.__file__).parents[1]
    ran = subprocess.run([sys.executable, "-S", "-c", code], cwd=place, capture_output=True, check=False, text=True)
    assert (ran.stdout, ran.stderr) == ("['__future__', 'hbasemk', 'hbasemk.__main__']\n", "")


def test_an_interruption_while_the_interpreter_exits_does_not_change_the_exit_code() -> None:
    code = (
        "import os, runpy, signal, sys\n"
        "class Late:\n"
        "    def __del__(self, kill=os.kill, process=os.getpid(), number=signal.SIGINT):\n"
        "        kill(process, number)\n"
        # Python clears the modules after it has restored the default handlers of signals.
        "sys.late = Late()\n"
        "sys.argv = ['hbasemk', '--version']\n"
        "runpy.run_module('hbasemk', run_name='__main__')"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)

    assert (ran.returncode, ran.stderr) == (DONE, b"")


def test_an_interruption_before_the_command_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("hbasemk.cli.output.prepare_streams", interrupted)
    with pytest.raises(SystemExit) as ended:
        main(["ls"])

    assert ended.value.code == INTERRUPTED
    assert capfd.readouterr().err == "hbasemk: interrupted\n"

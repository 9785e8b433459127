"""SIGTERM interrupts a command as Ctrl-C does, so that it removes what it must not leave behind."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from hbasemk import connect
from hbasemk.cli.signals import REPEATED, Interrupts
from tests.support.commands import DONE, Run

TERMINATED = 143
LARGE = 100_000
TERMINATED_COMMAND = """
import os, signal
from hbasemk.__main__ import run
from hbasemk.blobs import RepositoryBlobs
def stream(*_):
    try:
        while True:
            yield b"x"
            os.kill(os.getpid(), signal.SIGTERM)
    finally:
        # As `timeout` does, which sends the signal to the process and then to its group.
        os.kill(os.getpid(), signal.SIGTERM)
RepositoryBlobs.stream = stream
run()
"""
"""The command line, which gets SIGTERM twice while it writes the content of a blob."""


def terminated(url: str, *arguments: str) -> tuple[int, bytes, bytes]:
    command = [sys.executable, "-c", TERMINATED_COMMAND, "--url", url, *arguments]
    ran = subprocess.run(command, capture_output=True, check=False, timeout=120)
    return ran.returncode, ran.stdout, ran.stderr.strip()


ENDED = (TERMINATED, b"", b"hbasemk: interrupted by SIGTERM")


def test_an_export_gives_its_directories_their_modes_and_leaves_no_temporary_file(
    run: Run, url: str, tmp_path: Path
) -> None:
    top, out = tmp_path / "docs", tmp_path / "out"
    (top / "inner").mkdir(parents=True)
    (top / "inner/large").write_bytes(bytes(LARGE))
    assert run("import", str(top), "-w", "1").code == DONE
    with connect(url) as repository:
        repository.run(lambda tx: tx.update("/docs", {":mode": 0o755, ":mtime": 7_000_000_007}))

    assert terminated(url, "export", "/docs", str(out)) == ENDED

    assert [path.name for path in out.rglob("*")] == ["inner"]
    assert (stat.S_IMODE(out.stat().st_mode), out.stat().st_mtime_ns) == (0o755, 7_000_000_007)
    assert run("export", "/docs", str(out)).code == DONE
    assert (out / "inner/large").stat().st_size == LARGE


def test_a_blob_leaves_the_earlier_file_and_no_temporary_one(run: Run, url: str, tmp_path: Path) -> None:
    assert run("init").code == DONE
    blob = run("blob", "put", __file__).out.strip()
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "file").write_text("old")

    assert terminated(url, "blob", "get", blob, str(folder / "file")) == ENDED

    assert os.listdir(folder) == ["file"]
    assert (folder / "file").read_text() == "old"


@pytest.mark.parametrize("before", [signal.SIG_IGN, signal.default_int_handler])
def test_the_signal_keeps_the_effect_that_another_program_has_given_it(before: signal.Handlers) -> None:
    signal.signal(signal.SIGTERM, before)
    try:
        with Interrupts():
            assert signal.getsignal(signal.SIGTERM) is before
        assert signal.getsignal(signal.SIGTERM) is before
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def test_a_command_in_another_thread_leaves_the_signal_as_it_is() -> None:
    seen: list[object] = []

    def work() -> None:
        with Interrupts():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.SIG_DFL]


def test_a_later_signal_interrupts_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python drops an interrupt that arrives in some places, such as a callback of a weak reference."""
    now = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    with Interrupts() as interrupts:
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGTERM)
            now[0] += REPEATED
    assert interrupts.code == TERMINATED
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL

"""Ctrl-C during an import on the command line: no traceback, exit code 130, and what it says was committed is there."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hbasemk import connect
from tests.support.repositories import Checked

FILES = 400
RUNS = 5


@pytest.mark.slow
def test_an_interrupted_import_tells_what_is_there(checked: Checked, tmp_path: Path) -> None:
    top = tmp_path / "top"
    for number in range(FILES):
        folder = top / str(number % 20)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"file-{number}").write_text(str(number))
    seed = random.randrange(10**6)
    print("seed", seed)
    chance = random.Random(seed)
    codes = []
    for run in range(RUNS):
        file = tmp_path / f"{run}.db"
        url = checked(f"sqlite:///{file}?durable=no")
        command = [sys.executable, "-m", "hbasemk", "--url", url, "import", str(top), "-b", "2", "-w", "3"]
        # A group of its own, as a terminal makes one: all of its processes get the signal.
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        ) as running:
            while not file.exists() and running.poll() is None:
                time.sleep(0.01)
            time.sleep(chance.random() * 2.5)
            os.killpg(running.pid, signal.SIGINT)
            _, told = running.communicate(timeout=120)
        codes.append(running.returncode)
        assert "Traceback" not in told
        assert running.returncode in (0, 130), told
        if running.returncode == 0:
            continue
        assert "interrupted" in told
        counted = re.search(r"interrupted; (at least )?(\d+) nodes added, 0 changed and 0 removed", told)
        if counted is None:
            # Before or after the import itself.
            continue
        with connect(url, poll_interval=0) as repo:
            found = sum(1 for _ in repo.head.walk("/top")) - 1 if "/top" in repo.head else 0
        if counted[1]:
            assert found >= int(counted[2])
        else:
            assert found == int(counted[2])
    print("exit codes", codes)

"""Real processes whose clocks step, that are paused and killed: nothing is lost, and all of them end with one tree.

``HBASEMK_TEST_CLOCK_SECONDS`` is the length of each run; ``tests/support/shifted_clocks.py`` says how to run it for longer.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.support import shifted_clocks
from tests.support.hbase import HBase

SECONDS = float(os.environ.get("HBASEMK_TEST_CLOCK_SECONDS", "6"))
LONGEST_PAUSE = 1.5


def run(url: str, folder: Path) -> None:
    seed = str(random.randrange(10**6))
    print("seed", seed)
    folder.mkdir()
    print(shifted_clocks.run(url, SECONDS, seed, folder, LONGEST_PAUSE))


@pytest.mark.slow
def test_on_one_sqlite_file(tmp_path: Path) -> None:
    run(f"sqlite:///{tmp_path / 'content.db'}", tmp_path / "records")


@pytest.mark.integration
@pytest.mark.slow
def test_on_hbase(hbase: HBase, tmp_path: Path) -> None:
    run(hbase.url(hbase.new_prefix()), tmp_path / "records")

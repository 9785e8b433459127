"""The cost of opening a repository does not grow with its age, on real stores.

``HBASEMK_TEST_WRITE_SECONDS`` sets how long the test writes revisions (the published figures come from 120).
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import hbasemk
from hbasemk import Repository
from hbasemk.kernel.periodic_work import ADVANCE_AFTER
from hbasemk.opening import open_store
from hbasemk.repository import instance_of
from hbasemk.testing.wrapped import CountingStore, Traffic
from tests.support import proof
from tests.support.hbase import HBase
from tests.support.repositories import Checked

SECONDS = proof.sizes("HBASEMK_TEST_WRITE_SECONDS", 2, 5)
FEW = 20
RETRY_TIMEOUT = 60.0


def write(url: str, seconds: float, least: int) -> tuple[int, str]:
    """Commit for so long, and so many times at least; return the number of commits and the last revision, the watermark."""
    with hbasemk.connect(url, poll_interval=0.2) as repository:
        repository.run(lambda tx: tx.add("/a", {"n": 0}))
        count = 0
        deadline = time.monotonic() + seconds
        while count < least or time.monotonic() < deadline:
            repository.run(lambda tx: tx.increment("/a", "n", 1))
            count += 1
        last = repository.head.revision
        instance_of(repository).recovery.advance()
    return count, last


def opening(url: str, last: str) -> Traffic:
    """Return the traffic of opening the repository, which must show the last revision."""
    store, _, _ = open_store(url)
    counted = CountingStore(store)
    with Repository(counted, create=False, poll_interval=0) as opened:
        found = counted.traffic()
        assert opened.head.revision == last
        assert opened.head["/a"]["n"] > 0
    return found


def compare(young: str, old: str, seconds: float) -> None:
    few, first = write(young, 0, FEW)
    many, last = write(old, seconds, 6 * FEW)
    one, other = opening(young, first), opening(old, last)
    print(f"opened with {few} revisions: {one}; with {many}: {other}")
    assert few == FEW
    assert many >= 6 * FEW
    assert other.calls == one.calls
    assert other.rows_read <= one.rows_read + ADVANCE_AFTER
    # The watermark covers all revisions, so opening reads only the settings and the journal's end.
    assert other.rows_read <= 5


@pytest.mark.slow
@pytest.mark.parametrize("seconds", SECONDS)
def test_on_one_sqlite_file(tmp_path: Path, checked: Checked, seconds: float) -> None:
    young, old = (checked(f"sqlite:///{tmp_path / name}.db?durable=no") for name in ("young", "old"))
    compare(young, old, seconds)


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.parametrize("seconds", SECONDS)
def test_on_hbase(hbase: HBase, checked: Checked, seconds: float) -> None:
    young, old = (checked(hbase.url(hbase.new_prefix())) for _ in range(2))
    compare(young, old, seconds)

"""The faults of regions that tests of a distributed HBase inject."""

from __future__ import annotations

import random
import time

import hbasemk
from hbasemk.format import schema
from hbasemk.repository import instance_of
from hbasemk.store.abc import Scan
from tests.support.cluster_faults import RegionFaults

PAUSE = 0.005
"""More seconds than the ms of an id."""


def test_a_split_of_the_journal_divides_its_rows_from_later_ones() -> None:
    class Journal(RegionFaults):
        def _a_table(self) -> str:
            return schema.JOURNAL

    asked: list[tuple[str, ...]] = []

    def administrator(*words: str) -> list[str]:
        asked.append(words)
        return ["region server -"]

    with hbasemk.connect("memory://") as repo:
        repo.run(lambda tx: tx.add("/a"))
        time.sleep(PAUSE)
        Journal("t_", random.Random(1), administrator).split_a_region()  # type: ignore[arg-type]
        time.sleep(PAUSE)
        repo.run(lambda tx: tx.add("/b"))
        *before, after = instance_of(repo).store.scan(schema.JOURNAL, Scan(None, None, 10))
    command, region, key = asked[-1]
    assert (command, region) == ("split", "region")
    assert max(row.key for row in before) < bytes.fromhex(key) < after.key

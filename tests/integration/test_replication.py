"""A cluster replicates the tables of a repository to another HBase: once the writers have ended, the copy becomes the same.

The tests start a cluster (see `tests/integration/test_cluster_faults.py`). docs/clusters.md says what else was seen.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import hbasemk
from tests.support.cluster import Cluster, free_port
from tests.support.cluster_copy import replicated, running_copy, spread_tables
from tests.support.cluster_faults import tables_of
from tests.support.hammer import fingerprint
from tests.support.hbase import unused_prefix
from tests.support.load import load
from tests.support.proof import LONG
from tests.support.repositories import problems
from tests.support.seeds import random_of_test

pytestmark = [pytest.mark.integration, pytest.mark.cluster, pytest.mark.timeout(900), *LONG]
ARRIVES_WITHIN = 180.0
"""Seconds after the last commit in which the copy must have all cells."""


def tree_at(url: str) -> str | None:
    """Return what a repository contains, None if it cannot be read yet."""
    try:
        with hbasemk.connect(url, create=False, poll_interval=0) as repository:
            return fingerprint(repository)
    except hbasemk.HbasemkError as error:
        print(f"{url}: {error}")
        return None


def test_the_copy_becomes_the_same_when_the_writers_have_ended(cluster: Cluster, tmp_path: Path) -> None:
    seed = str(random_of_test().randrange(10**6))
    prefix, port = unused_prefix(), free_port()
    copy = f"hbase://127.0.0.1:{port}/?prefix={prefix}"
    with (
        running_copy(cluster, port, tmp_path),
        tables_of(cluster, prefix) as url,
        cluster.administrator() as administrator,
        replicated(url, prefix, administrator),
    ):
        with load(url, seed, tmp_path, ["write0", "write1", "write2", "merge"]) as processes:
            spread_tables(prefix, administrator)
            time.sleep(20)
            counts = processes.end()
        print({name: counts[name] for name in ("commits", "acknowledged", "errors")})
        deadline = time.monotonic() + ARRIVES_WITHIN
        while tree_at(copy) != tree_at(url):
            assert time.monotonic() < deadline, f"the copy differs {ARRIVES_WITHIN} s after the last commit"
            time.sleep(1)
        with hbasemk.connect(copy, create=False) as repository:
            assert problems(repository) == []
            repository.run(lambda tx: tx.set("/", "promoted", True))
            assert problems(repository) == []
            assert "promoted" in repository.head["/"]

"""Faults of HBase under load: nothing acknowledged is lost, watches are complete, histories have no anomaly, the check is clean.

The tests marked ``cluster`` start a cluster (`docker/cluster`), which takes about a minute; `scripts/proof --all` runs
them. ``HBASEMK_TEST_CLUSTER=name:port:port`` uses one that runs. `tests/support/cluster_faults.py` says how to run them for
longer.
"""

from __future__ import annotations

import random
import time
from functools import partial
from pathlib import Path

import pytest

import hbasemk
from hbasemk import Settings
from tests.support.cluster import Administrator, Cluster
from tests.support.cluster_faults import (
    OF_CLOCKS,
    SHORT,
    RegionFaults,
    count_regions,
    inject,
    insist,
    record_history,
    run,
    tables_of,
)
from tests.support.commands import run_captured
from tests.support.hbase import HBase, unused_prefix
from tests.support.load import BOXES, load
from tests.support.proof import LONG
from tests.support.repositories import problems

pytestmark = pytest.mark.integration


def new_seed() -> int:
    """Return a seed, and print it."""
    seed = random.randrange(10**6)
    print("seed", seed)
    return seed


def in_long_proof(test: object) -> object:
    """Mark a test that needs a cluster."""
    for mark in (pytest.mark.cluster, pytest.mark.timeout(900), *LONG):
        test = mark(test)
    return test


@pytest.mark.proof
@pytest.mark.timeout(300)
def test_regions_are_split_moved_merged_and_compacted_under_load(hbase: HBase, tmp_path: Path) -> None:
    hbase.needs_own_gateway()
    seed = new_seed()
    chance = random.Random(seed)
    prefix = hbase.new_prefix()
    administrator = Administrator(hbase.container.id, "/opt/hbase/conf")
    try:
        with load(hbase.url(prefix), str(seed), tmp_path, ["write0", "write1", "read", "merge"]) as processes:
            faults = RegionFaults(prefix, chance, administrator)
            regions = partial(insist, partial(count_regions, administrator, prefix))
            while regions() < 7:
                insist(faults.split_a_region)
                processes.check_alive()
            inject(faults, ("move_regions", "compact"), chance, seconds=0, every=1, after_each=processes.check_alive)
            deadline = time.monotonic() + 120
            # HBase merges a merged region again only after some minutes.
            while regions() > 6:
                assert time.monotonic() < deadline, "HBase merged no regions"
                insist(faults.merge_regions)
                time.sleep(0.5)
                processes.check_alive()
            counts = processes.end()
    finally:
        administrator.close()
    print({**counts, "slow": len(counts["slow"])})
    assert counts["errors"] == {}


@in_long_proof
def test_servers_die_and_regions_move_under_load(cluster: Cluster, tmp_path: Path) -> None:
    counts = run(cluster, str(new_seed()), tmp_path, SHORT)
    print(counts)
    assert counts["errors"] == {}


@in_long_proof
def test_a_clock_beyond_the_allowed_skew_is_an_error_and_loses_nothing(cluster: Cluster, tmp_path: Path) -> None:
    counts = run(cluster, str(new_seed()), tmp_path, ("set_a_clock_off_beyond_the_limit",), seconds=20)
    print(counts)
    assert set(counts["errors"]) <= {"write: ClockSkewError", "merge: ClockSkewError"}


@in_long_proof
def test_histories_under_faults_have_no_anomaly(cluster: Cluster, tmp_path: Path) -> None:
    names = tuple(name for name in SHORT if name not in OF_CLOCKS)
    report, injected = record_history(cluster, new_seed(), tmp_path, names, seconds=90, every=3)
    print(report, injected)
    assert report.anomalies == [], report.explain()
    assert report.problems == [], report.explain()
    assert len(injected) >= len(names)


@in_long_proof
def test_snapshots_of_all_tables_taken_beside_writers_restore_without_damage(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = str(new_seed())
    prefix, restored = unused_prefix(), unused_prefix()
    # In this order, as docs/clusters.md says.
    tables = ("cluster", "journal", "nodes", "blobs")
    with (
        tables_of(cluster, prefix) as url,
        tables_of(cluster, restored) as copy,
        cluster.administrator() as administrator,
    ):
        with load(url, seed, tmp_path, ["write0", "write1", "write2", "merge"]) as processes:
            for table in tables:
                administrator("snapshot", prefix + table, f"{prefix}backup_{table}")
            processes.end()
        for table in tables:
            administrator("clone", f"{prefix}backup_{table}", restored + table)
            administrator("delete-snapshot", f"{prefix}backup_{table}")
        # The leases of the copy expire.
        time.sleep((Settings().lease_ms + Settings().max_clock_skew_ms) / 1000 + 1)
        for arguments in (("check", "--repair"), ("check",)):
            code, out, err = run_captured(capsys, "--url", copy, *arguments)
            assert code == 0, out + err
        assert "damage\t" not in out
        with hbasemk.connect(copy, create=False) as repository:
            assert sum(f"/boxes/{box}/thing" in repository.head for box in range(BOXES)) == 1
            repository.run(lambda tx: tx.set("/", "restored", True))
            assert problems(repository) == []

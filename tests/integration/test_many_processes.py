"""Eight processes commit to one tree: no commit is lost, all end with the same tree, and nothing stays pending."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.support import hammer
from tests.support.gateway_processes import gateway_process
from tests.support.hbase import HBase

PROCESSES = 8
COMMITS = 200


def report(reports: list[hammer.WorkerReport]) -> None:
    """Shown by ``pytest -rP``."""
    seconds = max(one.seconds for one in reports)
    commits = sum(one.acknowledged for one in reports)
    print(
        f"{commits} commits by {len(reports)} processes in {seconds:.1f} s ({commits / seconds:.0f}/s), "
        f"{sum(one.conflicts for one in reports)} conflicts resolved, {sum(one.unknown for one in reports)} unknown outcomes, "
        f"{sum(len(one.errors) for one in reports)} errors reported"
    )


@pytest.mark.slow
def test_on_one_sqlite_file(tmp_path: Path) -> None:
    report(hammer.run(f"sqlite:///{tmp_path / 'content.db'}", PROCESSES, COMMITS))


@pytest.mark.integration
@pytest.mark.slow
def test_on_hbase(hbase: HBase) -> None:
    report(hammer.run(hbase.url(hbase.new_prefix()), PROCESSES, COMMITS))


@pytest.mark.integration
@pytest.mark.slow
def test_on_hbase_while_the_gateway_is_killed_and_comes_back(hbase: HBase) -> None:
    with gateway_process(hbase) as gateway:
        gateway.until_ready()

        def crash() -> None:
            for _ in range(2):
                time.sleep(2)  # let them start; the result does not depend on their progress
                gateway.signal("KILL")
                time.sleep(1)
                gateway.start()
                gateway.until_ready()

        reports = hammer.run(gateway.url(hbase.new_prefix()) + "&timeout=10", PROCESSES, COMMITS, crash)
    report(reports)
    # The processes retry within their retry_timeout, so no caller of run notices the outage.
    assert [error for one in reports for error in one.errors] == []

"""Several gateways of one HBase: one that dies, hangs or comes back is noticed by no caller of ``run``."""

from __future__ import annotations

import time

import pytest

import hbasemk
from tests.support import hammer
from tests.support.gateway_processes import gateway_process
from tests.support.hbase import HBase
from tests.support.proxy import proxy
from tests.support.repositories import problems

pytestmark = [pytest.mark.integration, pytest.mark.slow]

PROCESSES = 4
COMMITS = 50


def no_errors(reports: list[hammer.WorkerReport]) -> None:
    assert [error for one in reports for error in one.errors] == []
    print(f"{sum(one.acknowledged for one in reports)} commits in {max(one.seconds for one in reports):.1f} s")


def test_one_of_two_gateways_is_killed_hung_and_restarted_under_load(hbase: HBase) -> None:
    with gateway_process(hbase) as one, gateway_process(hbase) as two:
        one.until_ready()
        two.until_ready()
        url = f"hbase://{hbase.host}:{one.port},{hbase.host}:{two.port}/?prefix={hbase.new_prefix()}&timeout=3"

        def disturb() -> None:
            for killed, hung in ((one, two), (two, one)):
                time.sleep(1)
                killed.signal("KILL")
                time.sleep(0.5)
                killed.start()
                killed.until_ready()
                time.sleep(1)
                hung.signal("STOP")
                time.sleep(4)
                hung.signal("CONT")
            time.sleep(1)

        no_errors(hammer.run(url, PROCESSES, COMMITS, disturb))


def test_a_gateway_whose_line_is_cut_and_restored_over_and_over(hbase: HBase) -> None:
    with proxy(hbase.host, hbase.thrift2) as one, proxy(hbase.host, hbase.thrift2) as two:
        url = f"hbase://127.0.0.1:{one.port},127.0.0.1:{two.port}/?prefix={hbase.new_prefix()}&timeout=10"

        def disturb() -> None:
            for turn in range(12):
                line = (one, two)[turn % 2]
                line.down = True
                line.drop_all()
                time.sleep(0.2)
                line.down = False
                time.sleep(0.1)

        no_errors(hammer.run(url, PROCESSES, COMMITS, disturb))


def test_a_repository_stays_usable_with_any_one_of_three_gateways(hbase: HBase) -> None:
    with (
        proxy(hbase.host, hbase.thrift2) as one,
        proxy(hbase.host, hbase.thrift2) as two,
        proxy(hbase.host, hbase.thrift2) as three,
    ):
        lines = (one, two, three)
        hosts = ",".join(f"127.0.0.1:{line.port}" for line in lines)
        with hbasemk.connect(f"hbase://{hosts}/?prefix={hbase.new_prefix()}", poll_interval=0, retry_timeout=0) as repo:
            for number, left in enumerate(lines):
                left.down = False
                for line in lines:
                    if line is not left:
                        line.down = True
                        line.drop_all()
                # A lost answer of a write would be retried; connections without calls lose none.
                repo.run(lambda tx, number=number: tx.add(f"/{number}"))  # type: ignore[misc]
            assert repo.refresh().children("/") == ["0", "1", "2"]
            assert problems(repo) == []

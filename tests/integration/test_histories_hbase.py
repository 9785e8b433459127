"""Real processes on HBase, killed, paused past their leases, and cut off from the gateway: their histories have no anomaly.

``HBASEMK_HISTORY_SECONDS`` sets the duration, ``HBASEMK_HISTORY_SEED`` the seed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from hbasemk.testing.history.processes import Conductor
from tests.support.hbase import HBase
from tests.support.histories import SECONDS, SEED, verify
from tests.support.proxy import Proxy, proxy


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize("seconds", SECONDS)
def test_killed_paused_and_cut_off_processes_leave_a_history_without_anomalies(
    tmp_path: Path, hbase: HBase, seconds: float
) -> None:
    prefix = hbase.new_prefix()
    with proxy(hbase.host, hbase.thrift2) as line:

        def cut(where: str, line: Proxy = line) -> bool:
            # The last connection may still wait for a call.
            free = line.cut is None
            line.cut = line.cut or where
            return free

        history = Conductor(
            hbase.url(prefix),
            tmp_path,
            SEED,
            workers_url=f"hbase://127.0.0.1:{line.port}/?prefix={prefix}&timeout=5",
            more={
                "all cut off": line.drop_all,
                "a call lost": lambda: cut("before"),
                "an answer lost": lambda: cut("after"),
            },
        ).run(seconds)
    verify(history)
    assert history.harm.get("all cut off")
    assert line.cuts["before"]
    assert line.cuts["after"]

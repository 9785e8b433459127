"""Real processes on HBase whose gateway is out of reach for a while: no caller of ``run`` notices, and nothing is lost."""

from __future__ import annotations

import multiprocessing
import time
from multiprocessing.connection import Connection

import pytest

import hbasemk
from tests.support.hbase import HBase
from tests.support.proxy import proxy
from tests.support.repositories import problems

PROCESSES = 3
AWAY = 3.0


def increments(url: str, pipe: Connection) -> None:
    """Increment until the parent signals the end, with the default retry_timeout; send the count, or the error."""
    count = 0
    with hbasemk.connect(url) as repo:
        pipe.send("opened")
        while not pipe.poll():
            try:
                repo.run(lambda tx: tx.increment("/", "count", 1))
            except hbasemk.HbasemkError as error:
                pipe.send(f"{type(error).__name__}: {error}")
                return
            count += 1
            if count == 1:
                pipe.send("begun")
    pipe.send(count)


@pytest.mark.integration
@pytest.mark.timeout(240)
def test_run_survives_a_gateway_that_is_cut_off_for_three_seconds(hbase: HBase) -> None:
    prefix = hbase.new_prefix()
    with hbasemk.connect(hbase.url(prefix), poll_interval=0) as repo, proxy(hbase.host, hbase.thrift2) as line:
        url = f"hbase://127.0.0.1:{line.port}/?prefix={prefix}&timeout=5"
        context = multiprocessing.get_context("spawn")
        pipes: list[Connection] = []
        started = []
        for _ in range(PROCESSES):
            ours, theirs = context.Pipe()
            process = context.Process(target=increments, args=(url, theirs), daemon=True)
            process.start()
            pipes.append(ours)
            started.append(process)
        try:
            assert [pipe.recv() for pipe in pipes] == ["opened"] * PROCESSES
            assert [pipe.recv() for pipe in pipes] == ["begun"] * PROCESSES
            line.down = True
            line.drop_all()
            time.sleep(AWAY)
            assert not [pipe.recv() for pipe in pipes if pipe.poll()]
            line.down = False
            # More increments succeed afterwards.
            seen = repo.refresh()["/"]["count"]
            assert isinstance(seen, int)
            deadline = time.monotonic() + 120
            while repo.refresh()["/"]["count"] < seen + PROCESSES:  # type: ignore[operator]
                assert time.monotonic() < deadline
                assert not [pipe.recv() for pipe in pipes if pipe.poll()]
                time.sleep(0.1)
            for pipe in pipes:
                pipe.send("end")
            counts = [pipe.recv() for pipe in pipes]
            assert all(isinstance(count, int) for count in counts), counts
            for process in started:
                process.join(60)
        finally:
            for process in started:
                process.kill()
                process.join()
        assert repo.refresh()["/"]["count"] == sum(counts)
        assert problems(repo) == []

"""Scenarios of other costs than time: bytes on the wire and on disk, memory, and the load of an idle process."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable
from contextlib import closing
from typing import Final

from benchmarks.harness import Contender, Harness, TooSlowError
from benchmarks.registry import Entry
from benchmarks.scenarios.nodes import flat, properties
from benchmarks.system import System
from benchmarks.systems.hbasemk import EmbeddedHbasemk, host_and_port
from benchmarks.wire import Relay
from benchmarks.workers import Gate, Workers

MEASURED: Final = 200
"""Commits over which the scenario counts bytes."""


def bytes_transferred(harness: Harness) -> None:
    """Count the bytes of each commit: on the wire (HBase) or written to files (embedded), and stored."""
    contenders = harness.tree("bytes")
    count = min(MEASURED, harness.sizes.turns)
    harness.prepare(contenders, lambda system: system.add([("/set", properties(0)), ("/add", {})]))
    for contender in list(contenders):
        try:
            _transferred(harness, contender, count)
            _stored(harness, contender, count)
        except TooSlowError as error:
            harness.record_missing(contender.entry, "counting bytes", str(error))
        except Exception as error:
            harness.record_failure(contender.entry, "counting bytes", error)
    harness.drop("bytes")


def _operations(system: System, count: int) -> list[tuple[str, Callable[[int], object]]]:
    return [
        ("set one property", lambda turn: system.set("/set", "number", turn)),
        ("add one node", lambda turn: system.add([(f"/add/{count}.{turn}", properties(turn))])),
    ]


def _transferred(harness: Harness, contender: Contender, count: int) -> None:
    if contender.entry.store == "sqlite":
        written = _written()
        if written is None:
            harness.record_missing(contender.entry, "bytes written", "needs psutil, on Linux")
            return
        _fill_log(harness, contender.system)
        for name, call in _operations(contender.system, 1):
            before = written()
            for turn in range(count):
                call(turn)
            harness.record(contender, f"{name}: bytes written", "B", [(written() - before) / count])
        return
    address = contender.system.address()
    host, port = host_and_port(harness.server)
    if f"{host}:{port}" not in address:
        harness.record_missing(contender.entry, "bytes on the wire", "its connection cannot be redirected")
        return
    with Relay(host, port) as relay:
        system = type(contender.system).join(address.replace(f"{host}:{port}", f"127.0.0.1:{relay.port}"))
        try:
            for name, call in _operations(system, 1):
                call(-1)
                before = relay.bytes
                if not before:
                    harness.record_missing(
                        contender.entry, f"{name}: bytes on the wire", "its connection cannot be redirected"
                    )
                    continue
                for turn in range(count):
                    call(turn)
                harness.record(contender, f"{name}: bytes on the wire", "B", [(relay.bytes - before) / count])
        finally:
            system.close()


def _fill_log(harness: Harness, system: System) -> None:
    """Let hbasemk commit until its log has its full size: it fills a shorter one with zeros (decision 51).

    So many commits write more than it appends at a time.
    """
    if isinstance(system, EmbeddedHbasemk):
        stop = harness.start_time_limit()
        size, turn = -1, 0
        while (found := os.path.getsize(f"{system.path}-wal")) != size:
            if stop():
                raise TooSlowError(f"the log did not reach its full size in {harness.sizes.time_limit} s")
            size = found
            for _ in range(MEASURED):
                turn -= 1
                system.set("/set", "number", turn)


def _written() -> Callable[[], int] | None:
    """Return a function that returns the bytes this process has written so far; None if the system does not count."""
    try:
        import psutil

        process = psutil.Process()
        process.io_counters()
    except (ImportError, AttributeError):
        return None
    return lambda: int(process.io_counters().write_chars)


def _stored(harness: Harness, contender: Contender, count: int) -> None:
    for name, call in _operations(contender.system, 2):
        before = contender.system.size()
        for turn in range(count):
            call(turn)
        harness.record(contender, f"{name}: bytes stored", "B", [(contender.system.size() - before) / count])


def memory(harness: Harness) -> None:
    """Measure the memory that a process gains when it creates a repository and adds many nodes."""
    sizes = harness.sizes
    for entry in harness.entries:
        # A tree of that size in every system would take longer than all other scenarios together.
        largest = sizes.memory if entry.role == "hbasemk" else sizes.memory_small
        if not entry.single_process:
            continue
        label = "memory after {:,} nodes"
        place = harness.place_of("memory", entry)
        try:
            # The worker owns the tree, and an interruption or an error may end it before it has removed it.
            with entry.removed_on_failure(place), closing(Workers()) as workers:
                (found,) = workers.run([(grow, (entry, place, sizes.memory_small, largest, sizes.chunk))])
        except NotImplementedError as error:
            harness.leave_out(entry, error)
            continue
        except Exception as error:
            harness.record_failure(entry, label.format(largest), error)
            continue
        if found is None:
            harness.record_missing(entry, label.format(largest), "needs psutil")
            continue
        for nodes, size in found.items():
            harness.record_entry(entry, label.format(nodes), "B", [float(size)])


def grow(gate: Gate, entry: Entry, place: str, small: int, large: int, chunk: int) -> dict[int, int] | None:
    """Return the resident bytes that this process gains, by number of nodes; None without psutil."""
    try:
        import psutil
    except ImportError:
        return None
    process = psutil.Process()
    entry.load()
    gate()
    gc.collect()
    before = process.memory_info().rss
    system = entry.create(place)
    found: dict[int, int] = {}
    try:
        at = 0
        for target in sorted({small, large}):
            while at < target:
                part = min(chunk, target - at)
                folder = f"/{at}"
                system.add([(folder, {}), *flat(folder, part - 1)])
                at += part
            gc.collect()
            found[target] = process.memory_info().rss - before
        return found
    finally:
        system.close()


def idle(harness: Harness) -> None:
    """Measure an open repository without users at the default polling interval: store calls and processor share."""
    for contender in harness.tree("main"):
        if contender.entry.role != "hbasemk":
            continue
        url = contender.system.address()
        try:
            (found,) = harness.workers.run([(wait, (url, harness.sizes.idle_seconds, harness.sizes.skew_wait_seconds))])
        except Exception as error:
            harness.record_failure(contender.entry, "idle", error)
            continue
        polls, calls, rows, share = found
        seconds = harness.sizes.idle_seconds
        harness.record(contender, "idle: polls per second", "polls", [polls / seconds])
        for operation, unit, count in (
            ("idle: calls per poll", "calls", calls),
            ("idle: rows read per poll", "rows", rows),
        ):
            if polls:
                harness.record(contender, operation, unit, [count / polls])
            else:
                harness.record_missing(contender.entry, operation, f"no polls in {seconds} s")
        harness.record(contender, "idle: share of a core", "%", [100 * share])


def wait(gate: Gate, url: str, seconds: int, skew_wait: int) -> tuple[int, int, int, float]:
    """Open a repository, commit once and wait. Returns polls, calls of polls, rows read, and the processor share.

    The renewal of the lease takes a few calls every ten seconds. It counts as processor time but not as calls of polls.
    """
    from hbasemk.format import schema
    from hbasemk.opening import open_store
    from hbasemk.repository import Repository
    from hbasemk.testing.wrapped import CountingStore

    store = CountingStore(open_store(url)[0])
    with Repository(store, create=False) as repository:
        repository.run(lambda tx: tx.set("/", "idle", 1))
        gate()
        # Wait until the watermark has passed that commit.
        time.sleep(skew_wait)
        store.take()
        store.traffic()
        before, start_time = time.process_time(), time.monotonic()
        time.sleep(seconds)
        spent, passed = time.process_time() - before, time.monotonic() - start_time
        rows = store.traffic().rows_read
        calls = store.take()
        # On HBase a poll begins with the logs of the writers. On SQLite an idle instance polls after each renewal of its lease.
        logs = calls["scan", schema.CLUSTER]
        polls = logs + calls["arrivals", schema.JOURNAL]
        polling = logs + sum(count for (_, table), count in calls.items() if table != schema.CLUSTER)
        return polls, polling, rows, spent / passed

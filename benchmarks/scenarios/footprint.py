"""Scenarios of what is taken besides time: bytes on the wire and on disk, memory, and what an idle process costs."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Final

from benchmarks.harness import Contender, Harness
from benchmarks.registry import Entry
from benchmarks.scenarios.nodes import flat, properties
from benchmarks.system import System
from benchmarks.systems.hbasemk import host_and_port
from benchmarks.wire import Relay
from benchmarks.workers import Gate, Workers

MEASURED: Final = 200
"""Commits, or reads, whose bytes are counted."""


def bytes_moved(harness: Harness) -> None:
    """Bytes for each commit: on the wire (on HBase) or handed to the file system (embedded), and kept in the store."""
    contenders = harness.tree("bytes")
    count = min(MEASURED, harness.sizes.turns)
    harness.prepare(contenders, lambda system: system.add([("/set", properties(0)), ("/add", {})]))
    for contender in list(contenders):
        try:
            _moved(harness, contender, count)
            _kept(harness, contender, count)
        except Exception as error:
            harness.failed(contender.entry, "counting bytes", error)
    harness.drop("bytes")


def _operations(system: System, count: int) -> list[tuple[str, Callable[[int], object]]]:
    return [
        ("set one property", lambda turn: system.set("/set", "number", turn)),
        ("add one node", lambda turn: system.add([(f"/add/{count}.{turn}", properties(turn))])),
    ]


def _moved(harness: Harness, contender: Contender, count: int) -> None:
    if contender.entry.store == "sqlite":
        written = _written()
        if written is None:
            harness.missing(contender.entry, "bytes written", "needs psutil, on Linux")
            return
        for name, call in _operations(contender.system, 1):
            before = written()
            for turn in range(count):
                call(turn)
            harness.add(contender, f"{name}: bytes written", "B", [(written() - before) / count])
        return
    address = contender.system.connect()
    host, port = host_and_port(harness.server)
    if f"{host}:{port}" not in address:
        harness.missing(contender.entry, "bytes on the wire", "its connection cannot be redirected")
        return
    with Relay(host, port) as relay:
        system = type(contender.system).join(address.replace(f"{host}:{port}", f"127.0.0.1:{relay.port}"))
        try:
            for name, call in _operations(system, 1):
                call(-1)
                before = relay.bytes
                if not before:
                    harness.missing(
                        contender.entry, f"{name}: bytes on the wire", "its connection cannot be redirected"
                    )
                    continue
                for turn in range(count):
                    call(turn)
                harness.add(contender, f"{name}: bytes on the wire", "B", [(relay.bytes - before) / count])
        finally:
            system.close()


def _written() -> Callable[[], int] | None:
    """A function that tells how many bytes this process has written so far; None where nobody knows."""
    try:
        import psutil

        process = psutil.Process()
        process.io_counters()
    except (ImportError, AttributeError):
        return None
    return lambda: int(process.io_counters().write_chars)


def _kept(harness: Harness, contender: Contender, count: int) -> None:
    for name, call in _operations(contender.system, 2):
        before = contender.system.size()
        for turn in range(count):
            call(turn)
        harness.add(contender, f"{name}: bytes kept", "B", [(contender.system.size() - before) / count])


def memory(harness: Harness) -> None:
    """Memory of a process that has added many nodes, beyond what it took before it opened the repository."""
    sizes = harness.sizes
    for entry in harness.entries:
        # A tree of that size through every system would take longer than all other scenarios together.
        most = sizes.memory if entry.role == "ours" else sizes.memory_small
        if not entry.alone:
            continue
        label = "memory after {:,} nodes"
        workers = Workers()
        try:
            place = harness.place_of("memory", entry)
            (found,) = workers.run([(grow, (entry, place, sizes.memory_small, most, sizes.chunk))])
        except Exception as error:
            harness.failed(entry, label.format(most), error)
            continue
        finally:
            workers.close()
        if found is None:
            harness.missing(entry, label.format(most), "needs psutil")
            continue
        for nodes, taken in found.items():
            harness.note(entry, label.format(nodes), "B", [float(taken)])


def grow(gate: Gate, entry: Entry, place: str, small: int, large: int, chunk: int) -> dict[int, int] | None:
    """Bytes of resident memory that a new process has gained after so many nodes; None if that cannot be told."""
    try:
        import psutil
    except ImportError:
        return None
    process = psutil.Process()
    loaded = entry.load()
    gate()
    gc.collect()
    before = process.memory_info().rss
    system = loaded.create(place)
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
    """What an open repository costs that nobody uses: calls of the store and the share of a core, at the default
    interval."""
    for contender in harness.tree("main"):
        if contender.entry.role != "ours":
            continue
        url = contender.system.connect()
        try:
            (found,) = harness.workers.run([(wait, (url, harness.sizes.idle_seconds, harness.sizes.settle_seconds))])
        except Exception as error:
            harness.failed(contender.entry, "idle", error)
            continue
        polls, calls, rows, share = found
        seconds = harness.sizes.idle_seconds
        harness.add(contender, "idle: polls a second", "polls", [polls / seconds])
        harness.add(contender, "idle: calls for each poll", "calls", [calls / max(1, polls)])
        harness.add(contender, "idle: rows read by each poll", "rows", [rows / max(1, polls)])
        harness.add(contender, "idle: share of a core", "%", [100 * share])


def wait(gate: Gate, url: str, seconds: int, settle: int) -> tuple[int, int, int, float]:
    """Open, commit once, sit still: polls, calls for polling, rows that came, and the processor's share of the time.

    The renewal of the lease, a few calls in ten seconds, counts as processor time but not as calls of polls.
    """
    from hbasemk.connect import open_store
    from hbasemk.kernel import schema
    from hbasemk.repository import Repository
    from hbasemk.testing.wrapped import CountingStore

    store = CountingStore(open_store(url)[0])
    with Repository(store, create=False) as repository:
        repository.run(lambda tx: tx.set("/", "idle", 1))
        gate()
        # Until polls no longer look at that commit.
        time.sleep(settle)
        store.take()
        store.traffic()
        before, began = time.process_time(), time.monotonic()
        time.sleep(seconds)
        spent, passed = time.process_time() - before, time.monotonic() - began
        rows = store.traffic().rows_read
        calls = store.take()
        polls = sum(count for (method, table), count in calls.items() if (method, table) == ("scan", schema.JOURNAL))
        polling = sum(count for (_, table), count in calls.items() if table != schema.CLUSTER)
        return polls, polling, rows, spent / passed

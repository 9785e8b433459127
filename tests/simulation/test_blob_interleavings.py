"""A process that writes a content and refers to it, beside a sweep of unused blobs, or beside an upload that fails.

All interleavings with two switches.
"""

from __future__ import annotations

import hashlib
import io
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hbasemk.errors import HbasemkError, StoreNotAppliedError
from hbasemk.format import blob_use, schema
from hbasemk.format.values import BlobRef
from hbasemk.kernel import blobs as kernel_blobs
from hbasemk.kernel.blobs import DATA, USED, Blobs, Head, chunk_key
from hbasemk.kernel.collection import unused_blobs
from hbasemk.kernel.collection.collector import Collector
from hbasemk.kernel.collection.run import Run
from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.operations import AddNode, SetProperty
from hbasemk.kernel.settings import Settings
from hbasemk.store.abc import CellVersion, DeleteBelow, NewCell, Put, Scan
from hbasemk.testing.simulation import Actor, Simulator
from hbasemk.testing.stepped import SteppedSimulator
from tests.support import proof
from tests.support.collecting import BOTH_ORDERS, set_grace
from tests.support.marking_store import MarkingStore

SETTINGS = Settings(max_clock_skew_ms=500, lease_ms=600_000)
RETENTION_MS = 10
CONTENT = b"twelve bytes"


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_blobs, "CHUNK", 8)
    set_grace(monkeypatch, 0.0)


class Prepared:
    """A store with a blob that nobody has used for a long time: complete, or doomed by a sweep that was killed.

    Without the blob if ``is_absent``.
    """

    def __init__(self, *, is_doomed: bool = False, is_absent: bool = False, ordered: bool = True) -> None:
        simulator = Simulator(0, transactions=ordered)
        if not ordered:
            simulator.store = MarkingStore(lambda: int(simulator.ms))
        self.store = simulator.store
        one = simulator.add("one", lambda _: None).open(wanted=SETTINGS)
        for path in ("/a", "/b"):
            one.commit(lambda _, path=path: OperationList([AddNode(path, {})]), "")  # type: ignore[misc]
        blob = "" if is_absent else one.blobs.write(io.BytesIO(CONTENT))
        if is_doomed:
            key = bytes.fromhex(blob)
            assert one.blobs.doom(key, one.blobs.head(key), int(simulator.ms), int(simulator.ms))
        one.close()
        simulator.ms += 10_000_000
        first = simulator.add("first", lambda _: None).open()
        Collector(first).run(RETENTION_MS)
        assert first.journal.fence.horizon
        first.close()
        simulator.ms += 5
        self.ms = simulator.ms


class Beside:
    """One run: the sweep is process 0, the writer process 1."""

    def __init__(self, prepared: Prepared) -> None:
        self.simulator = SteppedSimulator()
        self.simulator.ms = prepared.ms
        self.simulator.store = prepared.store.clone(lambda: int(self.simulator.ms))
        self.cells = Counter[str]()
        self.ref: BlobRef | None = None
        self.sweeping = self.simulator.add("sweep", self.sweeps).open()
        self.writing = self.simulator.add("writer", self.writes).open()
        for instance in (self.sweeping, self.writing):
            instance.clock.next(0)
        self.simulator.ms += 1

    def sweeps(self, _: Actor) -> None:
        horizon = self.sweeping.journal.fence.horizon
        run = Run(self.sweeping, horizon, self.cells, True, lambda _: None)
        assert unused_blobs.collect(run, RETENTION_MS, lambda: horizon)

    def writes(self, _: Actor) -> None:
        ref = BlobRef(self.writing.blobs.write(io.BytesIO(CONTENT)))
        self.writing.commit(lambda _: OperationList([SetProperty("/b", "p", ref)]), "", retry_timeout=9)
        self.ref = ref

    def go(self, order: tuple[int, int, int]) -> tuple[int, int]:
        """Let process ``order[0]`` make ``order[1]`` steps, the other one ``order[2]``, then finish both."""
        self.simulator.prepare()
        return self.simulator.run_with_switches(order)

    def problem(self) -> str | None:
        """Return what went wrong."""
        for actor in self.simulator.actors:
            if actor.error is not None:
                return f"{actor.name}: {actor.error!r}"
        fresh = self.simulator.add("fresh", lambda _: None).open()
        if fresh.require(fresh.head(), "/b").properties.get("p") != self.ref or self.ref is None:
            return "the commit is lost"
        try:
            found = fresh.blobs.read(self.ref.id)
        except HbasemkError as error:
            return str(error)
        return None if found == CONTENT else f"the blob reads {found!r}"


class BesideFailure(Beside):
    """Process 0 uploads the content as well, and fails after all of its chunks, or before the last one."""

    has_all = True

    def sweeps(self, _: Actor) -> None:
        blobs = self.sweeping.blobs
        put = blobs._put

        def fails(*_: Any, **__: Any) -> bool:
            raise StoreNotAppliedError("the upload fails")

        def puts(puts: list[Put], end: int, *rest: Any) -> None:
            if end * kernel_blobs.CHUNK >= len(CONTENT):
                fails()
            put(puts, end, *rest)

        if self.has_all:
            blobs.use = fails  # type: ignore[method-assign]
        else:
            blobs._put = puts  # type: ignore[method-assign]
        try:
            blobs.write(io.BytesIO(CONTENT))
        except StoreNotAppliedError as error:
            assert str(error) == "the upload fails"
            self.cells["failed"] += 1


class BesideFailureBeforeLast(BesideFailure):
    has_all = False


class SweepBesideFailure(BesideFailure):
    """Process 0 uploads the content and fails, process 1 sweeps."""

    def writes(self, _: Actor) -> None:
        horizon = self.writing.journal.fence.horizon
        run = Run(self.writing, horizon, self.cells, True, lambda _: None)
        assert unused_blobs.collect(run, RETENTION_MS, lambda: horizon)

    def problem(self) -> str | None:
        for actor in self.simulator.actors:
            if actor.error is not None:
                return f"{actor.name}: {actor.error!r}"
        fresh = self.simulator.add("fresh", lambda _: None).open()
        left = fresh.store.scan(schema.BLOBS, Scan(None, None, 100, columns=(DATA,)))
        head = fresh.blobs.head(hashlib.sha256(CONTENT).digest())
        return f"chunks remain: {left}" if left and not head.is_complete else None


def orders(prepared: Prepared, every: int, kind: type[Beside] = Beside) -> Iterator[tuple[int, int, int]]:
    steps = kind(prepared).go((0, 10**6, 10**6))
    for first in (0, 1):
        own, others = steps if first == 0 else steps[::-1]
        # The other process needs more steps for an upload than if it only looks.
        for place in range(own + 1):
            for other in range(0, others + 6, every):
                yield first, place, other


def problems(
    prepared: Prepared, every: int, kind: type[Beside] = Beside
) -> Iterator[tuple[tuple[int, int, int], Beside, str | None]]:
    for order in orders(prepared, every, kind):
        run = kind(prepared)
        run.go(order)
        yield order, run, run.problem()


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize("every", [3, pytest.param(1, marks=proof.PROOF)])
@pytest.mark.parametrize("is_doomed", [False, True], ids=["complete", "doomed"])
@BOTH_ORDERS
def test_a_sweep_beside_a_writer(is_doomed: bool, ordered: bool, every: int) -> None:
    prepared = Prepared(is_doomed=is_doomed, ordered=ordered)
    runs = swept = 0
    for order, run, problem in problems(prepared, every):
        assert problem is None, "\n".join([f"{order}: {problem}", *run.simulator.trace])
        runs += 1
        swept += run.cells["unused blobs"]
    print(f"{runs} interleavings, {swept} blobs deleted")
    assert 0 < swept < runs


def use_not_recorded(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Blobs, "_renew", lambda self, key, head, *, durable=True: head.is_complete)


def doomed_taken_for_complete(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Head, "is_complete", property(lambda self: self.length is not None))
    patch.setattr(blob_use, "is_doomed", lambda value: False)


def doomed_without_comparing(patch: pytest.MonkeyPatch) -> None:
    def doom(self: Blobs, key: bytes, *_: Any) -> bool:
        self._store.write(schema.BLOBS, [Put(key, [NewCell(*USED, blob_use.doomed(self._nonce()))])])
        return True

    patch.setattr(Blobs, "doom", doom)


def chunks_read_after_it_was_doomed(patch: pytest.MonkeyPatch) -> None:
    original = unused_blobs._delete
    chunks = unused_blobs._chunks

    def delete(run: Run, deletes: Any) -> None:
        rows = [one.row for one in deletes]
        original(run, chunks(run, rows[0][:32]) if rows and len(rows[0]) > 32 else deletes)

    patch.setattr(unused_blobs, "_delete", delete)


def uploads_earlier_than_the_deleted(patch: pytest.MonkeyPatch) -> None:
    # As if the clock of a region server had gone back.
    patch.setattr(Blobs, "_upload_ms", lambda _, head: None if head.used is None else 1)


MUTANTS = (
    use_not_recorded,
    doomed_taken_for_complete,
    doomed_without_comparing,
    chunks_read_after_it_was_doomed,
)
UNORDERED = (*MUTANTS, uploads_earlier_than_the_deleted)


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize(
    ("mutant", "ordered"), [*((one, True) for one in MUTANTS), *((one, False) for one in UNORDERED)]
)
def test_a_broken_sweep_or_writer_is_found(
    mutant: Callable[[pytest.MonkeyPatch], None], ordered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    for is_doomed in (False, True):
        for _, _, problem in problems(Prepared(is_doomed=is_doomed, ordered=ordered), 1):
            if problem is not None:
                print(problem)
                return
    pytest.fail(f"no interleaving shows {mutant.__name__}")


# --- uploads that fail ---------------------------------------------------------------------------------------


STATES = pytest.mark.parametrize("state", [{"is_absent": True}, {"is_doomed": True}], ids=["absent", "doomed"])


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize("every", [3, pytest.param(1, marks=proof.PROOF)])
@pytest.mark.parametrize("kind", [BesideFailure, BesideFailureBeforeLast, SweepBesideFailure])
@STATES
@BOTH_ORDERS
def test_an_upload_that_fails(
    state: dict[str, bool], ordered: bool, kind: type[Beside], every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_blobs, "AT_ONCE", 1)
    prepared = Prepared(**state, ordered=ordered)
    runs = failed = 0
    for order, run, problem in problems(prepared, every, kind):
        assert problem is None, "\n".join([f"{order}: {problem}", *run.simulator.trace])
        runs += 1
        failed += run.cells["failed"]
    print(f"{runs} interleavings, {failed} failed uploads")
    assert 0 < failed <= runs


def _deleting(reach_ms: int, *, is_doomed: bool, is_complete: bool = False) -> Callable[[pytest.MonkeyPatch], None]:
    def delete_sent(self: Blobs, key: bytes, sent: Any) -> None:
        newest = max(self._now_ms(), sent.timestamp)
        head = self._head(key)
        while (is_complete or not head.is_complete) and is_doomed and not self.doom(key, head, newest, newest):
            head = self._head(key)
        if is_complete or not head.is_complete:
            below = [CellVersion(*DATA, newest + 1 + reach_ms)]
            rows = [DeleteBelow(chunk_key(key, number), below) for number in range(sent.chunks)]
            self._store.delete_below(schema.BLOBS, rows)

    return lambda patch: patch.setattr(Blobs, "_delete_sent", delete_sent)


FAILURE_MUTANTS = {
    "deleted_without_doom": _deleting(0, is_doomed=False),
    "deleted_beyond_the_doom": _deleting(1_000_000, is_doomed=True),
    "deleted_though_complete": _deleting(0, is_doomed=True, is_complete=True),
    "doomed_without_comparing": doomed_without_comparing,
}


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize("mutant", FAILURE_MUTANTS)
@BOTH_ORDERS
def test_a_broken_end_of_an_upload_is_found(mutant: str, ordered: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    FAILURE_MUTANTS[mutant](monkeypatch)
    for _, _, problem in problems(Prepared(is_absent=True, ordered=ordered), 1, BesideFailure):
        if problem is not None:
            print(problem)
            return
    pytest.fail(f"no interleaving shows {mutant}")


def test_the_interleavings_clean_up_as_the_kernel_does(monkeypatch: pytest.MonkeyPatch) -> None:
    _deleting(0, is_doomed=True)(monkeypatch)
    assert all(problem is None for _, _, problem in problems(Prepared(is_absent=True), 3, BesideFailure))

"""Writers of other processes that wait for the same file: how long each of them pauses."""

from __future__ import annotations

import time

import pytest

from hbasemk.store.sqlite import SqliteStore, connections, pauses
from hbasemk.store.sqlite.file_locks import FileLocks
from hbasemk.store.sqlite.pauses import HURRIED, HURRY, LONGEST, PATIENCE, SHORTEST, Pauses
from tests.support.sqlite import ONE, flag

BEGUN = 100.0


def test_a_process_that_has_just_written_leaves_the_file_to_others_first() -> None:
    waits = Pauses(BEGUN, written=BEGUN)
    assert [waits.seconds(BEGUN) for _ in range(10)] == [
        *(SHORTEST * 2**number for number in range(9)),
        pytest.approx(PATIENCE),
    ]
    assert waits.seconds(BEGUN + PATIENCE - 0.001) == pytest.approx(0.001)
    assert waits.seconds(BEGUN + PATIENCE - SHORTEST / 2) == SHORTEST


def test_a_process_hurries_after_its_patience_however_long_its_last_pause_was() -> None:
    for late in (0, PATIENCE):
        waits = Pauses(BEGUN, written=BEGUN)
        waits.seconds(BEGUN)
        begun = BEGUN + PATIENCE + late
        assert waits.seconds(begun) == waits.seconds(begun + HURRY / 2) == HURRIED
        assert waits.seconds(begun + HURRY) == SHORTEST


def test_a_process_that_has_not_written_lately_hurries_at_once() -> None:
    for written in (BEGUN - PATIENCE, float("-inf")):
        waits = Pauses(BEGUN, written)
        assert waits.seconds(BEGUN) == waits.seconds(BEGUN + HURRY / 2) == HURRIED


def test_a_call_that_waits_for_a_long_write_does_not_hurry_all_the_time() -> None:
    waits = Pauses(BEGUN, written=float("-inf"))
    assert waits.seconds(BEGUN) == HURRIED
    later = [waits.seconds(BEGUN + HURRY) for _ in range(10)]
    assert later[0] == SHORTEST
    assert later[-1] == LONGEST
    assert sorted(later) == later


def test_pauses_differ_between_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(pauses.time, "sleep", slept.append)
    monkeypatch.setattr(pauses.time, "monotonic", lambda: BEGUN)
    for _ in range(20):
        Pauses(BEGUN, written=float("-inf")).sleep()
    assert len(set(slept)) > 1
    assert all(0.5 * HURRIED <= seconds < 1.5 * HURRIED for seconds in slept)


def test_a_store_knows_when_it_last_wrote(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[float] = []

    class Recorded(Pauses):
        def __init__(self, begun: float, written: float) -> None:
            given.append(begun - written)
            super().__init__(begun, written)

    monkeypatch.setattr(connections, "Pauses", Recorded)
    before = time.monotonic()
    store.write(ONE.name, [flag(b"row")])
    assert not given
    answers = [False, True]
    begin_write = FileLocks.begin_write
    monkeypatch.setattr(FileLocks, "begin_write", lambda self: answers.pop(0) and begin_write(self))
    store.write(ONE.name, [flag(b"row")])
    assert len(given) == 1
    assert 0 <= given[0] <= time.monotonic() - before

"""hbasemk and the baseline on SQLite fulfil the contract of systems under test."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from benchmarks.system import System
from benchmarks.systems.hbasemk import EmbeddedHbasemk
from hbasemk import Settings, connect
from hbasemk.format import schema
from hbasemk.repository import instance_of
from hbasemk.store.abc import Store
from hbasemk.testing.wrapped import Call, FaultyStore
from tests.support.benchmarks import SystemContract, damage_in, load
from tests.support.repositories import problems


class Embedded(SystemContract):
    @pytest.fixture
    def place(self, tmp_path: Path) -> str:
        return str(tmp_path / "tree")


class TestEmbeddedHbasemk(Embedded):
    target = "benchmarks.systems.hbasemk:EmbeddedHbasemk"

    def test_a_folder_may_have_characters_with_a_meaning_in_urls(self, tmp_path: Path) -> None:
        folder = tmp_path / "a?b#c%20d"
        system = load(self.target).create(str(folder))
        assert system.size() > 0
        type(system).join(system.address()).close()
        system.close()
        assert (folder.is_dir(), list(folder.iterdir()), list(tmp_path.iterdir())) == (True, [], [folder])


class TestPlainSqlite(Embedded):
    target = "benchmarks.systems.sqlite_baseline:PlainSqlite"
    supports_history = False
    supports_diff = False

    def test_invalid_changes_are_rejected_and_change_nothing(self, system: System) -> None:
        system.add([("/a", {"value": 1})])
        with pytest.raises(ValueError, match="exists already"):
            system.add([("/b", {}), ("/a", {"value": 2})])
        with pytest.raises(KeyError):
            system.set("/nothing", "value", 2)
        assert system.read("/b") is None
        assert dict(system.read("/a") or {}) == {"value": 1}

    def test_a_conflicting_change_is_retried_and_counted(self, system: System) -> None:
        # SQLite waits for the lock instead.
        system.add([("/a", {"value": 1})])
        other = type(system).join(system.address())
        other.increment("/a", "value")
        system.increment("/a", "value")
        assert dict(other.read("/a") or {}) == {"value": 3}
        assert (other.retries, system.retries) == (0, 0)
        other.close()


@pytest.mark.parametrize("commits", [20, 600])
def test_a_history_in_batches_equals_one_of_commits(
    tmp_path: Path, commits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # With a small allowed skew the watermark advances soon.
    connect(f"sqlite:///{tmp_path / EmbeddedHbasemk.file}", settings=Settings(max_clock_skew_ms=200)).close()
    system = EmbeddedHbasemk.create(str(tmp_path))
    assert isinstance(system, EmbeddedHbasemk)
    # Maintenance in the background would move the watermark, too, if the machine stalls.
    monkeypatch.setattr(instance_of(system.repository), "maintain", lambda: None)
    system.add([("/a", {"n": -1})])
    first = system.mark()
    assert system.make_history("/a", "n", commits, lambda: False) == commits
    assert dict(system.read("/a") or {}) == {"n": commits - 1}
    assert dict(system.read_at(first, "/a") or {}) == {"n": -1}
    assert len(list(system.repository.log("/a"))) == commits + 1
    system.set("/a", "n", 7)
    with connect(system.url, poll_interval=0) as other:
        assert dict(other.head["/a"]) == {"n": 7}
        assert problems(other) == []
        # The watermark is past the end of a long history, as it is after some time.
        above = len(instance_of(other).journal)
        assert above <= 2 if commits >= 500 else above == commits + 2
    system.close()
    assert not list(tmp_path.iterdir())


class SlowAtFirst(EmbeddedHbasemk):
    """hbasemk on a store that stalls during the first two batches of journal rows."""

    stalls = 0

    def _store(self) -> Store:
        store = FaultyStore(super()._store())
        store.before = self._stall
        return store

    def _stall(self, call: Call) -> None:
        if call.method == "write" and call.table == schema.JOURNAL and call.rows > 1 and self.stalls < 2:
            self.stalls += 1
            time.sleep(0.25)


def test_a_history_retries_batches_that_are_too_late(tmp_path: Path) -> None:
    connect(f"sqlite:///{tmp_path / SlowAtFirst.file}", settings=Settings(max_clock_skew_ms=200)).close()
    system = SlowAtFirst.create(str(tmp_path))
    assert isinstance(system, SlowAtFirst)
    system.add([("/a", {"n": -1})])
    assert system.make_history("/a", "n", 50, lambda: False) == 50
    assert dict(system.read("/a") or {}) == {"n": 49}
    assert len(list(system.repository.log("/a"))) == 51
    assert system.stalls == 2
    assert damage_in(system) == []
    system.close()


def test_a_history_ends_at_the_time_limit(tmp_path: Path) -> None:
    system = EmbeddedHbasemk.create(str(tmp_path))
    system.add([("/a", {"n": -1})])
    assert system.make_history("/a", "n", 5000, lambda: True) == 0
    assert dict(system.read("/a") or {}) == {"n": -1}
    assert damage_in(system) == []
    system.close()

"""hbasemk and the floor, as the benchmarks use them, do what they are measured at."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from benchmarks.system import System
from benchmarks.systems.hbasemk import EmbeddedHbasemk
from hbasemk import Settings, connect
from hbasemk.kernel import schema
from hbasemk.store.abc import Store
from hbasemk.testing.wrapped import Call, FaultyStore
from tests.support.benchmarks import SystemContract, damage_in
from tests.support.repositories import problems


class Embedded(SystemContract):
    @pytest.fixture
    def place(self, tmp_path: Path) -> str:
        return str(tmp_path / "tree")


class TestEmbeddedHbasemk(Embedded):
    target = "benchmarks.systems.hbasemk:EmbeddedHbasemk"


class TestPlainSqlite(Embedded):
    target = "benchmarks.systems.sqlite_baseline:PlainSqlite"
    knows_the_past = False
    tells_changes = False

    def test_what_is_not_possible_is_refused_and_changes_nothing(self, system: System) -> None:
        system.add([("/a", {"value": 1})])
        with pytest.raises(ValueError, match="there already"):
            system.add([("/b", {}), ("/a", {"value": 2})])
        with pytest.raises(KeyError):
            system.set("/nothing", "value", 2)
        assert system.read("/b") is None
        assert dict(system.read("/a") or {}) == {"value": 1}

    def test_a_change_that_met_another_is_done_again_and_counted(self, system: System) -> None:
        # Here it waits for the lock instead.
        system.add([("/a", {"value": 1})])
        other = type(system).join(system.connect())
        other.increment("/a", "value")
        system.increment("/a", "value")
        assert dict(other.read("/a") or {}) == {"value": 3}
        assert (other.retries, system.retries) == (0, 0)
        other.close()


@pytest.mark.parametrize("commits", [20, 600])
def test_a_history_made_in_batches_is_one_that_commits_could_have_made(tmp_path: Path, commits: int) -> None:
    # With little skew allowed the watermark follows soon.
    connect(f"sqlite:///{tmp_path / EmbeddedHbasemk.file}", settings=Settings(max_clock_skew_ms=200)).close()
    system = EmbeddedHbasemk.create(str(tmp_path))
    assert isinstance(system, EmbeddedHbasemk)
    system.add([("/a", {"n": -1})])
    first = system.mark()
    assert system.age("/a", "n", commits, lambda: False) == commits
    assert dict(system.read("/a") or {}) == {"n": commits - 1}
    assert dict(system.read_at(first, "/a") or {}) == {"n": -1}
    assert len(list(system.repository.log("/a"))) == commits + 1
    system.set("/a", "n", 7)
    with connect(system.url, poll_interval=0) as other:
        assert dict(other.head["/a"]) == {"n": 7}
        assert problems(other) == []
        # What time does to a long history, the watermark past its end, has been done.
        above = len(other.instance.journal)
        assert above <= 2 if commits >= 500 else above == commits + 2
    system.close()
    assert not list(tmp_path.iterdir())


class SlowAtFirst(EmbeddedHbasemk):
    """On a machine that stands still for a while when batches of the journal are written, the first two times."""

    stood_still = 0

    def _store(self) -> Store:
        store = FaultyStore(super()._store())
        store.before = self._stand_still
        return store

    def _stand_still(self, call: Call) -> None:
        if call.method == "write" and call.table == schema.JOURNAL and call.rows > 1 and self.stood_still < 2:
            self.stood_still += 1
            time.sleep(0.25)


def test_a_history_whose_revisions_come_too_late_is_made_again(tmp_path: Path) -> None:
    connect(f"sqlite:///{tmp_path / SlowAtFirst.file}", settings=Settings(max_clock_skew_ms=200)).close()
    system = SlowAtFirst.create(str(tmp_path))
    assert isinstance(system, SlowAtFirst)
    system.add([("/a", {"n": -1})])
    assert system.age("/a", "n", 50, lambda: False) == 50
    assert dict(system.read("/a") or {}) == {"n": 49}
    assert len(list(system.repository.log("/a"))) == 51
    assert system.stood_still == 2
    assert damage_in(system) == []
    system.close()


def test_a_history_ends_where_patience_does(tmp_path: Path) -> None:
    system = EmbeddedHbasemk.create(str(tmp_path))
    system.add([("/a", {"n": -1})])
    assert system.age("/a", "n", 5000, lambda: True) == 0
    assert dict(system.read("/a") or {}) == {"n": -1}
    assert damage_in(system) == []
    system.close()

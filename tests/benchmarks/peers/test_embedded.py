"""The embedded peers of the benchmarks do what they are measured at."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("ZODB", reason="the peers of SQLite need ZODB")

from transaction.interfaces import TransientError

from benchmarks.peers.objects import ObjectSystem
from benchmarks.system import System
from tests.support.benchmarks import SystemContract, load


class Embedded(SystemContract):
    @pytest.fixture
    def place(self, tmp_path: Path) -> str:
        return str(tmp_path / "tree")

    def test_a_refusal_that_is_no_conflict_but_may_pass_is_done_again(self, system: System) -> None:
        # RelStorage gave up its cache now and then when eight processes added children of one node.
        system.add([("/a", {"value": 1})])
        assert isinstance(system, ObjectSystem)
        system._manager.get().join(Refusal())
        system.set("/a", "value", 2)
        assert system.retries == 1
        assert dict(system.read("/a") or {}) == {"value": 2}


class Refusal:
    """Takes part in one transaction and refuses it."""

    def tpc_begin(self, transaction: object) -> None: ...
    def commit(self, transaction: object) -> None: ...
    def tpc_abort(self, transaction: object) -> None: ...
    def abort(self, transaction: object) -> None: ...

    def tpc_vote(self, transaction: object) -> None:
        raise TransientError("try again")

    def sortKey(self) -> str:
        return "last"


class TestFileStorage(Embedded):
    target = "benchmarks.peers.zodb:FileStorageSystem"
    several_processes = False

    def test_the_file_can_be_opened_again_after_the_end(self, place: str) -> None:
        system = load(self.target).create(place)
        system.add([("/a", {"kept": 1})])
        system.close()
        again = type(system).join(system.connect())
        assert dict(again.read("/a") or {}) == {"kept": 1}
        again.close()


class TestRelStorage(Embedded):
    target = "benchmarks.peers.relstorage:RelStorageSystem"


class TestZeo(Embedded):
    target = "benchmarks.peers.zeo:ZeoSystem"

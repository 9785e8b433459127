"""The embedded peers of the benchmarks do what they are measured at."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.bench_systems import SystemContract, load


class Embedded(SystemContract):
    @pytest.fixture
    def place(self, tmp_path: Path) -> str:
        return str(tmp_path / "tree")


class TestFileStorage(Embedded):
    target = "hbasemk.bench.peers.zodb:FileStorageSystem"
    several_processes = False

    def test_the_file_can_be_opened_again_after_the_end(self, place: str) -> None:
        system = load(self.target).create(place)
        system.add([("/a", {"kept": 1})])
        system.close()
        again = type(system).join(system.connect())
        assert dict(again.read("/a") or {}) == {"kept": 1}
        again.close()


class TestRelStorage(Embedded):
    target = "hbasemk.bench.peers.relstorage:RelStorageSystem"


class TestZeo(Embedded):
    target = "hbasemk.bench.peers.zeo:ZeoSystem"

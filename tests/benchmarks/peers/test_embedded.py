"""The embedded peers fulfil the contract of systems under test."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("ZODB", reason="the peers of SQLite need ZODB")

import ZEO.ClientStorage
from transaction.interfaces import TransientError
from ZEO.Exceptions import ClientDisconnected

from benchmarks.peers import zeo
from benchmarks.peers.objects import ObjectSystem
from benchmarks.system import System
from tests.support.benchmarks import SystemContract, load

OWNER = """
import pathlib, sys
from benchmarks.peers import zeo
folder = pathlib.Path(sys.argv[1])
folder.mkdir()
port, server = zeo.serve(folder)
print(port, flush=True)
sys.stdin.read()
"""
"""A program that starts a server in a folder, prints its port, and waits."""
HANGS = 120
"""Seconds after which the server surely does not end by itself."""


class Embedded(SystemContract):
    @pytest.fixture
    def place(self, tmp_path: Path) -> str:
        return str(tmp_path / "tree")

    def test_a_transient_error_is_retried(self, system: System) -> None:
        # RelStorage sometimes dropped its cache when eight processes added children to one node.
        system.add([("/a", {"value": 1})])
        assert isinstance(system, ObjectSystem)
        system._manager.get().join(Rejection())
        system.set("/a", "value", 2)
        assert system.retries == 1
        assert dict(system.read("/a") or {}) == {"value": 2}


class Rejection:
    """A participant that rejects its transaction."""

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
    multiprocess = False

    def test_the_file_can_be_reopened_after_close(self, place: str) -> None:
        system = load(self.target).create(place)
        system.add([("/a", {"kept": 1})])
        system.close()
        again = type(system).join(system.address())
        assert dict(again.read("/a") or {}) == {"kept": 1}
        again.close()


class TestRelStorage(Embedded):
    target = "benchmarks.peers.relstorage:RelStorageSystem"

    def test_the_size_has_no_versions_of_pages_in_the_log(self, system: System, place: str) -> None:
        system.add([("/a", {"text": "x" * 4_000})])
        for value in range(100):
            system.set("/a", "number", value)
        size = system.size()
        assert size == sum(file.stat().st_size for file in Path(place).glob("*.sqlite3"))
        assert [file.stat().st_size for file in Path(place).glob("*-wal")] == [0]


class TestZeo(Embedded):
    target = "benchmarks.peers.zeo:ZeoSystem"

    def test_a_server_of_another_process_at_the_port_is_left_alone(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # A whole test run failed: two servers started at once, and both clients created their tree on the same one.
        with socket.create_server((zeo.HOST, 0)) as other:
            taken = other.getsockname()[1]
            ports = iter([taken, zeo.free_port()])
            monkeypatch.setattr(zeo, "free_port", lambda: next(ports))
            port, server = zeo.serve(tmp_path)
            try:
                assert port != taken
                ZEO.ClientStorage.ClientStorage((zeo.HOST, port), wait_timeout=zeo.READY_WITHIN).close()
            finally:
                zeo.stop(server)

    def test_the_death_of_the_server_is_the_error_of_each_later_call(
        self, place: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        system = load(self.target).create(place)
        assert isinstance(system, zeo.ZeoSystem)
        system.add([("/a", {"value": 1})])
        assert system._server is not None
        system._server.kill()
        system._server.wait()
        monkeypatch.setattr(system._storage._server, "timeout", 0.1)
        for call in (lambda: system.set("/a", "value", 2), lambda: system.increment("/a", "value"), system.refresh):
            with pytest.raises(ClientDisconnected):
                call()
        system.close()

    def test_the_server_ends_with_a_process_that_is_killed(self, place: str) -> None:
        command = [sys.executable, "-c", OWNER, place]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as owner:
            try:
                assert owner.stdout is not None
                port = int(owner.stdout.readline())
                socket.create_connection((zeo.HOST, port)).close()
            finally:
                owner.kill()
        deadline = time.monotonic() + HANGS
        with pytest.raises(ConnectionRefusedError):
            while time.monotonic() < deadline:
                socket.create_connection((zeo.HOST, port)).close()
                time.sleep(0.02)

"""ZEO: one server process with a FileStorage, and clients in any number of processes, over loopback."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import ClassVar

import ZODB
from ZEO.ClientStorage import ClientStorage

from benchmarks.peers.objects import CACHED_OBJECTS, ObjectSystem

HOST = "127.0.0.1"
READY_WITHIN = 30.0
"""Seconds within which the server must answer."""

FILE, LOG = "Data.fs", "server.log"

SERVER = """
import os, threading
from ZEO.runzeo import main

def end_with_input():
    os.read(0, 1)
    os._exit(0)

threading.Thread(target=end_with_input, daemon=True).start()
main()
"""
"""A server that ends with its standard input, so also if the process that started it is killed."""

LISTENING = b"listening on"
"""The log of a server has this as soon as its port is its own."""


class ZeoSystem(ObjectSystem):
    """A client. The client from ``create`` also owns the server, and stops it in ``close``."""

    name: ClassVar[str] = "ZEO"

    def __init__(self, folder: Path, port: int, server: subprocess.Popen[bytes] | None = None) -> None:
        self._folder = folder
        self._port = port
        self._server = server
        self._storage = ClientStorage((HOST, port), wait_timeout=READY_WITHIN)
        database = ZODB.DB(self._storage, cache_size=CACHED_OBJECTS)
        if server is not None:
            self._create_tree(database)
        super().__init__(database)

    @classmethod
    def create(cls, place: str) -> ZeoSystem:
        folder = Path(place)
        folder.mkdir(parents=True, exist_ok=True)
        port, server = serve(folder)
        try:
            return cls(folder, port, server)
        except BaseException:
            stop(server)
            raise

    def address(self) -> str:
        return f"{self._port} {self._folder}"

    @classmethod
    def join(cls, address: str) -> ZeoSystem:
        port, _, folder = address.partition(" ")
        return cls(Path(folder), int(port))

    def _begin_at_head(self) -> None:
        # The server announces commits of other clients by itself, but only a reply proves that all announcements until now
        # have arrived.
        try:
            self._storage.ping()
        finally:
            super()._begin_at_head()

    def clear_caches(self) -> None:
        super().clear_caches()
        self._storage._cache.clear()

    def size(self) -> int:
        return (self._folder / FILE).stat().st_size

    def close(self) -> None:
        try:
            super().close()
        finally:
            if self._server is not None:
                stop(self._server)


def free_port() -> int:
    """Return a port that nobody uses at this moment."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def serve(folder: Path) -> tuple[int, subprocess.Popen[bytes]]:
    """Start a server with a FileStorage in a folder, and wait until it listens. Returns its port and process.

    Only the log proves this: a connection also succeeds if another process took the port in between.
    """
    for _ in range(5):
        port = free_port()
        with (folder / LOG).open("wb") as log:
            command = [sys.executable, "-c", SERVER, "-a", f"{HOST}:{port}", "-f", str(folder / FILE)]
            server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log)
        deadline = time.monotonic() + READY_WITHIN
        while server.poll() is None and time.monotonic() < deadline:
            if LISTENING in (folder / LOG).read_bytes():
                return port, server
            time.sleep(0.02)
        stop(server)  # another process took the port in between, or the log has the reason
    raise RuntimeError(f"the ZEO server did not start: {(folder / LOG).read_text(errors='replace')[-2000:]}")


def stop(server: subprocess.Popen[bytes]) -> None:
    """Close a server's standard input, and wait until the process has ended."""
    try:
        server.communicate(timeout=10)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()

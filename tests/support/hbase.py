"""A real HBase for tests: in a container of this run, or one that runs already."""

from __future__ import annotations

import base64
import os
import re
import socket
import subprocess
import uuid
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from hbasemk.format import schema
from hbasemk.store.hbase import Address, HBaseStore
from tests.support.hbase_container import MORE_PORTS, shared_container

AHEAD = 6
"""So many pairs of empty tables are created before a test asks for them. One pair takes HBase a second, six take two."""


def unused_prefix() -> str:
    """Return a prefix for tables that no other test uses."""
    return f"t{uuid.uuid4().hex[:12]}_"


@dataclass
class HBase:
    """Where the gateways are; ``container`` is None for an HBase that ran before."""

    host: str
    thrift2: int
    thrift1: int | None
    container: Any = None
    prefixes: list[str] = field(default_factory=list)
    more_ports: dict[int, int] = field(default_factory=dict)
    """This machine's ports of `MORE_PORTS`."""
    ports_in_use: set[int] = field(default_factory=set)
    _ready: deque[Future[str]] = field(default_factory=deque)
    _dropped: list[Future[None]] = field(default_factory=list)
    _threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(AHEAD, "hbase tables"))

    def new_prefix(self) -> str:
        """Return a prefix for tables that no other test uses; `drop` removes them."""
        prefix = unused_prefix()
        self.prefixes.append(prefix)
        return prefix

    def prefix_with_tables(self) -> str:
        """Return a new prefix under which the empty tables exist already."""
        while len(self._ready) <= AHEAD:
            self._ready.append(self._threads.submit(self._create_tables))
        prefix = self._ready.popleft().result()
        self.prefixes.append(prefix)
        return prefix

    def _create_tables(self) -> str:
        prefix = unused_prefix()
        with closing(self._store(prefix)) as store:
            store.create_tables(schema.TABLES)
        return prefix

    def _drop_tables(self, prefix: str) -> None:
        with closing(self._store(prefix)) as store:
            store.drop_tables(schema.TABLES)

    def _store(self, prefix: str) -> HBaseStore:
        return HBaseStore([Address(self.host, self.thrift2)], prefix=prefix)

    def url(self, prefix: str) -> str:
        """Return the URL of the repository with a prefix."""
        return f"hbase://{self.host}:{self.thrift2}/?prefix={prefix}"

    def drop(self) -> None:
        """Begin to remove all tables under the prefixes in use; `close` waits for the end."""
        while self.prefixes:
            self._dropped.append(self._threads.submit(self._drop_tables, self.prefixes.pop()))
        while self._dropped and self._dropped[0].done():
            self._dropped.pop(0).result()

    def close(self) -> None:
        """Remove the tables that no test asked for, wait for all removals, and raise the error of any that failed."""
        failed: list[BaseException] = []
        for ready in self._ready:
            error = ready.exception()
            if error is None:
                self.prefixes.append(ready.result())
            else:
                failed.append(error)
        self.drop()
        failed += filter(None, [dropped.exception() for dropped in self._dropped])
        self._threads.shutdown()
        if failed:
            raise failed[0]

    def copy_inside(self, data: bytes, path: str) -> None:
        """Write a file in the container."""
        text = base64.b64encode(data).decode()
        self.run_inside(["bash", "-c", f"echo {text} | base64 -d >{path}"])

    def needs_own_gateway(self) -> None:
        """Skip the test, before it starts anything, if the gateway is not ours to kill."""
        if self.container is None:
            pytest.skip("the gateway of an HBase that ran before the tests is not killed")

    def run_inside(self, command: list[str]) -> str:
        """Run a command in the container; return its output."""
        code, output = self.container.exec_run(command)
        assert code == 0, output
        return str(output, errors="replace")


def missing() -> str | None:
    """Why there is no HBase for tests, None if there is."""
    return None if given() else engine_missing()


def given() -> tuple[str, int, int | None] | None:
    """Return host, Thrift2 port and Thrift1 port of the HBase that the environment names, None if it names none.

    Raises UsageError for addresses that the tests cannot use.
    """
    thrift2 = _address("HBASEMK_TEST_HBASE")
    if thrift2 is None:
        return None
    thrift1 = _address("HBASEMK_TEST_HBASE_THRIFT1")
    if thrift1 is None:
        return (*thrift2, None)
    if thrift1[0] != thrift2[0]:
        raise pytest.UsageError(f"HBASEMK_TEST_HBASE_THRIFT1 must name the host {thrift2[0]!r}, got {thrift1[0]!r}")
    return (*thrift2, thrift1[1])


def _address(variable: str) -> tuple[str, int] | None:
    text = os.environ.get(variable)
    if not text:
        return None
    host, _, port = text.rpartition(":")
    if not host or not re.fullmatch("[0-9]{1,5}", port):
        raise pytest.UsageError(f"{variable} must be host:port, got {text!r}")
    return host, int(port)


def engine_missing() -> str | None:
    """Why no Docker engine can be used, None if one can."""
    try:
        answer = subprocess.run(["docker", "version"], capture_output=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return "no Docker engine and no HBASEMK_TEST_HBASE=host:port"
    return None if answer.returncode == 0 else "no Docker engine answers, and no HBASEMK_TEST_HBASE=host:port"


@contextmanager
def running(directory: Path) -> Iterator[HBase]:
    """Run the HBase of this test run; its processes find each other's container in ``directory``."""
    named = given()
    if named is not None:
        found = HBase(*named)
        socket.create_connection((found.host, found.thrift2), timeout=5).close()
        yield found
        found.close()
        return
    with shared_container(directory) as container:
        ports = {port: int(container.ports[f"{port}/tcp"][0]["HostPort"]) for port in (9090, 9091, *MORE_PORTS)}
        found = HBase(
            "127.0.0.1", ports[9091], ports[9090], container, more_ports={port: ports[port] for port in MORE_PORTS}
        )
        yield found
        found.close()

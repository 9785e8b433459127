"""Connections that are kept for the next call: bounded, opened when needed, one thread on each at a time.

The gateway closes what idles for a minute, so what idled nearly as long is not used again. A forked child shares its
parent's sockets: it gives back the descriptors, says nothing on them, and begins with a pool of its own.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Final

from hbasemk.errors import ClosedError, StoreError, StoreNotAppliedError
from hbasemk.store.hbase.connection import Connection, Wire

IDLE_SECONDS: Final = 50.0
"""The gateway's default is 60 (hbase.thrift.server.socket.read.timeout)."""

Opener = Callable[[float, Callable[[Wire], None]], Connection]


class _Side:
    """The pool of one process."""

    def __init__(self, pid: int, closed: bool) -> None:
        self.pid = pid
        self.closed = closed
        self.changed = threading.Condition(threading.Lock())
        self.idle: list[Connection] = []
        self.wires: set[Wire] = set()
        self.taken = 0


class Connections:
    """At most ``size`` connections made by ``opener(deadline, register)``, each until it fails or is idle too long."""

    def __init__(self, opener: Opener, size: int, clock: Callable[[], float], about: str) -> None:
        self._opener = opener
        self._size = size
        self._clock = clock
        self._about = about
        first = _Side(os.getpid(), closed=False)
        self._side = first
        self._sides = {first.pid: first}

    @property
    def closed(self) -> bool:
        """Whether the pool has been closed in this process, or in its parent before the fork."""
        return self._mine().closed

    def _mine(self) -> _Side:
        side = self._side
        pid = os.getpid()
        return side if side.pid == pid else self._forked(side, pid)

    def _forked(self, parents: _Side, pid: int) -> _Side:
        # No lock can be used: it may have been held in the parent while it forked. Of threads that come here at once
        # the dictionary picks one.
        made = _Side(pid, parents.closed)
        side = self._sides.setdefault(pid, made)
        if side is made:
            for wire in list(parents.wires):
                wire.close()
        self._side = side
        self._sides = {pid: side}
        return side

    def take(self, deadline: float) -> Connection:
        """A connection for one thread, to be handed back with :meth:`give` or :meth:`drop`.

        Raises ClosedError, StoreNotAppliedError when none gets free in time, and what the opener raises.
        """
        side = self._mine()
        now = self._clock()
        with side.changed:
            while True:
                if side.closed:
                    raise ClosedError(f"the store at {self._about} has been closed")
                while side.idle:
                    connection = side.idle.pop()
                    if now - connection.used <= IDLE_SECONDS and connection.wire.quiet():
                        side.taken += 1
                        return connection
                    self._retire(side, connection)
                if side.taken < self._size:
                    side.taken += 1
                    break
                if now >= deadline or not side.changed.wait(deadline - now):
                    raise StoreNotAppliedError(
                        f"{self._about}: all {self._size} connections were in use for the whole time of the call; "
                        "nothing was sent"
                    )
                now = self._clock()
        try:
            return self._opener(deadline, lambda wire: self._register(side, wire))
        except BaseException as error:
            self._not_opened(side)
            if self.closed and isinstance(error, StoreError):
                raise ClosedError(f"the store at {self._about} has been closed") from error
            raise

    def _not_opened(self, side: _Side) -> None:
        with side.changed:
            side.taken -= 1
            # The opener closes what it opened and could not use.
            side.wires = {wire for wire in side.wires if wire.sock.fileno() >= 0}
            side.changed.notify()

    def _register(self, side: _Side, wire: Wire) -> None:
        with side.changed:
            if side.closed:
                raise ClosedError(f"the store at {self._about} has been closed")
            side.wires.add(wire)

    def give(self, connection: Connection) -> None:
        """Keep a connection on which the last call ended well."""
        side = self._mine()
        now = connection.used = self._clock()
        with side.changed:
            if connection.wire not in side.wires:
                return
            side.taken -= 1
            if side.closed or connection.bloated:
                self._retire(side, connection)
            else:
                side.idle.append(connection)
                while now - side.idle[0].used > IDLE_SECONDS:
                    self._retire(side, side.idle.pop(0))
            side.changed.notify()

    def drop(self, connection: Connection) -> None:
        """End a connection on which a call failed."""
        side = self._mine()
        with side.changed:
            if connection.wire not in side.wires:
                return
            side.taken -= 1
            self._retire(side, connection)
            side.changed.notify()

    def _retire(self, side: _Side, connection: Connection) -> None:
        side.wires.discard(connection.wire)
        connection.wire.cut()
        connection.wire.close()

    def close(self) -> None:
        """End all connections, also those on which an answer is awaited, and wake who waits for one. Idempotent."""
        side = self._mine()
        with side.changed:
            side.closed = True
            while side.idle:
                self._retire(side, side.idle.pop())
            for wire in side.wires:
                wire.cut()
            side.changed.notify_all()

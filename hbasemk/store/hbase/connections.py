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
from hbasemk.interrupts import SLICE, Deferred
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


class Use:
    """One caller's share of a pool. Its holder calls :meth:`Connections.end` whatever happens, also an interruption."""

    __slots__ = ("connection", "side")

    def __init__(self) -> None:
        self.side: _Side | None = None
        """The pool that counts it, if one does."""
        self.connection: Connection | None = None


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

    def take(self, deadline: float, use: Use | None = None) -> Connection:
        """A connection for one thread, to be handed back with :meth:`give` or :meth:`drop`; ``use`` then says so.

        Raises ClosedError, StoreNotAppliedError when none gets free in time, and what the opener raises.
        """
        use = use or Use()
        side = self._mine()
        with Deferred() as interrupts:
            connection = self._idle_or_counted(side, deadline, use, interrupts)
        if connection is not None:
            return connection
        try:
            use.connection = self._opener(deadline, lambda wire: self._register(side, wire))
            return use.connection
        except BaseException as error:
            self.end(use)
            if self.closed and isinstance(error, StoreError):
                raise ClosedError(f"the store at {self._about} has been closed") from error
            raise

    def _idle_or_counted(self, side: _Side, deadline: float, use: Use, interrupts: Deferred) -> Connection | None:
        """A connection that idles, or None: one may be opened. Either is counted."""
        now = self._clock()
        with side.changed:
            while True:
                if side.closed:
                    raise ClosedError(f"the store at {self._about} has been closed")
                while side.idle:
                    connection = side.idle.pop()
                    if now - connection.used <= IDLE_SECONDS and connection.wire.quiet():
                        side.taken += 1
                        use.side, use.connection = side, connection
                        return connection
                    self._retire(side, connection)
                if side.taken < self._size:
                    side.taken += 1
                    use.side = side
                    return None
                if now >= deadline:
                    raise StoreNotAppliedError(
                        f"{self._about}: all {self._size} connections were in use for the whole time of the call; "
                        "nothing was sent"
                    )
                # Any clock may be given: what matters is that this ends soon after the deadline.
                side.changed.wait(min(deadline - now, SLICE))
                interrupts.deliver()
                now = self._clock()

    def end(self, use: Use) -> None:
        """Count a use as over if that has not been done: end its connection, which may be in the middle of a call."""
        with Deferred():
            if use.side is None:
                return
            if use.connection is None:
                self._not_opened(use.side)
            else:
                self.drop(use.connection)
            use.side = None

    def _not_opened(self, side: _Side) -> None:
        with Deferred(), side.changed:
            side.taken -= 1
            # The opener closes what it opened and could not use.
            side.wires = {wire for wire in side.wires if wire.sock.fileno() >= 0}
            side.changed.notify()

    def _register(self, side: _Side, wire: Wire) -> None:
        with Deferred(), side.changed:
            if side.closed:
                raise ClosedError(f"the store at {self._about} has been closed")
            side.wires.add(wire)

    def give(self, connection: Connection, use: Use | None = None) -> None:
        """Keep a connection on which the last call ended well."""
        side = self._mine()
        now = connection.used = self._clock()
        with Deferred(), side.changed:
            if connection.wire not in side.wires:
                return
            side.taken -= 1
            if use is not None:
                use.side = None
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
        with Deferred(), side.changed:
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
        with Deferred(), side.changed:
            side.closed = True
            while side.idle:
                self._retire(side, side.idle.pop())
            for wire in side.wires:
                wire.cut()
            side.changed.notify_all()

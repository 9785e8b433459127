"""A pool of connections: bounded, opened on demand, one thread on each at a time.

The gateway closes a connection that idles for a minute, so the pool does not reuse one that idled nearly as long. A
forked child shares its parent's sockets: it closes the descriptors at once, sends nothing on them, and starts its own pool.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Final

from hbasemk.errors import ClosedError, StoreError, StoreNotAppliedError
from hbasemk.interrupts import SLICE, Deferred
from hbasemk.store import atfork
from hbasemk.store.hbase.connection import Connection
from hbasemk.store.hbase.wire import Wire

IDLE_SECONDS: Final = 50.0
"""The gateway's default is 60 (hbase.thrift.server.socket.read.timeout)."""

Opener = Callable[[float, Callable[[Wire], None]], Connection]


class PoolIsFull(Exception):
    """All connections were in use for a moment, and the caller may use another pool instead."""


class _ProcessPool:
    """The pool's state in one process."""

    def __init__(self, pid: int, closed: bool) -> None:
        self.pid = pid
        self.closed = closed
        self.lock = threading.Lock()
        self.changed = threading.Condition(self.lock)
        self.waiting = 0
        """How many threads wait for a change. The lock alone, which is implemented in C, is faster than the condition."""
        self.idle: list[Connection] = []
        self.wires: set[Wire] = set()
        self.taken = 0

    def notify(self) -> None:
        """Wake a thread that waits for a connection. The caller holds the lock."""
        if self.waiting:
            self.changed.notify()


class Use:
    """One caller's use of a pool; the caller must always call :meth:`Connections.end`, even when interrupted."""

    __slots__ = ("connection", "pool")

    def __init__(self) -> None:
        self.pool: _ProcessPool | None = None
        """The pool that counts this use, if one does."""
        self.connection: Connection | None = None


class Connections:
    """A pool of at most ``size`` connections made by ``opener(deadline, register)``; failed and idle ones are closed."""

    def __init__(self, opener: Opener, size: int, clock: Callable[[], float], about: str) -> None:
        self._opener = opener
        self._size = size
        self._clock = clock
        self._about = about
        first = _ProcessPool(os.getpid(), closed=False)
        self._pool = first
        self._pools = {first.pid: first}
        atfork.register(self)

    def before_fork(self) -> None:
        """Do nothing: the parent's calls go on."""

    def after_fork(self, child: bool) -> None:
        """Close the descriptors of the parent's connections in the child, which may never use this pool."""
        if child:
            self._mine()

    @property
    def closed(self) -> bool:
        """Whether the pool has been closed in this process, or in its parent before the fork."""
        return self._mine().closed

    @property
    def taken(self) -> int:
        """The number of connections in use in this process."""
        return self._mine().taken

    @property
    def is_full(self) -> bool:
        """Whether a caller would wait for another one to return its connection."""
        return self._mine().taken >= self._size

    def _mine(self) -> _ProcessPool:
        pool = self._pool
        pid = os.getpid()
        return pool if pool.pid == pid else self._forked(pool, pid)

    def _forked(self, parents: _ProcessPool, pid: int) -> _ProcessPool:
        # A lock is unusable here: another thread may have held it in the parent during the fork. If several threads
        # arrive at once, the dictionary picks one.
        created = _ProcessPool(pid, parents.closed)
        pool = self._pools.setdefault(pid, created)
        if pool is created:
            for wire in list(parents.wires):
                wire.close()
        self._pool = pool
        self._pools = {pid: pool}
        return pool

    def take(self, deadline: float, use: Use, *, patient: bool = True) -> Connection:
        """Take a connection for one thread and record it in ``use``; return it with :meth:`give` or :meth:`drop`.

        Raises ClosedError, StoreNotAppliedError if none becomes free in time, and the opener's errors. Without ``patient``,
        raises PoolIsFull if none becomes free within a moment.
        """
        pool = self._mine()
        with Deferred() as interrupts:
            connection = self._idle_or_counted(pool, deadline, use, interrupts, patient)
        if connection is not None:
            return connection
        try:
            use.connection = self._opener(deadline, lambda wire: self._register(pool, wire))
            return use.connection
        except BaseException as error:
            self.end(use)
            if self.closed and isinstance(error, StoreError):
                raise ClosedError(
                    f"the store at {self._about} is closed; open the repository again with connect()"
                ) from error
            raise

    def _idle_or_counted(
        self, pool: _ProcessPool, deadline: float, use: Use, interrupts: Deferred, patient: bool
    ) -> Connection | None:
        """Return an idle connection, or None if the caller may open one; count either as taken."""
        now = self._clock()
        give_up = now + SLICE
        while True:
            with pool.lock:
                if pool.closed:
                    raise ClosedError(f"the store at {self._about} is closed; open the repository again with connect()")
                while pool.idle:
                    connection = pool.idle.pop()
                    if now - connection.used <= IDLE_SECONDS and connection.wire.is_quiet():
                        pool.taken += 1
                        use.pool, use.connection = pool, connection
                        return connection
                    self._retire(pool, connection)
                if pool.taken < self._size:
                    pool.taken += 1
                    use.pool = pool
                    return None
                if now >= deadline:
                    used = "the only connection was" if self._size == 1 else f"all {self._size} connections were"
                    raise StoreNotAppliedError(
                        f"{self._about}: {used} in use until the call's deadline; "
                        "nothing was sent. Retry, or use a larger pool_size"
                    )
                if not patient and now >= give_up:
                    raise PoolIsFull
                # The clock may be any clock; the wait only has to end soon after the deadline.
                pool.waiting += 1
                try:
                    pool.changed.wait(min(deadline - now, SLICE))
                finally:
                    pool.waiting -= 1
            # A handler may wait for a thread that gives a connection back.
            interrupts.deliver()
            now = self._clock()

    def end(self, use: Use) -> None:
        """End a use unless it has ended: drop its connection, which may be in the middle of a call."""
        if use.pool is None:
            return
        with Deferred():
            if use.connection is None:
                self._not_opened(use.pool)
            else:
                self.drop(use.connection)
            use.pool = None

    def _not_opened(self, pool: _ProcessPool) -> None:
        with Deferred(), pool.lock:
            pool.taken -= 1
            self._forget_closed(pool)
            pool.notify()

    def _register(self, pool: _ProcessPool, wire: Wire) -> None:
        with Deferred(), pool.lock:
            if pool.closed:
                raise ClosedError(f"the store at {self._about} is closed; open the repository again with connect()")
            self._forget_closed(pool)
            pool.wires.add(wire)

    def _forget_closed(self, pool: _ProcessPool) -> None:
        # The opener closes a wire that it opened and could not use.
        pool.wires = {wire for wire in pool.wires if wire.sock.fileno() >= 0}

    def give(self, connection: Connection, use: Use | None = None) -> None:
        """Return a connection whose last call succeeded to the pool."""
        pool = self._mine()
        now = connection.used = self._clock()
        with Deferred(), pool.lock:
            if connection.wire not in pool.wires:
                return
            pool.taken -= 1
            if use is not None:
                use.pool = None
            if pool.closed or connection.bloated:
                self._retire(pool, connection)
            else:
                pool.idle.append(connection)
                while now - pool.idle[0].used > IDLE_SECONDS:
                    self._retire(pool, pool.idle.pop(0))
            pool.notify()

    def drop(self, connection: Connection) -> None:
        """Close a connection on which a call failed."""
        pool = self._mine()
        with Deferred(), pool.lock:
            if connection.wire not in pool.wires:
                return
            pool.taken -= 1
            self._retire(pool, connection)
            pool.notify()

    def close_idle(self) -> None:
        """Close the connections that no call uses."""
        pool = self._mine()
        with Deferred(), pool.lock:
            while pool.idle:
                self._retire(pool, pool.idle.pop())

    def _retire(self, pool: _ProcessPool, connection: Connection) -> None:
        pool.wires.discard(connection.wire)
        connection.wire.shut_down()
        connection.wire.close()

    def close(self) -> None:
        """Close all connections, including busy ones, and wake waiting threads. Idempotent."""
        pool = self._mine()
        with Deferred(), pool.lock:
            pool.closed = True
            while pool.idle:
                self._retire(pool, pool.idle.pop())
            for wire in pool.wires:
                wire.shut_down()
            pool.changed.notify_all()

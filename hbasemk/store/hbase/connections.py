"""Connections to the gateway: opened when needed, used by one thread at a time, dropped when in doubt.

The gateway closes a connection that idles for a minute, and a late answer would be taken for the next call's: so idle
ones are looked at before use, and one that failed in any way but by an answer is never used again.
"""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from hbasemk.errors import ClosedError, StoreNotAppliedError
from hbasemk.store.hbase import trouble
from hbasemk.store.hbase.gateway import interface

BUFFER: Final = 64 * 1024
LONGEST_IDLE: Final = 50.0
"""Seconds; the gateway's own limit is 60 by default."""
LONGEST_CONNECT: Final = 5.0
THRIFT2: Final = 2


class Connection:
    """One connection; ``client`` has the gateway's methods."""

    __slots__ = ("_socket", "client", "used_at")

    def __init__(self, host: str, port: int, timeout: float) -> None:
        from thriftpy2.protocol import TCyBinaryProtocol
        from thriftpy2.thrift import TClient
        from thriftpy2.transport import TCyBufferedTransport, TSocket

        self._socket = TSocket(
            host, port, socket_timeout=timeout * 1000, connect_timeout=min(timeout, LONGEST_CONNECT) * 1000
        )
        self._socket.open()
        self._socket.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.client: Any = TClient(interface().Gateway, TCyBinaryProtocol(TCyBufferedTransport(self._socket, BUFFER)))
        self.used_at = time.monotonic()

    def usable(self) -> bool:
        """Whether it has not idled too long and the other side has sent nothing, not even an end."""
        if time.monotonic() - self.used_at > LONGEST_IDLE:
            return False
        poller = select.poll()
        try:
            poller.register(self._socket.sock, select.POLLIN)
        except (ValueError, TypeError, AttributeError):
            return False
        return not poller.poll(0)

    def interrupt(self) -> None:
        """Make a call that another thread waits in fail."""
        sock = self._socket.sock
        if sock is not None:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                # It is closed already: nothing waits in it.
                return

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


class Connections:
    """A pool of at most ``size`` connections to one gateway. ``timeout``: seconds for a call and for a free place."""

    def __init__(self, host: str, port: int, timeout: float, size: int) -> None:
        self.place = f"{host}:{port}"
        self._host = host
        self._port = port
        self._timeout = timeout
        self._size = size
        self._closed = False
        self._abandoned: list[Connection] = []
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._places = threading.BoundedSemaphore(self._size)
        self._idle: list[Connection] = []
        self._busy: set[Connection] = set()

    @contextmanager
    def use(self, table: str | None, *, writes: bool) -> Iterator[Any]:
        """The gateway's methods for one call; its errors come out as store errors of the right kind."""
        if self._pid != os.getpid():
            # A forked child must neither use nor close its parent's sockets.
            self._abandoned += [*self._idle, *self._busy]
            self._reset()
        places = self._places
        if not places.acquire(timeout=self._timeout):
            raise StoreNotAppliedError(
                f"all {self._size} connections to {self.place} have been in use for {self._timeout:g} s; nothing was sent"
            )
        try:
            connection = self._take()
            try:
                yield connection.client
            except BaseException as error:
                found = trouble.diagnose(error, self.place, table, writes=writes)
                self._leave(connection, keep=found is not None and found.keep)
                if found is None:
                    raise
                if self._closed:
                    raise self._closed_error() from error
                raise found.error from error
            self._leave(connection, keep=True)
        finally:
            places.release()

    def close(self) -> None:
        """Close all connections; calls under way fail with ClosedError. Idempotent."""
        self._closed = True
        if self._pid != os.getpid():
            return
        with self._lock:
            idle, self._idle = self._idle, []
            busy = list(self._busy)
        for connection in idle:
            connection.close()
        for connection in busy:
            connection.interrupt()

    def _closed_error(self) -> ClosedError:
        return ClosedError(f"the store at {self.place} has been closed")

    def _take(self) -> Connection:
        while True:
            with self._lock:
                if self._closed:
                    raise self._closed_error()
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                connection = self._open()
            elif not connection.usable():
                connection.close()
                continue
            with self._lock:
                self._busy.add(connection)
            return connection

    def _leave(self, connection: Connection, *, keep: bool) -> None:
        connection.used_at = time.monotonic()
        with self._lock:
            self._busy.discard(connection)
            if keep and not self._closed:
                self._idle.append(connection)
                return
        connection.close()

    def _open(self) -> Connection:
        from thriftpy2.thrift import TApplicationException

        try:
            connection = Connection(self._host, self._port, self._timeout)
        except Exception as error:
            raise trouble.unreachable(self.place, error) from error
        try:
            found = connection.client.getThriftServerType()
        except TApplicationException as error:
            connection.close()
            raise trouble.wrong_gateway(self.place, f"a Thrift server of another kind ({error.message})") from error
        except TimeoutError as error:
            connection.close()
            raise StoreNotAppliedError(
                f"what listens at {self.place} takes connections but does not answer: it hangs, or is no Thrift2 gateway "
                "with the binary protocol and no framing"
            ) from error
        except Exception as error:
            connection.close()
            diagnosis = trouble.diagnose(error, self.place, None, writes=False)
            if diagnosis is None:
                raise
            if "no Thrift binary protocol" in str(diagnosis.error):
                raise trouble.wrong_gateway(self.place, "no Thrift server") from error
            raise StoreNotAppliedError(
                f"the gateway at {self.place} closed a new connection at once ({error}); it is full, or is going down"
            ) from error
        if found != THRIFT2:
            connection.close()
            raise trouble.wrong_gateway(self.place, "HBase's Thrift1 gateway")
        return connection

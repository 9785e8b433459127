"""A local relay between clients and a server: it counts their bytes, and can be as slow as a longer way."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from queue import SimpleQueue
from types import TracebackType


class Relay:
    """Listen on a port of 127.0.0.1 (0: any free one) and forward to ``host:port``. A context manager.

    What arrives is forwarded ``delay`` seconds later. The delay keeps the order, and limits no bandwidth. ``sent`` counts the
    bytes from clients to the server, ``received`` those in the other direction.
    """

    def __init__(self, host: str, port: int, *, delay: float = 0, listen: int = 0) -> None:
        self._target = (host, port)
        self._delay = delay
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self.sent = 0
        self.received = 0
        self._listener = socket.create_server(("127.0.0.1", listen))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, name="bench-relay", daemon=True).start()

    @property
    def bytes(self) -> int:
        """The bytes of both directions."""
        return self.sent + self.received

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        # If the server refuses the connection, the client finds its own closed.
        with contextlib.suppress(OSError), client, socket.create_connection(self._target) as server:
            pair = {client, server}
            for sock in pair:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._open |= pair
            replies = threading.Thread(target=self._forward, args=(server, client, "received"), daemon=True)
            replies.start()
            self._forward(client, server, "sent")
            replies.join()
            with self._lock:
                self._open -= pair

    def _forward(self, source: socket.socket, target: socket.socket, name: str) -> None:
        later: SimpleQueue[tuple[float, bytes]] = SimpleQueue()
        sender = threading.Thread(target=_send_later, args=(later, target), daemon=True)
        sender.start()
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                with self._lock:
                    setattr(self, name, getattr(self, name) + len(data))
                later.put((time.monotonic() + self._delay, data))
        later.put((time.monotonic() + self._delay, b""))
        sender.join()

    def __enter__(self) -> Relay:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            for sock in self._open:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)
                sock.close()


def _send_later(later: SimpleQueue[tuple[float, bytes]], target: socket.socket) -> None:
    """Send each piece of data at its time; empty data ends this direction of the connection."""
    with contextlib.suppress(OSError):
        while True:
            due, data = later.get()
            time.sleep(max(due - time.monotonic(), 0))
            if not data:
                target.shutdown(socket.SHUT_WR)
                return
            target.sendall(data)

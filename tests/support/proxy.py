"""A proxy between a store and a real gateway that cuts the connection at a chosen moment."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

GREETING = b"getThriftServerType"


class Proxy:
    """Passes bytes on. ``cut`` names where the next call is cut, ``cuts`` counts those; ``down`` refuses to pass anything.

    Cut before: the request is swallowed. Cut after: the gateway gets the request and answers it, then the line is cut
    and the answer is lost.
    """

    def __init__(self, listener: socket.socket, target: tuple[str, int]) -> None:
        self.port: int = listener.getsockname()[1]
        self.cut: str | None = None
        self.down = False
        self.cuts: Counter[str] = Counter()
        self._listener = listener
        self._target = target
        self._open: list[socket.socket] = []

    def serve(self) -> None:
        """Accept until the listener is closed."""
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self._listener.accept()
                if self.down:
                    sock.close()
                else:
                    self._open.append(sock)
                    threading.Thread(target=self._pass, args=(sock,), daemon=True).start()

    def drop_all(self) -> None:
        """End all connections there are."""
        for sock in self._open:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        self._open.clear()

    def _pass(self, sock: socket.socket) -> None:
        with contextlib.suppress(OSError), sock, socket.create_connection(self._target) as gateway:
            gateway.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            swallow = threading.Event()
            back = threading.Thread(target=self._answers, args=(gateway, sock, swallow), daemon=True)
            back.start()
            try:
                self._requests(sock, gateway, swallow)
            finally:
                for end in (sock, gateway):
                    with contextlib.suppress(OSError):
                        end.shutdown(socket.SHUT_RDWR)
                back.join()

    def _requests(self, sock: socket.socket, gateway: socket.socket, swallow: threading.Event) -> None:
        # The gateway answers each request before the next one comes.
        while request := sock.recv(1 << 20):
            if self.cut is not None and GREETING not in request:
                cut, self.cut = self.cut, None
                self.cuts[cut] += 1
                if cut == "before":
                    return
                swallow.set()
            gateway.sendall(request)

    def _answers(self, gateway: socket.socket, sock: socket.socket, swallow: threading.Event) -> None:
        """Large answers come in several pieces."""
        with contextlib.suppress(OSError):
            while (answer := gateway.recv(1 << 20)) and not swallow.is_set():
                sock.sendall(answer)
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)


@contextmanager
def proxy(host: str, port: int) -> Iterator[Proxy]:
    """Run a proxy to a gateway, on a free port of this machine."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        made = Proxy(listener, (host, port))
        thread = threading.Thread(target=made.serve, daemon=True)
        thread.start()
        try:
            yield made
        finally:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            made.drop_all()
            thread.join(10)

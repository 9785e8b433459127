"""Opening a connection, and finding out who answers.

The first call on each connection asks the gateway for its type. That tells Thrift1 from Thrift2 and both from anything
else, and since nothing else was sent before it, whatever goes wrong until then was not applied.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable
from typing import Final

from hbasemk.errors import StoreError, StoreNotAppliedError, StoreUnusableError
from hbasemk.store.hbase.connection import Connection, OutOfStep, Refused, Wire
from hbasemk.store.hbase.gateway import SERVER_TYPE, THRIFT1, THRIFT2

_NAME: Final = SERVER_TYPE.name.encode()
_BINARY: Final = b"\x80\x01\x00\x01" + len(_NAME).to_bytes(4, "big") + _NAME + b"\0\0\0\1" + b"\0"
_COMPACT: Final = b"\x82\x21\x01" + bytes([len(_NAME)]) + _NAME + b"\0"
_UNASKED: Final = 0.3
_DIAGNOSIS: Final = 2.0


def open_connection(
    host: str, port: int, deadline: float, clock: Callable[[], float], register: Callable[[Wire], None]
) -> Connection:
    """A connection on which a Thrift2 gateway has said that it is one; ``register`` is told of the wire before.

    Raises StoreNotAppliedError where trying later may help, StoreUnusableError where the address is a wrong one.
    """
    at = f"HBase gateway at {host}:{port}"
    left = deadline - clock()
    if left <= 0:
        raise StoreNotAppliedError(f"{at}: no time was left to connect; nothing was sent")
    try:
        sock = socket.create_connection((host, port), left)
    except TimeoutError:
        raise StoreNotAppliedError(
            f"{at}: no connection within {left:.3g} s; look at the address and at firewalls"
        ) from None
    except OSError as error:
        raise StoreNotAppliedError(
            f"{at} cannot be reached ({error}); is `hbase thrift2 start` running there?"
        ) from error
    wire = Wire(sock, clock)
    try:
        register(wire)
        connection = Connection(wire, clock())
        _greet(connection, host, port, deadline, clock)
    except BaseException:
        wire.close()
        raise
    return connection


def _greet(connection: Connection, host: str, port: int, deadline: float, clock: Callable[[], float]) -> None:
    at = f"HBase gateway at {host}:{port}"
    begun = clock()
    try:
        reply = connection.call(SERVER_TYPE, SERVER_TYPE.request(), deadline)
    except TimeoutError:
        raise StoreNotAppliedError(
            f"{at}: connected, but there was no answer within {clock() - begun:.3g} s: all workers of the gateway are "
            "busy, or this is no Thrift server"
        ) from None
    except (OSError, EOFError):
        raise _diagnose(host, port, at, min(deadline, clock() + _DIAGNOSIS), clock) from None
    except Refused as error:
        raise StoreNotAppliedError(f"{at}: the gateway could not even tell its type ({error}); see its log") from error
    except OutOfStep as error:
        raise StoreUnusableError(
            f"{at} is a Thrift server but not HBase's Thrift2 gateway, or one of an HBase before 2.2 ({error})"
        ) from error
    except Exception as error:
        raise StoreUnusableError(f"{at} is {_speaker(connection.wire.head)}; start `hbase thrift2 start`") from error
    if reply.success == THRIFT1:
        raise StoreUnusableError(
            f"{at} is HBase's Thrift1 gateway, but hbasemk needs Thrift2: start `hbase thrift2 start` and give its port"
        )
    if reply.success != THRIFT2:
        raise StoreUnusableError(f"{at} is a gateway of an unknown type ({reply.success}); hbasemk needs Thrift2")


def _speaker(head: bytes) -> str:
    """Who begins to speak like this."""
    if head.startswith(b"HTTP/"):
        return "an HTTP server (or a gateway with hbase.regionserver.thrift.http on, which hbasemk does not speak)"
    if head[:2] in {b"\x15\x03", b"\x16\x03"}:
        return "a TLS server, and hbasemk speaks to gateways without TLS only"
    if head[:1] == b"\x82":
        return "a gateway with the compact protocol; turn hbase.regionserver.thrift.compact off"
    return f"not a Thrift server: its answer begins with {head[:24]!r}"


def _diagnose(host: str, port: int, at: str, deadline: float, clock: Callable[[], float]) -> StoreError:
    """Why somebody accepted a connection and closed it when greeted."""
    if _ask(host, port, b"", min(deadline, clock() + _UNASKED), clock) == b"":
        return StoreNotAppliedError(
            f"{at} closes new connections at once: it has as many as it can serve "
            "(hbase.thrift.maxWorkerThreads and the queue behind them), or is being stopped"
        )
    for setting, greeting, answer in (
        ("hbase.regionserver.thrift.framed", _framed(_BINARY), b"\x80\x01"),
        ("hbase.regionserver.thrift.compact", _COMPACT, b"\x82"),
        ("hbase.regionserver.thrift.framed and compact", _framed(_COMPACT), b"\x82"),
    ):
        heard = _ask(host, port, greeting, deadline, clock) or b""
        framed = greeting[:1] == b"\0"
        if heard[4 if framed else 0 :].startswith(answer):
            return StoreUnusableError(
                f"{at} is a Thrift gateway that runs with {setting} on, which hbasemk does not speak; turn it off"
            )
    # A gateway that is just being killed, behind a proxy that is not, looks the same as somebody else who says nothing.
    return StoreNotAppliedError(
        f"{at} closed the connection when it was greeted: it is being stopped or started, or it is no HBase Thrift2 gateway"
    )


def _framed(greeting: bytes) -> bytes:
    return len(greeting).to_bytes(4, "big") + greeting


def _ask(host: str, port: int, greeting: bytes, deadline: float, clock: Callable[[], float]) -> bytes | None:
    """The beginning of the answer on a connection of its own: b"" if there was none but the end, None in silence."""
    heard = b""
    with contextlib.suppress(TimeoutError):
        try:
            with socket.create_connection((host, port), max(0.001, deadline - clock())) as sock:
                sock.sendall(greeting)
                while len(heard) < 6:
                    sock.settimeout(max(0.001, deadline - clock()))
                    more = sock.recv(64)
                    if not more:
                        return heard
                    heard += more
                return heard
        except ConnectionError:
            return heard
    return heard or None

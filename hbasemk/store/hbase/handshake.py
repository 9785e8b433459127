"""Open a connection and verify that the server is a Thrift2 gateway.

The first call on each connection requests the gateway's type. The answer distinguishes Thrift1, Thrift2 and other
servers. Nothing is sent before this call, so a failure up to then means "not applied".
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable
from typing import Final

from hbasemk.errors import StoreError, StoreNotAppliedError, StoreUnusableError
from hbasemk.store.hbase.address import Address
from hbasemk.store.hbase.connection import Connection, Rejected, UnexpectedAnswer, Wire
from hbasemk.store.hbase.gateway import SERVER_TYPE, THRIFT1, THRIFT2

_NAME: Final = SERVER_TYPE.name.encode()
_BINARY: Final = b"\x80\x01\x00\x01" + len(_NAME).to_bytes(4, "big") + _NAME + b"\0\0\0\1" + b"\0"
_COMPACT: Final = b"\x82\x21\x01" + bytes([len(_NAME)]) + _NAME + b"\0"
_SILENT_SECONDS: Final = 0.3
_DIAGNOSIS_SECONDS: Final = 2.0


def open_connection(
    address: Address, deadline: float, clock: Callable[[], float], register: Callable[[Wire], None]
) -> Connection:
    """Open a connection to a Thrift2 gateway and verify its type; ``register`` receives the wire before any call.

    Raises StoreNotAppliedError if a later attempt may succeed, StoreUnusableError if the address is wrong.
    """
    at = f"HBase gateway at {address}"
    left = deadline - clock()
    if left <= 0:
        raise StoreNotAppliedError(f"{at}: the deadline passed before connecting; nothing was sent")
    try:
        sock = socket.create_connection(address, left)
    except TimeoutError:
        raise StoreNotAppliedError(
            f"{at}: no connection within {left:.3g} s; check the address and firewalls"
        ) from None
    except OSError as error:
        raise StoreNotAppliedError(
            f"{at} cannot be reached ({error}); check that `hbase thrift2 start` runs there"
        ) from error
    wire = Wire(sock, clock)
    try:
        register(wire)
        connection = Connection(wire, clock())
        _verify_type(connection, address, deadline, clock)
    except BaseException:
        wire.close()
        raise
    return connection


def _verify_type(connection: Connection, address: Address, deadline: float, clock: Callable[[], float]) -> None:
    at = f"HBase gateway at {address}"
    begun = clock()
    try:
        reply = connection.call(SERVER_TYPE, SERVER_TYPE.request(), deadline)
    except TimeoutError:
        raise StoreNotAppliedError(
            f"{at}: connected, but there was no answer within {clock() - begun:.3g} s: all workers of the gateway are "
            "busy, or this is not a Thrift server"
        ) from None
    except (OSError, EOFError):
        raise _diagnose(address, at, min(deadline, clock() + _DIAGNOSIS_SECONDS), clock) from None
    except Rejected as error:
        raise StoreNotAppliedError(f"{at}: the gateway failed to return its type ({error}); see its log") from error
    except UnexpectedAnswer as error:
        raise StoreUnusableError(
            f"{at} is a Thrift server but not HBase's Thrift2 gateway, or the gateway of an HBase before 2.2 ({error})"
        ) from error
    except Exception as error:
        raise StoreUnusableError(
            f"{at} is {_describe_server(connection.wire.head)}; start `hbase thrift2 start`"
        ) from error
    if reply.success == THRIFT1:
        raise StoreUnusableError(
            f"{at} is HBase's Thrift1 gateway, but hbasemk needs Thrift2: run `hbase thrift2 start` and use its port"
        )
    if reply.success != THRIFT2:
        raise StoreUnusableError(f"{at} is a gateway of unknown type ({reply.success}); hbasemk needs Thrift2")


def _describe_server(head: bytes) -> str:
    """Describe the server whose answer begins with these bytes."""
    if head.startswith(b"HTTP/"):
        return "an HTTP server (or a gateway with hbase.regionserver.thrift.http on, which hbasemk does not support)"
    if head[:2] in {b"\x15\x03", b"\x16\x03"}:
        return "a TLS server; hbasemk supports only gateways without TLS"
    if head[:1] == b"\x82":
        return "a gateway with the compact protocol; turn hbase.regionserver.thrift.compact off"
    return f"not a Thrift server: its answer begins with {head[:24]!r}"


def _diagnose(address: Address, at: str, deadline: float, clock: Callable[[], float]) -> StoreError:
    """Find out why a server accepted a connection and closed it during the handshake."""
    if _probe(address, b"", min(deadline, clock() + _SILENT_SECONDS), clock) == b"":
        return StoreNotAppliedError(
            f"{at} closes new connections at once: it serves as many as it can "
            "(hbase.thrift.maxWorkerThreads and the queue behind them), or is being stopped"
        )
    for setting, request, expected in (
        ("hbase.regionserver.thrift.framed", _framed(_BINARY), b"\x80\x01"),
        ("hbase.regionserver.thrift.compact", _COMPACT, b"\x82"),
        ("hbase.regionserver.thrift.framed and compact", _framed(_COMPACT), b"\x82"),
    ):
        received = _probe(address, request, deadline, clock) or b""
        framed = request[:1] == b"\0"
        if received[4 if framed else 0 :].startswith(expected):
            return StoreUnusableError(
                f"{at} is a Thrift gateway with {setting} on, which hbasemk does not support; turn it off"
            )
    # A gateway that is being killed behind a live proxy looks the same as another silent server.
    return StoreNotAppliedError(
        f"{at} closed the connection during the handshake: it is being stopped or started, or it is not an HBase "
        "Thrift2 gateway"
    )


def _framed(request: bytes) -> bytes:
    return len(request).to_bytes(4, "big") + request


def _probe(address: Address, request: bytes, deadline: float, clock: Callable[[], float]) -> bytes | None:
    """Send a request on its own connection; return the first bytes of the answer, b"" for a close, None for silence."""
    received = b""
    with contextlib.suppress(TimeoutError):
        try:
            with socket.create_connection(address, max(0.001, deadline - clock())) as sock:
                sock.sendall(request)
                while len(received) < 6:
                    sock.settimeout(max(0.001, deadline - clock()))
                    more = sock.recv(64)
                    if not more:
                        return received
                    received += more
                return received
        except ConnectionError:
            return received
    return received or None

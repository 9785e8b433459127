"""Open a connection and verify that the server is a Thrift2 gateway.

The first call on each connection requests the gateway's type. The answer distinguishes Thrift1, Thrift2 and other
servers. Nothing is sent before this call, so a failure up to then means "not applied".
"""

from __future__ import annotations

import contextlib
import errno
import socket
import ssl
from collections.abc import Callable
from http import HTTPStatus
from typing import Final

from hbasemk.errors import StoreError, StoreNotAppliedError, StoreUnusableError
from hbasemk.store.hbase.address import Address
from hbasemk.store.hbase.connection import Connection, Rejected
from hbasemk.store.hbase.errors import is_foreign
from hbasemk.store.hbase.gateway import SERVER_TYPE, THRIFT1, THRIFT2
from hbasemk.store.hbase.host_names import UnresolvedInTime, hosts_of
from hbasemk.store.hbase.transport import Transport
from hbasemk.store.hbase.wire import HttpStatus, UnexpectedAnswer, Wire

_NAME: Final = SERVER_TYPE.name.encode()
_BINARY: Final = b"\x80\x01\x00\x01" + len(_NAME).to_bytes(4, "big") + _NAME + b"\0\0\0\1" + b"\0"
_COMPACT: Final = b"\x82\x21\x01" + bytes([len(_NAME)]) + _NAME + b"\0"
_SILENT_SECONDS: Final = 0.3
_DIAGNOSIS_SECONDS: Final = 2.0
_SERVER_FAILED: Final = 500


def _framed(request: bytes) -> bytes:
    return len(request).to_bytes(4, "big") + request


def open_connection(
    address: Address,
    transport: Transport,
    deadline: float,
    clock: Callable[[], float],
    register: Callable[[Wire], None],
) -> Connection:
    """Open a connection to a Thrift2 gateway and verify its type; ``register`` receives each wire before any call.

    An HTTP server may close the connection after this first call. Then the returned connection is a second one.

    Raises StoreNotAppliedError if a later attempt may succeed, StoreUnusableError if the address is wrong.
    """
    connection = _open(address, transport, deadline, clock, register)
    try:
        _verify_type(connection, address, transport, deadline, clock)
    except BaseException:
        connection.wire.close()
        raise
    if not connection.wire.ended:
        return connection
    verified = connection.calls
    connection.wire.close()
    connection = _open(address, transport, deadline, clock, register)
    connection.calls = verified
    return connection


def _open(
    address: Address,
    transport: Transport,
    deadline: float,
    clock: Callable[[], float],
    register: Callable[[Wire], None],
) -> Connection:
    """Open a connection, which has made no call; raises as :func:`open_connection`."""
    at = f"HBase gateway at {address}"
    left = deadline - clock()
    if left <= 0:
        raise StoreNotAppliedError(f"{at}: the deadline passed before connecting; nothing was sent")
    try:
        sock = _connect(address, deadline, clock)
    except UnresolvedInTime:
        raise StoreNotAppliedError(
            f"{at}: the host name was not resolved within {left:.3g} s; check the name, and the name servers of this machine"
        ) from None
    except socket.gaierror as error:
        raise StoreNotAppliedError(
            f"{at}: the host name cannot be resolved ({error}); check the name, and the name servers of this machine"
        ) from error
    except TimeoutError:
        raise StoreNotAppliedError(
            f"{at}: no connection within {left:.3g} s; check the address and firewalls"
        ) from None
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise StoreNotAppliedError(
                f"no connection to {at} can be opened, because too many files are open; close some, or raise the limit "
                "(ulimit -n)"
            ) from error
        raise StoreNotAppliedError(
            f"{at} cannot be reached ({error}); check that `hbase thrift2 start` runs there"
        ) from error
    try:
        wire = _wire(sock, address, transport, deadline, clock)
    except BaseException:
        sock.close()
        raise
    try:
        register(wire)
        return Connection(wire, clock(), transport)
    except BaseException:
        wire.close()
        raise


def _connect(address: Address, deadline: float, clock: Callable[[], float]) -> socket.socket:
    """Connect to the first address of a host that answers; each gets an equal share of the time that is left.

    Raises OSError, of which TimeoutError is one, from the last address, and the errors of :func:`hosts_of`.
    """
    hosts = hosts_of(address, deadline, clock)
    while True:
        share = max(0.001, (deadline - clock()) / len(hosts))
        try:
            return socket.create_connection((hosts.pop(0), address.port), share)
        except OSError:
            if not hosts:
                raise


def _wire(
    sock: socket.socket, address: Address, transport: Transport, deadline: float, clock: Callable[[], float]
) -> Wire:
    """Return a wire on a new socket, after the handshake of TLS if there is one."""
    at = f"HBase gateway at {address}"
    begun = clock()
    sock.settimeout(max(0.001, deadline - begun))
    try:
        return transport.wire(sock, address, clock)
    except TimeoutError:
        raise StoreNotAppliedError(
            f"{at}: connected, but TLS was not established within {clock() - begun:.3g} s: the gateway is busy, or it does "
            "not use TLS (tls=no)"
        ) from None
    except ssl.SSLError as error:
        raise _tls_error(error, at, transport) from error
    except OSError as error:
        raise StoreNotAppliedError(
            f"{at} closed the connection before TLS was established ({error}): it is being stopped or started, or it does "
            "not use TLS (tls=no)"
        ) from error


def _tls_error(error: ssl.SSLError, at: str, transport: Transport) -> StoreError:
    """Translate a failure of TLS; what a later attempt may solve is only the end of a connection."""
    reason = error.reason or str(error)
    if isinstance(error, ssl.SSLCertVerificationError):
        return StoreUnusableError(
            f"{at} has a certificate that cannot be trusted ({error.verify_message}); ca_file must name the file with the "
            "certificate of its authority, and the URL a host name in the certificate"
        )
    if isinstance(error, (ssl.SSLEOFError, ssl.SSLSyscallError, ssl.SSLZeroReturnError)):
        return StoreNotAppliedError(
            f"{at} closed the connection in the handshake of TLS: it is being stopped or started, or it does not use TLS "
            "(tls=no), or it requires another client certificate (cert_file)"
        )
    if "CERTIFICATE_REQUIRED" in reason or ("HANDSHAKE_FAILURE" in reason and not transport.has_certificate):
        return StoreUnusableError(
            f"{at} requires a client certificate ({reason}); name its file in cert_file, and its key in key_file"
        )
    if "ALERT" in reason and transport.has_certificate:
        return StoreUnusableError(f"{at} rejected the client certificate in cert_file ({reason})")
    return StoreUnusableError(f"{at} cannot be used with TLS ({reason}); does it use TLS at all (tls=yes)?")


def _verify_type(
    connection: Connection, address: Address, transport: Transport, deadline: float, clock: Callable[[], float]
) -> None:
    at = f"HBase gateway at {address}"
    begun = clock()
    try:
        reply = connection.call(SERVER_TYPE, SERVER_TYPE.request(), deadline)
    except TimeoutError:
        raise StoreNotAppliedError(
            f"{at}: connected, but there was no answer within {clock() - begun:.3g} s: all workers of the gateway are "
            f"busy, or this is not a Thrift server with {transport}"
        ) from None
    except ssl.SSLError as error:
        raise _tls_error(error, at, transport) from error
    except (OSError, EOFError):
        if connection.wire.was_shut_down:
            raise StoreNotAppliedError(f"{at}: the store was closed during the handshake; nothing was sent") from None
        if _is_foreign(connection.wire.head):
            raise StoreUnusableError(f"{at} is {_describe_server(connection.wire.head)}") from None
        raise _diagnose(address, transport, at, min(deadline, clock() + _DIAGNOSIS_SECONDS), clock) from None
    except Rejected as error:
        raise StoreNotAppliedError(f"{at}: the gateway failed to return its type ({error}); see its log") from error
    except HttpStatus as error:
        raise _http_error(error, at) from error
    except UnexpectedAnswer as error:
        raise StoreUnusableError(
            f"{at} is a Thrift server but not HBase's Thrift2 gateway, or the gateway of an HBase before 2.2 ({error})"
        ) from error
    except Exception as error:
        if is_foreign(error):
            raise
        raise StoreUnusableError(f"{at} is {_describe_server(connection.wire.head)}") from error
    if reply.success == THRIFT1:
        raise StoreUnusableError(
            f"{at} is HBase's Thrift1 gateway, but hbasemk needs Thrift2: run `hbase thrift2 start` and use its port"
        )
    if reply.success != THRIFT2:
        raise StoreUnusableError(f"{at} is a gateway of unknown type ({reply.success}); hbasemk needs Thrift2")


def _http_error(error: HttpStatus, at: str) -> StoreError:
    if error.status >= _SERVER_FAILED:
        return StoreNotAppliedError(f"{at} answered with {error}; see its log, or that of the proxy in front of it")
    if error.status == HTTPStatus.UNAUTHORIZED:
        return StoreUnusableError(f"{at} requires a login ({error}), which hbasemk does not support")
    return StoreUnusableError(f"{at} answered with {error}; is it HBase's Thrift2 gateway, and is the path right?")


def _is_foreign(head: bytes) -> bool:
    """Return whether an answer that begins with these bytes is not one of the Thrift protocols."""
    return head.startswith(b"HTTP/") or head[:2] in {b"\x15\x03", b"\x16\x03"}


def _describe_server(head: bytes) -> str:
    """Describe the server whose answer begins with these bytes, and say what to do."""
    if head.startswith(b"HTTP/"):
        return (
            "an HTTP server; if the gateway has hbase.regionserver.thrift.http on, write transport=http in the URL; else start "
            "`hbase thrift2 start` and use its port"
        )
    if head[:2] in {b"\x15\x03", b"\x16\x03"}:
        advice = "write tls=yes in the URL, and transport=http if the gateway has hbase.thrift.ssl.enabled on"
        is_a = "a TLS server"
    elif head[:1] == b"\x82":
        is_a, advice = "a Thrift server with the compact protocol", "write protocol=compact in the URL"
    elif head[:2] == b"\x80\x01":
        is_a, advice = "a Thrift server with the binary protocol", "write protocol=binary in the URL"
    else:
        return f"not a Thrift server: its answer begins with {head[:24]!r}; start `hbase thrift2 start`"
    return f"{is_a}; {advice}; or start `hbase thrift2 start` without these settings"


_SPOKEN: Final = (
    ("buffered", "binary", "hbase.regionserver.thrift.framed and compact off", _BINARY, b"\x80\x01"),
    ("framed", "binary", "hbase.regionserver.thrift.framed on", _framed(_BINARY), b"\x80\x01"),
    ("buffered", "compact", "hbase.regionserver.thrift.compact on", _COMPACT, b"\x82"),
    ("framed", "compact", "hbase.regionserver.thrift.framed and compact on", _framed(_COMPACT), b"\x82"),
)


def _diagnose(
    address: Address, transport: Transport, at: str, deadline: float, clock: Callable[[], float]
) -> StoreError:
    """Find out why a server accepted a connection and closed it during the handshake."""
    if transport.tls:
        return StoreNotAppliedError(
            f"{at} closed the connection during the handshake: it is being stopped or started, or it is not an HBase Thrift2 "
            f"gateway with {transport}, or it requires another client certificate (cert_file)"
        )
    if _probe(address, b"", min(deadline, clock() + _SILENT_SECONDS), clock) == b"":
        return StoreNotAppliedError(
            f"{at} closes new connections at once: it serves as many as it can "
            "(hbase.thrift.maxWorkerThreads and the queue behind them), or is being stopped"
        )
    for framing, protocol, setting, request, expected in _SPOKEN:
        if (framing, protocol) == (transport.framing, transport.protocol):
            continue
        received = _probe(address, request, deadline, clock) or b""
        if received[4 if framing == "framed" else 0 :].startswith(expected):
            return StoreUnusableError(
                f"{at} is a Thrift gateway with {setting}; write transport={framing}&protocol={protocol} in the URL"
            )
    # A gateway that is being killed behind a live proxy looks the same as another silent server.
    return StoreNotAppliedError(
        f"{at} closed the connection during the handshake: it is being stopped or started, or it is not an HBase "
        "Thrift2 gateway"
    )


def _probe(address: Address, request: bytes, deadline: float, clock: Callable[[], float]) -> bytes | None:
    """Send a request on its own connection; return the first bytes of the answer, b"" for a close, None for nothing."""
    received = b""
    with contextlib.suppress(OSError):
        try:
            with _connect(address, deadline, clock) as sock:
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

"""How messages travel to a gateway: framing, protocol, TLS and HTTP. The gateway's settings determine all of them.

HBase's own gateways use TLS with HTTP only. With the other framings, a proxy in front of the gateway ends TLS.
"""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Callable
from typing import Any, Final, Literal, NoReturn, get_args

from thriftpy2.protocol import TCyBinaryProtocol
from thriftpy2.protocol.compact import TCompactProtocol
from thriftpy2.transport import TCyBufferedTransport, TCyFramedTransport

from hbasemk import options
from hbasemk.errors import InvalidValueError, LimitError
from hbasemk.format.limits import shown
from hbasemk.store.hbase.address import Address
from hbasemk.store.hbase.wire import BUFFER, Wire

Framing = Literal["buffered", "framed", "http"]
Protocol = Literal["binary", "compact"]

MAX_FRAME_MB: Final = 2
"""The default of HBase's setting hbase.regionserver.thrift.framed.max_frame_size_in_mb."""
_MB: Final = 1024 * 1024
_PATH: Final = re.compile("/[!-~]*")


class FramedWire(Wire):
    """A wire that refuses a request which the gateway would not accept as one frame."""

    __slots__ = ("_limit",)

    def __init__(self, sock: socket.socket, clock: Callable[[], float], limit: int) -> None:
        super().__init__(sock, clock)
        self._limit = limit

    def write(self, data: bytes) -> None:
        """Send a whole frame: its length in four bytes, and the message."""
        if len(data) - 4 > self._limit:
            raise LimitError(
                f"a request of {len(data) - 4} bytes exceeds the gateway's limit of {self._limit} bytes for a frame; nothing "
                "was sent. Raise the gateway's hbase.regionserver.thrift.framed.max_frame_size_in_mb, and max_frame_mb in "
                "the URL to the same number"
            )
        super().write(data)


class Transport:
    """How messages travel to a gateway.

    ``framing`` is ``buffered``, ``framed`` or ``http``, and ``protocol`` is ``binary`` or ``compact``. With ``tls`` the
    gateway must have a certificate for its host name, of an authority in ``ca_file`` (None: of one that the system trusts).
    ``cert_file`` and ``key_file`` identify this client; the key may be in ``cert_file``. All files are in PEM format.
    ``path`` is the path of HTTP requests. ``max_frame_mb`` is the gateway's limit for a frame, in MiB (None: 2).

    Raises InvalidValueError for values that do not fit together, a path that HTTP does not allow, and files that cannot be used.
    """

    def __init__(
        self,
        framing: Framing = "buffered",
        protocol: Protocol = "binary",
        *,
        tls: bool = False,
        ca_file: str | None = None,
        cert_file: str | None = None,
        key_file: str | None = None,
        path: str = "/",
        max_frame_mb: int | None = None,
    ) -> None:
        _one_of("transport", framing, get_args(Framing))
        _one_of("protocol", protocol, get_args(Protocol))
        if framing == "http" and protocol != "binary":
            raise InvalidValueError("transport=http needs protocol=binary: HBase's HTTP gateway has no other protocol")
        if framing != "http" and path != "/":
            raise InvalidValueError(f"the path {shown(path)} needs transport=http")
        if not _PATH.fullmatch(path):
            raise InvalidValueError(
                f"the path {shown(path)} is not the path of HTTP requests; expected '/' and printable ASCII characters without "
                "spaces. Write other characters as in a browser's URL, for example %20 for a space"
            )
        if framing != "framed" and max_frame_mb is not None:
            raise InvalidValueError(f"max_frame_mb={max_frame_mb} needs transport=framed")
        for name, file in {"ca_file": ca_file, "cert_file": cert_file, "key_file": key_file}.items():
            if file is not None and not tls:
                raise InvalidValueError(f"{name} needs tls=yes")
        self.framing = framing
        self.protocol = protocol
        self.path = path
        most = MAX_FRAME_MB if max_frame_mb is None else options.count("max_frame_mb", max_frame_mb, least=1)
        self.frame_limit = most * _MB
        self.has_certificate = cert_file is not None
        self._context = _context(ca_file, cert_file, key_file) if tls else None

    @property
    def tls(self) -> bool:
        """Whether connections use TLS."""
        return self._context is not None

    def __str__(self) -> str:
        """Return the parameters of a URL, without the names of files."""
        return f"transport={self.framing}, protocol={self.protocol}, tls={'yes' if self.tls else 'no'}"

    def wire(self, sock: socket.socket, address: Address, clock: Callable[[], float]) -> Wire:
        """Return a wire on a socket, which it then owns.

        With TLS this makes its handshake, within the socket's timeout. Raises OSError, of which ssl.SSLError is one.
        """
        if self._context is not None:
            sock = self._context.wrap_socket(sock, server_hostname=address.host)
        if self.framing == "http":
            # Most processes need no HTTP client.
            from hbasemk.store.hbase.http_wire import HttpWire

            return HttpWire(sock, clock, address, self.path)
        if self.framing == "framed":
            return FramedWire(sock, clock, self.frame_limit)
        return Wire(sock, clock)

    def on(self, wire: Wire) -> tuple[Any, Any]:
        """Return thriftpy2's transport and protocol on a wire."""
        transport = (TCyFramedTransport if self.framing == "framed" else TCyBufferedTransport)(wire, BUFFER)
        if self.protocol == "compact":
            # It decodes texts only, which are names of methods and messages of errors; all values are binary.
            return transport, TCompactProtocol(transport)
        return transport, TCyBinaryProtocol(transport, decode_response=False)


def _one_of(name: str, value: str, possible: tuple[str, ...]) -> None:
    if value not in possible:
        raise InvalidValueError(f"{name} must be one of {', '.join(possible)}, got {shown(value)}")


def _context(ca_file: str | None, cert_file: str | None, key_file: str | None) -> ssl.SSLContext:
    """Return a context that verifies the certificate and host name of the gateway."""
    if key_file is not None and cert_file is None:
        raise InvalidValueError("key_file needs cert_file, which names the certificate of the key")
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise InvalidValueError(
            f"ca_file {shown(ca_file)} cannot be used ({_reason(error)}); it must contain certificates in PEM format"
        ) from None
    if cert_file is not None:
        try:
            context.load_cert_chain(cert_file, key_file, _refuse_password)
        except OSError as error:
            raise InvalidValueError(
                f"cert_file {shown(cert_file)} and key_file {shown(key_file)} cannot be used ({_reason(error)}); they must "
                "contain a certificate and its private key in PEM format"
            ) from None
    return context


def _reason(error: OSError) -> str:
    return (isinstance(error, ssl.SSLError) and error.reason) or error.strerror or str(error)


def _refuse_password() -> NoReturn:
    raise InvalidValueError(
        "the private key is encrypted; store it in a file without a password that only its user can read"
    )

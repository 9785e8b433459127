"""One connection to a gateway: a socket with a deadline, and calls in sequence.

One thread uses a connection at a time. If :meth:`Connection.call` raises an exception other than ``Rejected``, the
caller must drop the connection: an answer may still arrive, and the next call would mistake it for its own.
"""

from __future__ import annotations

from typing import Any, Final

from thriftpy2.thrift import TApplicationException, TMessageType

from hbasemk.store.hbase.gateway import Method
from hbasemk.store.hbase.transport import Transport
from hbasemk.store.hbase.wire import UnexpectedAnswer, Wire

LARGE: Final = 4 * 1024 * 1024
_MAX_NUMBER: Final = 2**31 - 1


def text_of(message: Any) -> str:
    """Return the text of a message field, which holds a text, undecoded bytes or None."""
    return message if isinstance(message, str) else bytes(message or b"").decode(errors="replace")


class Rejected(Exception):
    """The gateway answered that it could not process the call; the connection remains usable."""


class Connection:
    """Calls on one wire; ``used`` is the time when the last call ended, ``calls`` their number with the handshake."""

    __slots__ = ("_number", "_protocol", "_transport", "calls", "sent", "used", "wire")

    def __init__(self, wire: Wire, used: float, transport: Transport) -> None:
        self.wire = wire
        self.used = used
        self.calls = 0
        self.sent = False
        self._number = 0
        self._transport, self._protocol = transport.on(wire)

    @property
    def bloated(self) -> bool:
        """Whether the last call was so large that its buffers should be released."""
        return self.wire.moved > LARGE

    def call(self, method: Method, request: Any, deadline: float) -> Any:
        """Send a request and return the reply.

        Afterwards ``sent`` is whether the whole request was handed to the system: if not, the gateway cannot have acted
        on it. Raises OSError (including TimeoutError), EOFError, Rejected, UnexpectedAnswer, and thriftpy2's exceptions
        for invalid values and answers.
        """
        protocol = self._protocol
        number = self._number = self._number + 1 if self._number < _MAX_NUMBER else 1
        self.sent = False
        self.wire.start(deadline)
        protocol.write_message_begin(method.name, TMessageType.CALL, number)
        protocol.write_struct(request)
        self._transport.flush()
        self.sent = True
        name, kind, answered = protocol.read_message_begin()
        if kind == TMessageType.EXCEPTION:
            failure = TApplicationException()
            protocol.read_struct(failure)
            text = text_of(failure.message) or f"type {failure.type}"
            if failure.type == TApplicationException.INTERNAL_ERROR and answered == number:
                self.calls += 1
                raise Rejected(text)
            raise UnexpectedAnswer(text)
        if answered != number or name != method.name:
            raise UnexpectedAnswer(f"the answer to {name} number {answered} came for {method.name} number {number}")
        reply = method.reply()
        protocol.read_struct(reply)
        self.calls += 1
        return reply

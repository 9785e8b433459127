"""One connection to a gateway: a socket with a deadline, and calls in sequence.

One thread uses a connection at a time. If a call raises an exception other than ``Rejected``, or not all requests have
their replies, the caller must drop the connection: an answer may still arrive, and the next call would mistake it for its
own.
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

    __slots__ = ("_answered", "_number", "_protocol", "_sent", "_transport", "calls", "used", "wire")

    def __init__(self, wire: Wire, used: float, transport: Transport) -> None:
        self.wire = wire
        self.used = used
        self.calls = 0
        self._sent = False
        self._number = 0
        self._answered = 0
        self._transport, self._protocol = transport.on(wire)

    @property
    def bloated(self) -> bool:
        """Whether the last call was so large that its buffers should be released."""
        return self.wire.moved > LARGE

    def call(self, method: Method, request: Any, deadline: float) -> Any:
        """Send a request and return the reply; see :meth:`send` and :meth:`receive`."""
        self.start(deadline)
        self.send(method, request)
        return self.receive(method)

    def start(self, deadline: float) -> None:
        """Begin one or more calls that must end by ``deadline``."""
        self._sent = False
        self.wire.start(deadline)

    @property
    def sent(self) -> bool:
        """Whether a whole request may have been handed to the system since :meth:`start`.

        If not, the gateway cannot have acted on any.
        """
        return self._sent or self.wire.sent_kept

    def send(self, method: Method, request: Any, *, more: bool = False) -> None:
        """Send a request. Its reply is read after the replies to all earlier requests.

        ``more``: another one follows at once, and this one is sent only together with that. Raises OSError, of which
        TimeoutError is one, LimitError for a request that exceeds a frame, and thriftpy2's exceptions for invalid values.
        """
        protocol = self._protocol
        self.wire.more = more
        number = self._number = self._number + 1 if self._number < _MAX_NUMBER else 1
        protocol.write_message_begin(method.name, TMessageType.CALL, number)
        protocol.write_struct(request)
        self._transport.flush()
        self._sent = not more

    def receive(self, method: Method) -> Any:
        """Return the reply to the oldest request that has none.

        Raises OSError (including TimeoutError), EOFError, Rejected, UnexpectedAnswer, and thriftpy2's exceptions for invalid
        answers.
        """
        protocol = self._protocol
        number = self._answered + 1 if self._answered < _MAX_NUMBER else 1
        name, kind, answered = protocol.read_message_begin()
        if kind == TMessageType.EXCEPTION:
            failure = TApplicationException()
            protocol.read_struct(failure)
            text = text_of(failure.message) or f"type {failure.type}"
            if failure.type == TApplicationException.INTERNAL_ERROR and answered == number:
                self._answered = number
                self.calls += 1
                raise Rejected(text)
            raise UnexpectedAnswer(text)
        if answered != number or name != method.name:
            raise UnexpectedAnswer(f"the answer to {name} number {answered} came for {method.name} number {number}")
        reply = method.reply()
        protocol.read_struct(reply)
        self._answered = number
        self.calls += 1
        return reply

    @property
    def is_answered(self) -> bool:
        """Whether every request has its reply, so that the next call can use the connection."""
        return self._answered == self._number

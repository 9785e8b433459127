"""From what thriftpy2 and HBase raise to the three kinds of store error, and whether a connection is still good.

HBase tells the class of its exception at the start of a message; the ``canRetry`` flag is not to be relied on. A
connection is kept after an answer, also if the answer is an error; after anything else it may be out of step.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from hbasemk.errors import StoreError, StoreNotAppliedError, StoreUnknownError, StoreUnusableError
from hbasemk.store.hbase.gateway import interface

_STARTING: Final = (
    "PleaseHoldException",
    "MasterNotRunningException",
    "ServerNotRunningYetException",
    "ConnectionLoss",
    "NoServerForRegionException",
    "master is initializing",
    "KeeperErrorCode",
)
_REFUSED: Final = (
    "AccessDeniedException",
    "UnknownProtocolException",
    "DoNotRetryIOException",
    "IllegalArgumentException",
)


class Trouble(NamedTuple):
    """A failed call: the error to raise, and whether its connection can be used again."""

    error: StoreError
    keep: bool


def diagnose(error: BaseException, place: str, table: str | None, *, writes: bool) -> Trouble | None:
    """What a failed call means; None for exceptions that are none of the gateway's."""
    from thriftpy2.protocol.cybin.cybin import ProtocolError
    from thriftpy2.thrift import TApplicationException, TException
    from thriftpy2.transport import TTransportException

    api = interface()
    where = f"HBase's gateway at {place}" + (f", table {table}" if table else "")
    if isinstance(error, (api.TIOError, api.TIllegalArgument)):
        return Trouble(_answered(str(error.message or ""), where, table, writes), True)
    if isinstance(error, TApplicationException):
        text = f"{where} answered with an error of its own ({error.message}); see its log"
        return Trouble(_uncertain(text, writes), error.type == TApplicationException.INTERNAL_ERROR)
    if isinstance(error, TimeoutError):
        return Trouble(_uncertain(f"{where} did not answer in time; it may be overloaded or hanging", writes), False)
    if isinstance(error, (TTransportException, OSError, EOFError)):
        return Trouble(_uncertain(f"the connection to {where} broke during a call ({error})", writes), False)
    if isinstance(error, (ProtocolError, TException, UnicodeDecodeError)):
        text = f"{where} answered with what is no Thrift binary protocol ({error}); check host, port and protocol"
        return Trouble(_uncertain(text, writes), False)
    return None


def _uncertain(text: str, writes: bool) -> StoreError:
    return StoreUnknownError(f"{text}; whether it was applied is unknown") if writes else StoreNotAppliedError(text)


def _answered(message: str, where: str, table: str | None, writes: bool) -> StoreError:
    first = message.splitlines()[0][:300] if message else "no message"
    if "TableNotFoundException" in message or (table is not None and message.strip() == table):
        return StoreUnusableError(f"{where}: there is no such table; create the repository first")
    if "NotEnabledException" in message or "is disabled" in message:
        return StoreUnusableError(f"{where}: the table is disabled; have an administrator enable it ({first})")
    if "NoSuchColumnFamilyException" in message:
        return StoreUnusableError(f"{where}: a column family is missing ({first})")
    if "FailedSanityCheckException" in message or "too far in the future" in message.lower():
        return StoreUnusableError(
            f"{where} refuses revision ids as timestamps ({first}); "
            "hbase.hregion.keyvalue.timestamp.slop.millisecs must not be set for these tables"
        )
    if any(sign in message for sign in _STARTING):
        return StoreNotAppliedError(f"{where}: HBase is not ready, it is starting or its master is away ({first})")
    if any(sign in message for sign in _REFUSED):
        return StoreUnusableError(f"{where} refused: {first}")
    return _uncertain(f"{where} failed: {first}", writes)


def unreachable(place: str, error: Any) -> StoreNotAppliedError:
    """No connection could be made."""
    return StoreNotAppliedError(
        f"no gateway can be reached at {place} ({error}); check that HBase's Thrift2 server runs there and that host and "
        "port are right"
    )


def wrong_gateway(place: str, found: str) -> StoreUnusableError:
    """Something else answers."""
    return StoreUnusableError(
        f"{place} is {found}, but hbasemk needs HBase's Thrift2 gateway (`hbase thrift2 start`) with the binary protocol "
        "and no framing"
    )

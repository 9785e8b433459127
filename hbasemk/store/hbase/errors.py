"""Translate failures of HBase and of the connection into the three kinds of store errors.

"Not applied" is claimed only if the gateway cannot have acted: the call changes nothing, or the request was not sent
completely. "Unusable" is claimed only for a state that lasts until somebody changes the tables, the rights or the
address; and for a call that changes something only if no attempt of HBase's own client can have been applied.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from hbasemk.errors import StoreError, StoreNotAppliedError, StoreUnknownError, StoreUnusableError

SLOP_SETTING: Final = "hbase.hregion.keyvalue.timestamp.slop.millisecs"

_CLASS: Final = re.compile(r"[.$](\w+(?:Exception|Error))\b")
_ANY_CLASS: Final = re.compile(r"\b(\w+(?:Exception|Error))\b")
_STACK: Final = re.compile(r"^(?:\s+at |Caused by: |\s*\.\.\. \d+ more).*$", re.MULTILINE)
_WRAPPERS: Final = frozenset(
    {
        "ExecutionException",
        "RemoteException",
        "RemoteWithExtrasException",
        "RetriesExhaustedException",
        "RetriesExhaustedWithDetailsException",
        "ServiceException",
    }
)
"""Exceptions that say nothing themselves: they carry those of the attempts or of the server."""
_NO_TABLE_IN_BATCH: Final = re.compile(r"Failed \d+ actions?: ([^\s,]+): \d+ times?,")
_SHOWN: Final = 300

_NO_TABLE: Final = "create the tables first (hbasemk init), or check the prefix"
_UNUSABLE: Final = {
    "TableNotFoundException": _NO_TABLE,
    "TableNotEnabledException": "enable the table in HBase's shell",
    "NoSuchColumnFamilyException": "this version of hbasemk did not create these tables; use another prefix",
    "NamespaceNotFoundException": "create the namespace in HBase's shell, or use a prefix without one",
    "AccessDeniedException": "ask HBase's administrator to grant the gateway's user this right",
    "FailedSanityCheckException": f"HBase rejects revision ids as timestamps if {SLOP_SETTING} is set; remove the setting",
}
_STARTING: Final = frozenset(
    {"PleaseHoldException", "MasterNotRunningException", "ServerNotRunningYetException", "MasterNotFoundException"}
)


_CLIENT: Final = frozenset({"codecs", "email", "encodings", "hbasemk", "http", "socket", "ssl", "thriftpy2"})
"""The packages whose code runs in a call of a gateway."""


def is_foreign(error: Exception) -> bool:
    """Return whether an exception that was caught in a call of a gateway comes from other code, such as a signal handler.

    A garbled answer can raise nearly any exception in the code that decodes it, so its type does not show this. But OSError
    and EOFError count as failures of the network wherever they come from.
    """
    if isinstance(error, (OSError, EOFError)):
        return False
    trace = error.__traceback__
    while trace is not None:
        if str(trace.tb_frame.f_globals.get("__name__")).partition(".")[0] not in _CLIENT:
            return True
        trace = trace.tb_next
    return False


def _short(text: str) -> str:
    """Return the first line of HBase's message, which may hold a whole stack trace."""
    line = text.strip().split("\n", 1)[0].strip()
    return line if len(line) <= _SHOWN else line[:_SHOWN] + "…"


def class_names(text: str) -> list[str]:
    """Return the simple names of the exceptions that a message of HBase mentions, in order."""
    return _CLASS.findall(text)


def _is_refused(text: str) -> bool:
    """Return whether HBase refused each attempt that its message names, so that none was applied.

    HBase's client repeats a call by itself, and its message then lists the exceptions of all attempts. An attempt without a
    reply may have been applied. Stack traces do not count. A batch names some exceptions without their package.
    """
    names = _ANY_CLASS.findall(_STACK.sub("", text))
    return all(name in _UNUSABLE or name in _WRAPPERS for name in names)


def from_hbase(text: str, where: str, table: str, effect: bool) -> StoreError:
    """Translate HBase's answer: its message begins with the name of an exception, or is just a table's name.

    ``effect`` is whether the call changes anything. Then the error is StoreUnusableError only if no attempt was applied.
    """
    missing = _NO_TABLE_IN_BATCH.match(text)
    is_refused = not effect or _is_refused(text)
    if table and (missing[1] if missing else text.strip()) in {table, table.removeprefix("default:")}:
        return _refusal(f"{where}: the table does not exist; {_NO_TABLE}", is_refused)
    if table and text.strip().startswith(f"{table.removeprefix('default:')} is disabled"):
        # HBase's client checks this only before it repeats a call, and does not tell how the first attempt ended.
        return _refusal(f"{where}: the table is disabled; {_UNUSABLE['TableNotEnabledException']}", not effect)
    names = class_names(text)
    for name in names:
        if name in _UNUSABLE:
            about = "" if name in _short(text) else f" {name}"
            return _refusal(f"{where}: {_short(text)}{about}; {_UNUSABLE[name]}", is_refused)
    if not _STARTING.isdisjoint(names):
        failure = f"{where}: HBase is starting, or currently has no master: {_short(text)}"
    else:
        failure = f"{where}: HBase failed: {_short(text)}"
    return _by_effect(failure, effect)


def _refusal(failure: str, is_refused: bool) -> StoreError:
    """Return the error for a state that lasts; ``is_refused`` is whether all attempts of HBase's client met it."""
    return StoreUnusableError(failure) if is_refused else _by_effect(failure, effect=True)


def from_gateway(text: str, where: str, effect: bool) -> StoreError:
    """Translate a failure of the gateway itself, which gives no further information."""
    return _by_effect(f"{where}: the gateway failed ({_short(text)}); see its log", effect)


def from_connection(error: Exception, where: str, *, effect: bool, sent: bool, seconds: float) -> StoreError:
    """Translate a failed connection, or a timeout after ``seconds``."""
    if isinstance(error, TimeoutError):
        failure = (
            f"{where}: no answer within {seconds:.3g} s; check that HBase is up and not just starting, that the table is "
            "enabled, and that the timeout is long enough"
        )
    elif isinstance(error, EOFError):
        failure = f"{where}: the gateway closed the connection before it answered; check whether it was stopped"
    else:
        failure = f"{where}: the connection failed ({error or type(error).__name__})"
    if not sent:
        return StoreNotAppliedError(failure + "; the request was not sent, so nothing was changed", cause=failure)
    return _by_effect(failure, effect)


def from_all(refusals: Sequence[StoreError]) -> StoreError:
    """Return the error of a call that no gateway took; it is final only if each refusal is."""
    if len(refusals) == 1:
        return refusals[0]
    kind = StoreUnusableError if all(isinstance(one, StoreUnusableError) for one in refusals) else StoreNotAppliedError
    return kind(f"none of the {len(refusals)} gateways took the call: {'; '.join(one.message for one in refusals)}")


def _by_effect(failure: str, effect: bool) -> StoreError:
    if effect:
        return StoreUnknownError(
            failure + "; the call may have been applied or not, so repeat only idempotent calls", cause=failure
        )
    return StoreNotAppliedError(failure + "; nothing was changed; retry the call", cause=failure)

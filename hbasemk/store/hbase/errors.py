"""What a failed call means: HBase's and the connection's failures as the three kinds of store errors.

Not applied is claimed only where the gateway cannot have acted: the call changes nothing, or the request never left
whole. Unusable is claimed only for what stays so until somebody changes the tables, the rights or the address.
"""

from __future__ import annotations

import re
from typing import Final

from hbasemk.errors import StoreError, StoreNotAppliedError, StoreUnknownError, StoreUnusableError

SLOP_SETTING: Final = "hbase.hregion.keyvalue.timestamp.slop.millisecs"

_CLASS: Final = re.compile(r"[.$](\w+(?:Exception|Error))\b")
_NO_TABLE_IN_BATCH: Final = re.compile(r"Failed \d+ actions?: ([^\s,]+): \d+ times?,")
_SHOWN: Final = 300

_NO_TABLE: Final = "create the tables first (hbasemk init), or look at the prefix"
_UNUSABLE: Final = {
    "TableNotFoundException": _NO_TABLE,
    "TableNotEnabledException": "enable the table in HBase's shell",
    "NoSuchColumnFamilyException": "these tables were not made by this version of hbasemk; use another prefix",
    "NamespaceNotFoundException": "create the namespace in HBase's shell, or use a prefix without one",
    "AccessDeniedException": "let HBase's administrator give the gateway's user the right to do this",
    "FailedSanityCheckException": f"HBase refuses revision ids as timestamps if {SLOP_SETTING} is set; remove the setting",
}
_STARTING: Final = frozenset(
    {"PleaseHoldException", "MasterNotRunningException", "ServerNotRunningYetException", "MasterNotFoundException"}
)


def _short(text: str) -> str:
    """The first line of what HBase says, which sends whole stack traces."""
    line = text.strip().split("\n", 1)[0].strip()
    return line if len(line) <= _SHOWN else line[:_SHOWN] + "…"


def class_names(text: str) -> list[str]:
    """The simple names of the exceptions that a message of HBase mentions, in their order."""
    return _CLASS.findall(text)


def by_hbase(text: str, where: str, table: str, effect: bool) -> StoreError:
    """What HBase itself answered: its message begins with the name of an exception, or is just a table's name."""
    missing = _NO_TABLE_IN_BATCH.match(text)
    if table and (missing[1] if missing else text.strip()) in {table, table.removeprefix("default:")}:
        return StoreUnusableError(f"{where}: there is no such table; {_NO_TABLE}")
    if table and text.strip().startswith(f"{table.removeprefix('default:')} is disabled"):
        return StoreUnusableError(f"{where}: the table is disabled; {_UNUSABLE['TableNotEnabledException']}")
    names = class_names(text)
    for name in names:
        if name in _UNUSABLE:
            return StoreUnusableError(f"{where}: {_short(text)}; {_UNUSABLE[name]}")
    if not _STARTING.isdisjoint(names):
        said = f"{where}: HBase is starting, or has no master at the moment: {_short(text)}"
    else:
        said = f"{where}: HBase could not do it: {_short(text)}"
    return _by_effect(said, effect)


def by_gateway(text: str, where: str, effect: bool) -> StoreError:
    """The gateway failed on the call by itself and says no more than that."""
    return _by_effect(f"{where}: the gateway failed ({_short(text)}); its log says why", effect)


def by_connection(error: Exception, where: str, *, effect: bool, sent: bool, seconds: float) -> StoreError:
    """The connection failed, or time was up, after so many seconds."""
    if isinstance(error, TimeoutError):
        said = (
            f"{where}: no answer within {seconds:.3g} s; is HBase behind the gateway up and not just starting, the table "
            "enabled, the timeout long enough?"
        )
    elif isinstance(error, EOFError):
        said = f"{where}: the gateway closed the connection before it answered; was it stopped?"
    else:
        said = f"{where}: the connection failed ({error or type(error).__name__})"
    if not sent:
        return StoreNotAppliedError(said + "; the request was not sent, so nothing happened", cause=said)
    return _by_effect(said, effect)


def _by_effect(said: str, effect: bool) -> StoreError:
    if effect:
        return StoreUnknownError(
            said + "; it may have been applied or not, so repeat only what does no harm twice", cause=said
        )
    return StoreNotAppliedError(said + "; nothing was changed, the call can be repeated", cause=said)

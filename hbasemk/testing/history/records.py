"""Records of the reads and writes of concurrent transactions, as JSON lines: the input of the history checker.

A history does not know about trees: its transactions read and write keys. Every write writes a unique value, so a
read identifies its writer. A later line of a file replaces an earlier line of the same transaction. So a process that
may be killed writes a line with the outcome "unknown" before it commits, and a line with the outcome afterwards.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, Union, get_args

Value: TypeAlias = Union[bool, int, float, str, tuple["Value", ...], None]  # noqa: UP007 - evaluated at run time on 3.10
"""The value of a key; None if the key is absent."""
Ending: TypeAlias = Literal["committed", "aborted", "unknown"]
SNAPSHOT: Final = "snapshot"
SERIALIZABLE: Final = "serializable"
NEVER: Final = ""
"""A placeholder for a version: no transaction had written the key yet."""


class HistoryError(ValueError):
    """A history that cannot be checked: it is damaged, or two transactions claim to have written the same value."""


@dataclass(frozen=True, slots=True)
class Read:
    """A read of a key. ``depended_on``: the commit guarantees that no other transaction changes the key concurrently.

    ``version`` is the revision that wrote the value. It is needed if the value does not identify the revision: the key
    is absent because that revision removed it, or (NEVER) because no transaction had written it yet.
    """

    key: str
    value: Value
    depended_on: bool = False
    version: str | None = None


@dataclass(frozen=True, slots=True)
class Write:
    """A write of a value to a key, or (None) its removal."""

    key: str
    value: Value


@dataclass(frozen=True, slots=True)
class Add:
    """An addition of an element to a set without reading it; reads of the set return a tuple of all elements."""

    key: str
    element: Value


Operation: TypeAlias = Union[Read, Write, Add]  # noqa: UP007
_KINDS: Final[dict[str, type[Read] | type[Write] | type[Add]]] = {"read": Read, "write": Write, "add": Add}


@dataclass(frozen=True, slots=True)
class Transaction:
    """One attempt at a transaction, with its operations in order.

    ``begun``, ``polled`` and ``ended`` are times of one clock for the whole history, in any unit: when the transaction
    took its snapshot, when its instance last polled for earlier commits (None: unknown), and when its end was known
    (None: never). ``ordered``: its snapshot was its instance's newest one. ``snapshot`` names the snapshot within its
    instance. ``revision`` is the created revision; revisions sort by length and then as text. All attempts at the same
    operation share ``call``. ``committing`` is when its commit began (None: unknown): its dependencies must still have
    held then.
    """

    id: str
    instance: str
    operations: tuple[Operation, ...]
    outcome: Ending
    begun: float
    ended: float | None = None
    polled: float | None = None
    snapshot: str | None = None
    revision: str | None = None
    isolation: str = SNAPSHOT
    ordered: bool = True
    call: str = ""
    committing: float | None = None

    def __post_init__(self) -> None:
        """Raise HistoryError for a field with a value that the checker would not understand."""
        for name, expected in _FIELDS.items():
            value = getattr(self, name)
            if not isinstance(value, expected):
                raise HistoryError(
                    f"{name} of a transaction must be {_shown(expected)}, got {value!r}; correct the record"
                )
        for name, allowed in (("outcome", get_args(Ending)), ("isolation", (SNAPSHOT, SERIALIZABLE))):
            value = getattr(self, name)
            if value not in allowed:
                raise HistoryError(
                    f"{name} of a transaction must be one of {allowed}, got {value!r}; correct the record"
                )
        for operation in self.operations:
            _require_comparable(operation)

    @property
    def writes(self) -> bool:
        """Whether the transaction writes anything."""
        return any(not isinstance(operation, Read) for operation in self.operations)

    def line(self) -> str:
        """Return the transaction as one line of JSON."""
        fields = asdict(self)
        fields["operations"] = [[_name(operation), asdict(operation)] for operation in self.operations]
        return json.dumps(fields, separators=(",", ":"))

    @classmethod
    def of_line(cls, line: str | bytes) -> Transaction:
        """Parse ``line``, the JSON text of one transaction; raises HistoryError."""
        try:
            fields = json.loads(line)
            pairs = fields.pop("operations")
            operations = tuple(
                _KINDS[kind](**{name: frozen(value) for name, value in of.items()}) for kind, of in pairs
            )
            return cls(operations=operations, **fields)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise HistoryError(
                f"the line is not a transaction of a history: {line[:100]!r} ({error!r}); expected JSON as save() writes it"
            ) from error


_NUMBER: Final = (int, float)
_OPTIONAL_NUMBER: Final = (int, float, type(None))
_OPTIONAL_TEXT: Final = (str, type(None))
_FIELDS: Final[dict[str, tuple[type, ...]]] = {
    "id": (str,),
    "instance": (str,),
    "begun": _NUMBER,
    "ended": _OPTIONAL_NUMBER,
    "polled": _OPTIONAL_NUMBER,
    "committing": _OPTIONAL_NUMBER,
    "snapshot": _OPTIONAL_TEXT,
    "revision": _OPTIONAL_TEXT,
    "ordered": (bool,),
    "call": (str,),
}


def _shown(types: tuple[type, ...]) -> str:
    return " or ".join("None" if one is type(None) else one.__name__ for one in types)


def _require_comparable(operation: Operation) -> None:
    if not isinstance(operation.key, str):
        raise HistoryError(f"the key of an operation must be str, got {operation.key!r}; correct the record")
    value = operation.element if isinstance(operation, Add) else operation.value
    try:
        hash(value)
    except TypeError as error:
        raise HistoryError(
            f"the value of {operation.key!r} must be text, a number, a bool, None or a tuple of them, got {value!r}; "
            "record an object as text"
        ) from error


def _name(operation: Operation) -> str:
    return type(operation).__name__.lower()


def frozen(value: Any) -> Any:
    """Return a value with tuples instead of lists, so that it can be a dictionary's key."""
    return tuple(frozen(part) for part in value) if isinstance(value, (list, tuple)) else value


def age(revision: str) -> tuple[int, str]:
    """Return a key that sorts revisions from old to new."""
    return len(revision), revision


class History(Sequence[Transaction]):
    """The transactions of all instances; the last record with an id counts."""

    def __init__(self, transactions: Iterable[Transaction]) -> None:
        self.by_id = {one.id: one for one in transactions}
        self._all = list(self.by_id.values())

    @classmethod
    def load(cls, files: Iterable[Path | str]) -> History:
        """Load all ``files`` of one history; ignore a last line that its process did not complete."""
        return cls(one for file in files for one in _lines(Path(file)))

    def save(self, file: Path | str) -> None:
        """Write the history to one ``file``, a path."""
        Path(file).write_text("".join(one.line() + "\n" for one in self))

    def replaced(self, **fields: dict[str, Any]) -> History:
        """Return the history with changed ``fields``: for each field, the new values by transaction id."""
        changed: dict[str, dict[str, Any]] = {}
        for name, values in fields.items():
            for id_, value in values.items():
                changed.setdefault(id_, {})[name] = value
        return History(replace(one, **changed[one.id]) if one.id in changed else one for one in self)

    def __len__(self) -> int:
        return len(self._all)

    def __getitem__(self, index: Any) -> Any:
        return self._all[index]

    def __iter__(self) -> Iterator[Transaction]:
        return iter(self._all)


def _lines(file: Path) -> Iterator[Transaction]:
    *whole, last = file.read_bytes().split(b"\n")
    if _is_json(last):
        whole.append(last)
    for line in whole:
        if line.strip():
            yield Transaction.of_line(line)


def _is_json(line: bytes) -> bool:
    """Return whether a line without its newline is complete."""
    try:
        json.loads(line)
    except ValueError:
        return False
    return True

"""Records of what concurrent transactions saw and did, as JSON lines: the input of the history checker.

A history knows nothing of trees: its transactions read and write keys. Every write writes a value that nobody else
writes, so that a read tells its writer. A later line of a file replaces an earlier one of the same transaction; so a
process that may be killed writes a line with the outcome "unknown" before it commits, and one with the outcome after.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, Union

Value: TypeAlias = Union[bool, int, float, str, tuple["Value", ...], None]  # noqa: UP007 - evaluated at run time on 3.10
"""What a key holds; None: nothing."""
Ending: TypeAlias = Literal["committed", "aborted", "unknown"]
SNAPSHOT: Final = "snapshot"
SERIALIZABLE: Final = "serializable"
NEVER: Final = ""
"""In place of a version: nobody had written it yet."""


class HistoryError(ValueError):
    """A history that cannot be judged: damaged, or two transactions claim to have written the same value."""


@dataclass(frozen=True, slots=True)
class Read:
    """A key was read. ``relied``: the commit promises that nobody else changes it at the same time.

    ``version`` is the revision that wrote what was read, needed where the value does not tell it: nothing there, because
    that revision removed it, or (NEVER) because nobody had written it yet.
    """

    key: str
    value: Value
    relied: bool = False
    version: str | None = None


@dataclass(frozen=True, slots=True)
class Write:
    """A key was given a value, or (None) removed."""

    key: str
    value: Value


@dataclass(frozen=True, slots=True)
class Add:
    """An element was added to a key that holds a set, without reading it; reads show a tuple of all elements."""

    key: str
    element: Value


Operation: TypeAlias = Union[Read, Write, Add]  # noqa: UP007
_KINDS: Final[dict[str, type[Read] | type[Write] | type[Add]]] = {"read": Read, "write": Write, "add": Add}


@dataclass(frozen=True, slots=True)
class Transaction:
    """One attempt at a transaction, with its operations in order.

    ``begun``, ``polled`` and ``ended`` are times of one clock for the whole history, in any unit: when its snapshot was
    taken, when its instance last asked for what others committed before that (None: unknown), and when its end was known
    (None: never). ``ordered``: its snapshot was its instance's newest one. ``snapshot`` names the snapshot within its
    instance, ``revision`` is what it made; revisions sort by length and then as text. ``call`` is shared by all
    attempts at the same thing. ``committing`` is when its commit began (None: unknown): what it relied on must still have
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

    @property
    def writes(self) -> bool:
        """Whether it writes anything."""
        return any(not isinstance(operation, Read) for operation in self.operations)

    def line(self) -> str:
        """One line of JSON."""
        fields = asdict(self)
        fields["operations"] = [[_name(operation), asdict(operation)] for operation in self.operations]
        return json.dumps(fields, separators=(",", ":"))

    @classmethod
    def of_line(cls, line: str) -> Transaction:
        """Read a line; raises HistoryError."""
        try:
            fields = json.loads(line)
            told = fields.pop("operations")
            operations = tuple(_KINDS[kind](**{name: frozen(value) for name, value in of.items()}) for kind, of in told)
            return cls(operations=operations, **fields)
        except (ValueError, TypeError, KeyError) as error:
            raise HistoryError(f"this is no transaction of a history: {line[:100]!r} ({error!r})") from error


def _name(operation: Operation) -> str:
    return type(operation).__name__.lower()


def frozen(value: Any) -> Any:
    """A value with tuples in place of lists, so that it can be a dictionary's key."""
    return tuple(frozen(part) for part in value) if isinstance(value, (list, tuple)) else value


def age(revision: str) -> tuple[int, str]:
    """A key that sorts revisions from old to new."""
    return len(revision), revision


class History(Sequence[Transaction]):
    """Transactions of all instances; of those with the same id the last one counts."""

    def __init__(self, transactions: Iterable[Transaction]) -> None:
        self.by_id = {one.id: one for one in transactions}
        self._all = list(self.by_id.values())

    @classmethod
    def load(cls, files: Iterable[Path | str]) -> History:
        """All files of one history; a last line that its process did not live to end is left out."""
        return cls(one for file in files for one in _lines(Path(file)))

    def save(self, file: Path | str) -> None:
        """Write one file."""
        Path(file).write_text("".join(one.line() + "\n" for one in self))

    def replaced(self, **fields: dict[str, Any]) -> History:
        """The history with fields of some transactions changed: for each field, new values by transaction id."""
        changed: dict[str, dict[str, Any]] = {}
        for name, values in fields.items():
            for which, value in values.items():
                changed.setdefault(which, {})[name] = value
        return History(replace(one, **changed[one.id]) if one.id in changed else one for one in self)

    def __len__(self) -> int:
        return len(self._all)

    def __getitem__(self, index: Any) -> Any:
        return self._all[index]

    def __iter__(self) -> Iterator[Transaction]:
        return iter(self._all)


def _lines(file: Path) -> Iterator[Transaction]:
    text = file.read_text()
    whole, _, _ = text.rpartition("\n")
    for line in whole.splitlines():
        if line:
            yield Transaction.of_line(line)

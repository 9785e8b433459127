"""Describe the steps of a simulated run: which process made which call on which row, and its result."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from hbasemk.format import paths, schema
from hbasemk.store.abc import Arrivals, Column, Delete, Get, Put, Row, Scan


class Step(NamedTuple):
    """One call on one row.

    ``what`` is the argument: a Get, Scan, Put, Delete or row key. ``condition`` is the column and expected value of a
    compare-and-set.
    """

    method: str
    table: str
    what: Any
    condition: tuple[Column, bytes | None] | None = None

    @property
    def writes(self) -> bool:
        """Whether the call may change something."""
        return self.method not in ("read", "scan", "arrivals")


class _Names:
    """Short names of revisions, numbered in order of appearance."""

    def __init__(self) -> None:
        self._known: dict[int, str] = {}

    def of(self, revision: int) -> str:
        return self._known.setdefault(revision, f"r{len(self._known) + 1}")


def describe(steps: Iterable[tuple[float, str, Step, object]]) -> list[str]:
    """Return a line for each step: ms since the start, the process, the call, and its result or fault.

    Omits reads of missing leases.
    """
    names = _Names()
    return [
        f"{ms:9.1f} {who}: {step.method} {step.table} {_request(step, names)}{_result(step, result, names)}"
        for ms, who, step, result in steps
        if not _is_empty_probe(step, result)
    ]


def _is_empty_probe(step: Step, result: object) -> bool:
    return (
        step.table == schema.CLUSTER
        and step.method == "read"
        and isinstance(result, Sequence)
        and not any(isinstance(row, Row) and row.cells for row in result)
    )


def _request(step: Step, names: _Names) -> str:
    what = step.what
    if step.method == "write_if":
        # The trace shows the decision, which is in the journal.
        step = step._replace(table=schema.JOURNAL)
    if isinstance(what, Scan):
        return "downwards" if what.reverse else "upwards"
    if isinstance(what, Get):
        wanted = what.columns or what.families
        named = "" if wanted is None else " " + ",".join(_column(one) for one in wanted)
        return f"{_key(step.table, what.row, names)}{named}"
    if isinstance(what, Put):
        cells = [
            f"{_column((family, qualifier))}={_value(value)}{_at(step, what.timestamp if own is None else own, names)}"
            for family, qualifier, value, own in what.cells
        ]
        return f"{_key(step.table, what.row, names)} {' '.join(cells)}"
    if isinstance(what, Delete):
        cells = [f"{_column(cell[:2])}{_at(step, cell.timestamp, names)}" for cell in what.cells]
        return f"{_key(step.table, what.row, names)} {' '.join(cells)}"
    return _key(step.table, what, names) if isinstance(what, bytes) else ""


def _result(step: Step, result: object, names: _Names) -> str:
    if isinstance(result, str):
        return f" ({result})"
    if isinstance(result, bool):
        return f" -> {'yes' if result else 'no'}"
    if isinstance(result, int):
        return f" -> {'arrival ' + str(result) if result else 'no'}"
    if isinstance(result, Arrivals):
        result = result.rows
    if isinstance(result, Sequence):
        return f" -> {'; '.join(_row(step, row, names) for row in result) or 'nothing'}"
    return ""


def _row(step: Step, row: Row, names: _Names) -> str:
    cells = [f"{_column(cell[:2])}={_value(cell.value)}{_at(step, cell.timestamp, names)}" for cell in row.cells]
    begins = "" if step.method == "read" else f"{_key(step.table, row.key, names)}: "
    return begins + (" ".join(cells) or "nothing")


def _key(table: str, key: bytes, names: _Names) -> str:
    if table == schema.NODES:
        return paths.path_of(key)
    if table == schema.JOURNAL:
        return names.of(int.from_bytes(key, "big"))
    return f"machine {key.hex()}" if len(key) == 2 else key[:32].decode("ascii", "backslashreplace")


def _at(step: Step, timestamp: int | None, names: _Names) -> str:
    return f"@{names.of(timestamp)}" if step.table == schema.NODES and timestamp is not None else ""


def _column(column: Any) -> str:
    if isinstance(column, bytes):
        return column.decode("utf-8", "backslashreplace") + ":*"
    family, qualifier = column
    if family == schema.CHILDREN or qualifier[:1] in (b"\x00", b"\x01"):
        return schema.describe((family, qualifier))
    return str(qualifier.decode("ascii", "backslashreplace"))


def _value(value: bytes) -> str:
    return value.hex() if len(value) <= 4 else f"{value[:4].hex()}…"

"""A random test: make the same calls on a store and on a :class:`MemoryStore`, and compare all answers.

The runs are reproducible; ``HBASEMK_TEST_SEED=number`` selects others, ``HBASEMK_TEST_EXAMPLES`` runs more. The test
respects the contract's limits: it never rewrites a deleted version or row, never reads past versions from a table of
one version, and sets all timestamps.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final

import hypothesis
from hypothesis import HealthCheck, strategies
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from hbasemk.store.abc import (
    ALL_VERSIONS,
    CellVersion,
    Column,
    Delete,
    DeleteBelow,
    Get,
    NewCell,
    Page,
    Put,
    Scan,
    Store,
    scan_all,
)
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.store.base import Base, C, D, Tables, plain

FLAG: Final[Column] = (D, b"flag")

_keys: Final = strategies.sampled_from([b"a", b"a\x00", b"a\xff", b"aa", b"b", b"\x00", b"\xff", b"\xff\xff", b"m"])
_QUALIFIERS: Final = [b"p", b"q", b"q\x00", b"qq", b"\xff", b"\x00", b"'"]
_qualifiers: Final = strategies.sampled_from(_QUALIFIERS)
_columns: Final = strategies.tuples(strategies.sampled_from([C, D]), _qualifiers)
_STAMPS: Final = [*range(1, 13), 2**40, 2**62]
_stamps: Final = strategies.integers(1, 12) | strategies.sampled_from([2**40, 2**62])
_values: Final = strategies.sampled_from([b"", b"\x00", b"1", b"two"]) | strategies.binary(max_size=4)
_cells: Final = strategies.dictionaries(strategies.tuples(_columns, _stamps), _values, min_size=1, max_size=5)
_versions: Final = strategies.sampled_from([1, 1, 2, 3, ALL_VERSIONS])
_flags: Final = strategies.sampled_from([b"1", b"2", b"3"])


@strategies.composite
def _ranges(draw: strategies.DrawFn) -> dict[str, int]:
    first, second = draw(_stamps), draw(_stamps)
    chosen: dict[str, int] = {}
    if draw(strategies.booleans()):
        chosen["since"] = min(first, second)
    if draw(strategies.booleans()):
        chosen["before"] = max(first, second)
    return chosen


@strategies.composite
def _selections(draw: strategies.DrawFn, page: bool) -> dict[str, Any]:
    chosen: dict[str, Any] = {"versions": draw(_versions), **draw(_ranges())}
    kind = draw(strategies.integers(0, 3 if page else 2))
    if kind == 1:
        chosen["columns"] = draw(strategies.lists(_columns, min_size=1, max_size=12))
    elif kind == 2:
        chosen["families"] = draw(strategies.sampled_from([[C], [D], [D, C]]))
    elif kind == 3:
        after = draw(strategies.none() | _qualifiers)
        chosen["page"] = Page(draw(strategies.sampled_from([C, D])), after, draw(strategies.integers(1, 4)))
        chosen["versions"] = 1
    return chosen


class StoreMachine(RuleBasedStateMachine):
    """One random history, on stores and tables that a subclass receives from the test."""

    others: list[Store]
    tables: Tables
    start: bytes
    new_model: Callable[[], Store]
    histories: int = 0

    def __init__(self) -> None:
        super().__init__()
        self.model = self.new_model()
        self.model.create_tables(self.tables)
        self.deleted_cells: set[tuple[bytes, Column, int]] = set()
        self.deleted_rows: set[bytes] = set()
        self.turn = 0

    @initialize()
    def begin(self) -> None:
        """Choose row keys for this history: no history reuses the deleted keys of another."""
        type(self).histories += 1
        self.prefix = self.start + b"%05d/" % self.histories

    def handle(self) -> Store:
        """Return the handles in turn."""
        self.turn += 1
        return self.others[self.turn % len(self.others)]

    # --- writing -----------------------------------------------------------------------------------------

    @rule(batch=strategies.dictionaries(_keys, _cells, min_size=1, max_size=4), durable=strategies.booleans())
    def write(self, batch: dict[bytes, dict[tuple[Column, int], bytes]], durable: bool) -> None:
        """Put cells into several rows."""
        puts = []
        for key, chosen in batch.items():
            row = self.prefix + key
            cells = [
                NewCell(*column, value, at)
                for (column, at), value in chosen.items()
                if row not in self.deleted_rows and (row, column, at) not in self.deleted_cells
            ]
            if cells:
                puts.append(Put(row, cells))
        for store in (self.model, self.handle()):
            store.write(self.tables.many.name, puts, durable=durable)

    @rule(key=_keys, chosen=strategies.dictionaries(_qualifiers, _values, min_size=1, max_size=3), at=_stamps)
    def write_newest(self, key: bytes, chosen: dict[bytes, bytes], at: int) -> None:
        """Put cells into the table that keeps one version."""
        puts = [Put(self.prefix + key, [NewCell(D, name, value, at) for name, value in chosen.items()])]
        for store in (self.model, self.handle()):
            store.write(self.tables.one.name, puts)

    @rule(
        key=_keys,
        expected=strategies.none() | _flags,
        value=_flags,
        at=_stamps,
        more=strategies.dictionaries(_columns, _values, max_size=2),
        many=strategies.booleans(),
    )
    def compare_and_set(
        self,
        key: bytes,
        expected: bytes | None,
        value: bytes,
        at: int,
        more: dict[Column, bytes],
        many: bool,
    ) -> None:
        """Set a flag and other columns if the flag has the expected value."""
        row = self.prefix + key
        table = self.tables.many if many else self.tables.one
        cells = [NewCell(*FLAG, value, at)]
        cells += [NewCell(*column, content, at) for column, content in more.items() if many or column[0] == D]
        if many:
            cells = [
                cell for cell in cells if (row, cell[:2], at) not in self.deleted_cells and row not in self.deleted_rows
            ]
        if cells:
            answers = [
                store.check_and_write(table.name, FLAG, expected, Put(row, cells))
                for store in (self.model, self.handle())
            ]
            assert answers[1] == answers[0], (expected, value)

    @rule(batch=strategies.dictionaries(_keys, strategies.sets(strategies.tuples(_columns, _stamps), max_size=4)))
    def delete(self, batch: dict[bytes, set[tuple[Column, int]]]) -> None:
        """Delete exact versions, most of which do not exist."""
        self._delete(
            [
                Delete(self.prefix + key, [CellVersion(*column, at) for column, at in sorted(exact)])
                for key, exact in batch.items()
                if exact
            ]
        )

    @rule(key=_keys, pick=strategies.integers(0, 20))
    def delete_existing(self, key: bytes, pick: int) -> None:
        """Delete an existing version."""
        row = self.prefix + key
        cells = self.model.read(self.tables.many.name, [Get(row, versions=ALL_VERSIONS)])[0].cells
        if cells:
            cell = cells[pick % len(cells)]
            self._delete([Delete(row, [CellVersion(cell.family, cell.qualifier, cell.timestamp)])])

    def _delete(self, deletes: list[Delete]) -> None:
        self.deleted_cells |= {(row, (family, name), at) for row, cells in deletes for family, name, at in cells}
        for store in (self.model, self.handle()):
            store.delete(self.tables.many.name, deletes)

    @rule(key=_keys, column=_columns, whole=strategies.booleans(), at=_stamps)
    def delete_below(self, key: bytes, column: Column, whole: bool, at: int) -> None:
        """Delete a range of versions of a column, or of a family; later calls write nothing into it."""
        row = self.prefix + key
        cells = self.model.read(self.tables.many.name, [Get(row, versions=ALL_VERSIONS)])[0].cells
        family = column[0]
        ranges = [*((family, qualifier) for qualifier in _QUALIFIERS), (family, FLAG[1])] if whole else [column]
        # A store may hide what is written into the range later.
        self.deleted_cells |= {(row, one, stamp) for one in ranges for stamp in _STAMPS if stamp < at}
        self.deleted_cells |= {(row, cell[:2], cell.timestamp) for cell in cells if cell[:2] in ranges}
        delete = DeleteBelow(row, (), [(family, at)]) if whole else DeleteBelow(row, [CellVersion(*column, at)])
        for store in (self.model, self.handle()):
            store.delete_below(self.tables.many.name, [delete])

    @rule(keys=strategies.lists(_keys, min_size=1, max_size=2))
    def delete_rows(self, keys: list[bytes]) -> None:
        """Delete rows; later calls do not write them again."""
        rows = [self.prefix + key for key in keys]
        self.deleted_rows |= set(rows)
        for store in (self.model, self.handle()):
            store.delete_rows(self.tables.many.name, rows)

    # --- reading -----------------------------------------------------------------------------------------

    @rule(selections=strategies.lists(strategies.tuples(_keys, _selections(page=True)), min_size=1, max_size=5))
    def read(self, selections: list[tuple[bytes, dict[str, Any]]]) -> None:
        """Read several rows, each with its own selection."""
        gets = [Get(self.prefix + key, **selection) for key, selection in selections]
        self._same([plain(store.read(self.tables.many.name, gets)) for store in (self.model, self.handle())])

    @rule(key=_keys, versions=_versions)
    def read_newest(self, key: bytes, versions: int) -> None:
        """Read a row of the table that keeps one version."""
        gets = [Get(self.prefix + key, versions=versions)]
        self._same([plain(store.read(self.tables.one.name, gets)) for store in (self.model, self.handle())])

    @rule(
        edges=strategies.tuples(strategies.none() | _keys, strategies.none() | _keys),
        selection=_selections(page=False),
        limit=strategies.integers(1, 6),
        reverse=strategies.booleans(),
        whole=strategies.booleans(),
    )
    def scan(
        self,
        edges: tuple[bytes | None, bytes | None],
        selection: dict[str, Any],
        limit: int,
        reverse: bool,
        whole: bool,
    ) -> None:
        """Scan one batch of a range, or the whole range."""
        low = self.prefix if edges[0] is None else self.prefix + edges[0]
        high = self.prefix[:-1] + b"0" if edges[1] is None else self.prefix + edges[1]
        low, high = min(low, high), max(low, high)
        scan = Scan(high, low, limit, True, **selection) if reverse else Scan(low, high, limit, **selection)
        name = self.tables.many.name
        self._same(
            [
                plain(list(scan_all(store, name, scan)) if whole else store.scan(name, scan))
                for store in (self.model, self.handle())
            ]
        )

    def _same(self, answers: list[Any]) -> None:
        assert answers[1] == answers[0]

    def teardown(self) -> None:
        """Compare the complete contents at the end."""
        if not hasattr(self, "prefix"):
            return
        scan = Scan(self.prefix, self.prefix[:-1] + b"0", 1000, versions=ALL_VERSIONS)
        for table in (self.tables.many, self.tables.one):
            self._same([plain(store.scan(table.name, scan)) for store in (self.model, self.handle())])


class Model(Base):
    """Tests that compare a store with the reference implementation."""

    EXAMPLES = 150
    """The number of histories."""
    STEPS = 40
    """The number of calls in each history."""
    MODEL: Callable[[], Store] = MemoryStore
    """Creates the reference store."""

    def test_random_calls_return_the_answers_of_the_memory_store(
        self, handles: list[Store], tables: Tables, row: bytes
    ) -> None:
        seed = os.environ.get("HBASEMK_TEST_SEED")
        examples = int(os.environ.get("HBASEMK_TEST_EXAMPLES", self.EXAMPLES))
        machine = type(
            "Machine", (StoreMachine,), {"others": handles, "tables": tables, "start": row, "new_model": self.MODEL}
        )
        if seed is not None:
            machine = hypothesis.seed(int(seed))(machine)
        settings = hypothesis.settings(
            derandomize=seed is None,
            max_examples=examples,
            stateful_step_count=self.STEPS,
            deadline=None,
            database=None,
            print_blob=False,
            suppress_health_check=list(HealthCheck),
        )
        print(f"repeat with: HBASEMK_TEST_SEED={seed} HBASEMK_TEST_EXAMPLES={examples}" if seed else "derandomized")
        run_state_machine_as_test(machine, settings=settings)

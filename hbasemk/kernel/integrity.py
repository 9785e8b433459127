"""The integrity check: every invariant that can be seen from the tables, in one pass and bounded memory.

It reads at the head of an instance that has just polled; revisions that commit meanwhile are not looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from hbasemk.errors import FormatError
from hbasemk.kernel import node, paths, revision, schema, values
from hbasemk.kernel.calls import again
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.outcome import Outcome, outcome_of
from hbasemk.kernel.snapshot import Snapshot
from hbasemk.store.abc import ALL_VERSIONS, Cell, Get, Row, Scan, scan_all

ROWS: Final = 200
"""Rows of ``nodes`` that are looked at together."""
REMEMBERED: Final = 100_000
"""Outcomes of revisions that are kept, so that their journal rows are read once."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that must not be. ``kind`` names the rule, ``path`` and ``revision`` say where, ``detail`` what."""

    kind: str
    path: str
    revision: str
    detail: str

    def __str__(self) -> str:
        where = f"{self.path} " if self.path else ""
        at = f"in revision {self.revision}" if self.revision else ""
        return f"{self.kind}: {where}{at}: {self.detail}"


class IntegrityCheck:
    """One run over one instance. ``rows`` counts the rows looked at so far, for progress."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._store = instance.store
        self._outcomes: dict[int, Outcome] = {}
        self._in_doubt: set[int] = set()
        self.rows = 0

    def run(self) -> Iterator[Problem]:
        """Yield every problem; none means that the repository is whole."""
        self._instance.poll()
        snapshot = self._instance.head()
        yield from self._check_nodes(snapshot)
        yield from self._check_journal()

    # --- nodes -------------------------------------------------------------------------------------------

    def _check_nodes(self, snapshot: Snapshot) -> Iterator[Problem]:
        scan = Scan(None, None, ROWS, before=snapshot.upper + 1, versions=ALL_VERSIONS)
        batch: list[Row] = []
        for row in scan_all(self._store, schema.NODES, scan):
            batch.append(row)
            if len(batch) == ROWS:
                yield from self._check_batch(snapshot, batch)
                batch = []
        if batch:
            yield from self._check_batch(snapshot, batch)

    def _check_batch(self, snapshot: Snapshot, rows: Sequence[Row]) -> Iterator[Problem]:
        self._look_up({cell.timestamp for row in rows for cell in row.cells})
        self.rows += len(rows)
        alive: list[str] = []
        present: list[str] = []
        for row in rows:
            path = paths.path_of(row.key)
            if row.key != paths.key(path):
                yield Problem("row key", path, "", f"the depth in the row key {row.key[:40]!r} is not that of the path")
            for cell in row.cells:
                yield from self._check_cell(path, cell)
            visible = self._visible(snapshot, row)
            state, _ = node.from_cells(path, [cell for cell in visible if cell.family == schema.DATA])
            if state is None:
                continue
            if path != paths.ROOT:
                alive.append(path)
            present += [
                paths.join(path, paths.decode(cell.qualifier))
                for cell in visible
                if cell.family == schema.CHILDREN and cell.value == schema.PRESENT and cell.timestamp >= state.created
            ]
        yield from self._check_links(snapshot, alive, present)

    def _visible(self, snapshot: Snapshot, row: Row) -> list[Cell]:
        found: dict[tuple[bytes, bytes], Cell] = {}
        for cell in row.cells:
            column = (cell.family, cell.qualifier)
            if column not in found and self._instance.journal.sees(snapshot, cell.timestamp):
                found[column] = cell
        return list(found.values())

    def _check_cell(self, path: str, cell: Cell) -> Iterator[Problem]:
        at = revision.to_text(cell.timestamp)
        column = schema.describe((cell.family, cell.qualifier))
        outcome = self._outcomes[cell.timestamp]
        if outcome is Outcome.ABSENT:
            yield Problem(
                "cell without journal row", path, at, f"{column} was written by a revision that does not exist"
            )
        elif (
            outcome is Outcome.ABORTED
            and cell.timestamp not in self._instance.outcomes.left
            # A paused writer may bring cells of these at any time; they stay hidden (protocol, section 6).
            and cell.timestamp not in self._in_doubt
        ):
            yield Problem("cell of an aborted revision", path, at, f"{column} was not rolled back")
        if cell.family == schema.DATA and cell.qualifier[:1] == b"\x01" and cell.value != values.TOMBSTONE:
            try:
                values.decode(cell.value)
            except FormatError as error:
                yield Problem("undecodable value", path, at, f"{column}: {error}")

    def _check_links(self, snapshot: Snapshot, alive: Sequence[str], present: Sequence[str]) -> Iterator[Problem]:
        at = revision.to_text(snapshot.revision)
        children = self._instance.reader.nodes(snapshot, present)
        for path in present:
            if children[path] is None:
                yield Problem("dangling child", path, at, "its parent lists it, but there is no such node")
        gets = [
            Get(paths.key(paths.parent(path)), columns=(schema.child_column(paths.name(path)), schema.DELETED))
            for path in alive
        ]
        for path, cells in zip(alive, self._instance.reader.cells(snapshot, gets), strict=True):
            found = {cell.family: cell for cell in cells}
            parent = found.get(schema.DATA)
            listed = found.get(schema.CHILDREN)
            if parent is None or parent.value != schema.ALIVE:
                yield Problem("orphan node", path, at, "it exists, but its parent does not")
            elif listed is None or listed.value != schema.PRESENT or listed.timestamp < parent.timestamp:
                yield Problem("unlisted node", path, at, "it exists, but its parent does not list it")

    def _look_up(self, versions: set[int]) -> None:
        if len(self._outcomes) > REMEMBERED:
            self._outcomes.clear()
        unknown = sorted(versions - self._outcomes.keys())
        columns = (schema.COMMITTED, schema.ABORT, schema.SWEPT)
        for at in range(0, len(unknown), ROWS):
            part = unknown[at : at + ROWS]
            gets = [Get(schema.revision_key(one), columns=columns) for one in part]
            rows = again(self._instance.runtime, lambda gets=gets: self._store.read(schema.JOURNAL, gets))  # type: ignore[misc]
            for one, row in zip(part, rows, strict=True):
                self._outcomes[one] = outcome_of(row)
                if any(cell[:2] == schema.SWEPT and cell.value == schema.SWEPT_IN_DOUBT for cell in row.cells):
                    self._in_doubt.add(one)

    # --- journal -----------------------------------------------------------------------------------------

    def _check_journal(self) -> Iterator[Problem]:
        flags = (schema.COMMITTED, schema.ABORT)
        for row in scan_all(self._store, schema.JOURNAL, Scan(None, None, ROWS, columns=flags)):
            which = revision.to_text(int.from_bytes(row.key, "big"))
            found = {cell.qualifier: cell.value for cell in row.cells}
            if len(found) < 2:
                yield Problem(
                    "incomplete journal row", "", which, f"only {sorted(found)} of committed and abort are there"
                )
            elif set(found.values()) == {schema.YES}:
                yield Problem("committed and aborted", "", which, "both flags are set")

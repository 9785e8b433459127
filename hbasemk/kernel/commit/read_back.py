"""Steps 7 to 9 of a commit: read back what it relied on, and settle with whoever is met there.

Whatever is found outside the snapshot was not there when the commit was built. What is decided, decides; of two that are
pending the lower id wins (I10), the higher is aborted by compare-and-set (I4).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from hbasemk.format import paths, revisions, schema
from hbasemk.kernel.batches import CELL_BYTES, by_size, read_rows
from hbasemk.kernel.commit.change_set import ChangeSet
from hbasemk.kernel.commit.read_set import ReadSet
from hbasemk.kernel.ids.clock import IdClock
from hbasemk.kernel.journal.journal import Journal
from hbasemk.kernel.journal.outcomes import Outcome, Outcomes
from hbasemk.kernel.journal.view import View
from hbasemk.kernel.runtime import Runtime
from hbasemk.store.abc import ALL_VERSIONS, Column, Get, Row, Store

FEW_VERSIONS: Final = 4
"""How many versions of a column are read back at first: our own, the snapshot's, and room for some others."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """How a revision lost: to ``other``, over ``column`` of ``path``; ``pending``: the winner is not decided yet."""

    path: str
    column: Column
    other: int
    pending: bool


class _Probe(NamedTuple):
    """What to read of a row, which of its columns must have no child, in a life since when, and which columns count."""

    get: Get
    must_be_absent: frozenset[Column] = frozenset()
    since: int = 0
    only: frozenset[Column] | None = None
    bytes: int = 0

    def size(self) -> int:
        """About how many bytes are asked for, as far as that is known."""
        return self.bytes + sum(len(column[1]) + 2 * CELL_BYTES for column in self.get.columns or ())


@dataclass(slots=True)
class _Observed:
    """The versions met outside the snapshot, with the first place of each; and a name that is a child in it."""

    versions: dict[int, tuple[str, Column]] = field(default_factory=dict)
    taken: tuple[str, Column] | None = None


def _versions_of(depends_on: Iterable[Column]) -> int:
    return ALL_VERSIONS if schema.LAST_REVISION in depends_on else FEW_VERSIONS


def _relied(plan: ChangeSet, low: int) -> list[_Probe]:
    """What to read back of the columns that are relied on: from the low bound up, but where an older child matters."""
    looks: list[_Probe] = []
    for row in plan.rows:
        if row.depends_on:
            since = 0 if row.must_be_absent else low
            get = Get(row.key, columns=list(row.depends_on), since=since, versions=_versions_of(row.depends_on))
            looks.append(_Probe(get, row.must_be_absent, row.since, bytes=row.bytes))
        if row.name_probe:
            get = Get(row.key, families=(schema.DATA,), since=low, versions=FEW_VERSIONS)
            looks.append(_Probe(get, only=row.name_probe))
    return looks


class ReadBack:
    """ReadSet back for the commits of one instance."""

    def __init__(self, store: Store, runtime: Runtime, clock: IdClock, journal: Journal, outcomes: Outcomes) -> None:
        self._store = store
        self._runtime = runtime
        self._clock = clock
        self._journal = journal
        self._outcomes = outcomes

    def validate(self, made: int, snapshot: View, plan: ChangeSet) -> Conflict | None:
        """Steps 7 to 9: None, or how the revision lost.

        ``made`` is 0 for a transaction that only read and therefore aborts nobody. A loss to nobody, ``other`` 0, says that
        a property would have the name of a child.
        """
        low = self._journal.low_bound_for(snapshot)
        met = _Observed()
        size = self._store.batch_rows
        looks = _relied(plan, low)
        for number, first in enumerate(by_size(looks, _Probe.size, size, self._store.batch_bytes)):
            part: Sequence[_Probe] = first
            if number and made:
                self._clock.keep_lease()
            while part:
                rows = self._read([look.get for look in part])
                part = self._meet(made, snapshot, low, part, rows, met)
        if plan.reads:
            gets = plan.reads.gets(low)
            for at in range(0, len(gets), size):
                self._meet_reads(made, snapshot, plan.reads, self._read(gets[at : at + size]), met)
        loss = self._resolve(made, met.versions) if met.versions else None
        if loss is None and met.taken is not None:
            return Conflict(*met.taken, other=0, pending=False)
        return loss

    def _read(self, gets: Sequence[Get]) -> Sequence[Row]:
        return read_rows(self._store, self._runtime, gets)

    def precondition(
        self, made: int, snapshot: View, plan: ChangeSet
    ) -> tuple[list[Get], Callable[[Sequence[Row]], bool]]:
        """What to read back at once, and whether what was read then meets nothing (branches' cells are nothing to trunk)."""
        low = self._journal.low_bound_for(snapshot)
        looks = _relied(plan, low)
        gets = [look.get for look in looks]
        if plan.reads:
            gets += plan.reads.gets(low)

        def nothing_met(rows: Sequence[Row]) -> bool:
            met = _Observed()
            deeper = self._meet(made, snapshot, low, looks, rows[: len(looks)], met)
            if plan.reads:
                self._meet_reads(made, snapshot, plan.reads, rows[len(looks) :], met)
            return not deeper and met.taken is None and all(revisions.is_branch(version) for version in met.versions)

        return gets, nothing_met

    def _meet_reads(self, made: int, snapshot: View, reads: ReadSet, rows: Sequence[Row], met: _Observed) -> None:
        """What a serializable transaction read: any version outside the snapshot, but those that only say "touched"."""
        for row in rows:
            path = paths.path_of(row.key)
            for cell in row.cells:
                column = (cell.family, cell.qualifier)
                version = cell.timestamp
                if version == made or not reads.depends_on(path, column) or self._journal.sees(snapshot, version):
                    continue
                met.versions.setdefault(version, (path, column))

    def _meet(
        self, made: int, snapshot: View, low: int, looks: Sequence[_Probe], rows: Sequence[Row], met: _Observed
    ) -> list[_Probe]:
        """Collect the versions outside the snapshot; returns what has to be read deeper.

        A column that is relied on by whoever writes it needs no look below its newest version in the snapshot: that
        one is committed, so whatever is lower, outside and not aborted has lost to it or will. Everybody writes
        ``lastRevision`` without relying on it: there all versions count (``docs/decisions/0004-read-back.md``).
        """
        deeper: list[_Probe] = []
        for look, row in zip(looks, rows, strict=True):
            seen: dict[Column, int] = {}
            for cell in row.cells:
                version = cell.timestamp
                column = (cell.family, cell.qualifier)
                if look.only is not None and column not in look.only:
                    continue
                if version != made and self._journal.sees(snapshot, version):
                    if seen.get(column, 0) < ALL_VERSIONS and column in look.must_be_absent and version >= look.since:
                        met.taken = (paths.path_of(row.key), column) if cell.value == schema.PRESENT else met.taken
                    seen[column] = ALL_VERSIONS
                    continue
                count = seen.get(column, 0)
                seen[column] = count + 1 if count < ALL_VERSIONS else count
                if version == made or version < low or version in met.versions:
                    continue
                if count < ALL_VERSIONS or column == schema.LAST_REVISION:
                    met.versions[version] = (paths.path_of(row.key), column)
            more = [column for column, count in seen.items() if count == look.get.versions]
            if more and look.get.versions < ALL_VERSIONS:
                get = look.get._replace(columns=more, families=None, since=low, versions=ALL_VERSIONS)
                deeper.append(look._replace(get=get))
        return deeper

    def _resolve(self, made: int, met: dict[int, tuple[str, Column]]) -> Conflict | None:
        trunk = sorted(version for version in met if not revisions.is_branch(version))
        head = self._journal.head
        outcomes = self._outcomes.of_many([version for version in trunk if not self._journal.sees(head, version)])
        for other in trunk:
            path, column = met[other]
            self._clock.observe(other)
            self._journal.cover(other)
            outcome = outcomes.get(other, Outcome.COMMITTED)
            if outcome is Outcome.ABSENT:
                outcome = self._outcomes.abort_missing(other)
            if outcome is Outcome.PENDING and self._outcomes.recover_if_over(other):
                outcome = self._outcomes.of(other)
            if outcome is Outcome.PENDING and made and other > made:
                outcome = self._outcomes.abort_other(other)
            if outcome is not Outcome.ABORTED:
                return Conflict(path, column, other, pending=outcome is Outcome.PENDING)
        return None

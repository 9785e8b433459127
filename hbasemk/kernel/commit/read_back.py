"""Steps 7 to 9 of a commit: read back what it depends on, and resolve each conflict.

A version outside the view appeared after the commit was built. The outcome of a decided revision stands. Of two
pending revisions the lower id wins (I10); the higher one is aborted by compare-and-set (I4), and so is one without a journal row.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from hbasemk.format import paths, revisions, schema
from hbasemk.format.journal_row import Outcome
from hbasemk.kernel.batches import CELL_BYTES, parts_of
from hbasemk.kernel.commit.change_set import ChangeSet, RowPlan
from hbasemk.kernel.commit.context import Committing
from hbasemk.kernel.commit.deadline import Overtaken
from hbasemk.kernel.commit.read_set import ReadSet
from hbasemk.kernel.journal.view import View
from hbasemk.store.abc import ALL_VERSIONS, Column, Get, Row
from hbasemk.store.sizes import by_size

FEW_VERSIONS: Final = 4
"""Versions of a column in the first read: the commit's own, the view's, and room for a few others."""
DEEPER: Final = 16
"""Each further read of a child column, which looks for the newest visible version, reads so many times as many versions."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """The reason why a revision must abort: ``other`` has written ``column`` of ``path``.

    ``pending`` says that ``other`` is not decided yet, ``may_lack_row`` that it may never get a journal row. ``other`` 0 means
    a name used for a property and a child. ``slots`` holds path, slot and version of all slots that others wrote, newest version
    first.
    """

    path: str
    column: Column
    other: int
    pending: bool
    slots: Sequence[tuple[str, Column, int]] = ()
    may_lack_row: bool = False


@dataclass(slots=True)
class Marks:
    """What the read-back of a commit finds in the columns ``lastRevision`` that it does not depend on.

    A mark above ``revision`` belongs to a writer that would not notice this commit; ``overtaken`` is the highest one. If the
    commit ``looks``, it reads all versions from the low bound up; ``found_others`` says that one of them is not in the view.
    A ``hot`` commit is on the head, and other processes change the same columns all the time.
    """

    revision: int
    looks: bool = False
    is_hot: bool = False
    overtaken: int = 0
    found_others: bool = False

    def require_none_above(self) -> None:
        """Raise Overtaken if a mark is above the revision."""
        if self.overtaken:
            raise Overtaken(self.overtaken)

    def rival(self, versions: Mapping[int, tuple[str, Column]]) -> Conflict | None:
        """Return the conflict with the highest mark, if the commit is hot and the mark's revision is one of these versions.

        Another try on the same view would find it again.
        """
        if not self.is_hot or self.overtaken not in versions:
            return None
        return Conflict(*versions[self.overtaken], self.overtaken, pending=True, may_lack_row=True)


class _Probe(NamedTuple):
    """One get of the read-back, and how to judge its cells.

    ``must_be_absent`` holds child columns that must list no child in the node's life, which began in ``since``.
    ``only_columns`` limits the columns that count (None: all). A version with exactly the bytes in ``created`` does not
    count: it is another first adjust. ``value_bytes`` is the known size of the values. If ``reads`` is given, it says which
    columns count, and each version of them outside the view does. If ``marks`` is given, it collects what the versions of
    ``lastRevision`` show, and these versions are no conflicts by themselves.
    """

    get: Get
    must_be_absent: frozenset[Column] = frozenset()
    since: int = 0
    only_columns: Container[Column] | None = None
    created: Mapping[Column, bytes] = {}
    value_bytes: int = 0
    reads: ReadSet | None = None
    marks: Marks | None = None

    def size(self) -> int:
        """Estimate how many bytes the get returns, which are more than it has itself."""
        columns = sum(len(column[1]) + 2 * CELL_BYTES for column in self.get.columns or ())
        return len(self.get.row) + CELL_BYTES + self.value_bytes + columns

    def parts(self, most: int) -> Sequence[_Probe]:
        """Return the probe, in parts if its get does not fit one call of ``most`` bytes; each part is judged by itself."""
        parts = parts_of(self.get, most)
        if len(parts) == 1:
            return (self,)
        # How large the values in each part are is not known.
        return [self._replace(get=part, value_bytes=self.value_bytes // len(parts)) for part in parts]


@dataclass(slots=True)
class _Observed:
    """The versions found outside the view, each with the first place, those of slots, and a property name that is a child."""

    versions: dict[int, tuple[str, Column]] = field(default_factory=dict)
    slots: list[tuple[str, Column, int]] = field(default_factory=list)
    name_conflict: tuple[str, Column] | None = None


class _SlotsOf(Container[Column]):
    """All slots of some properties."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = frozenset(paths.encode(name) for name in names)

    def __contains__(self, column: object) -> bool:
        assert isinstance(column, tuple)
        return schema.is_slot(column) and column[1][schema.SLOT_HEAD :] in self._names


class _MadeLater(Iterable[Get]):
    """Gets that each iteration creates anew."""

    def __init__(self, make: Callable[[], list[Get]]) -> None:
        self._make = make

    def __iter__(self) -> Iterator[Get]:
        return iter(self._make())


def _versions_of(depends_on: Iterable[Column], few: int) -> int:
    return ALL_VERSIONS if schema.LAST_REVISION in depends_on else few


def _may_have_marks(row: RowPlan) -> bool:
    """Return whether a commit must look for marks in a row: it changes an existing node, and does not remove it."""
    return bool(row.depends_on) and bool(row.cells) and schema.LAST_REVISION not in row.depends_on


def _probes_of(plan: ChangeSet, low_bound: int, marks: Marks | None = None) -> list[_Probe]:
    """Return the probes for the columns that a plan depends on.

    They read from the low bound up, except where an older child column matters. With ``marks``, they also read
    ``lastRevision`` of each row that the plan changes.
    """
    probes: list[_Probe] = []
    few = FEW_VERSIONS + plan.private
    for row in plan.rows:
        if row.depends_on:
            since = 0 if row.must_be_absent else low_bound
            versions = _versions_of(row.depends_on, few)
            columns = list(row.depends_on)
            found = marks if marks is not None and _may_have_marks(row) else None
            if found is not None and found.looks:
                probes.append(_all_touches(row.key, low_bound, found))
                found = None
            elif found is not None:
                columns.append(schema.LAST_REVISION)
            get = Get(row.key, columns=columns, since=since, versions=versions)
            probe = _Probe(get, row.must_be_absent, row.since, value_bytes=row.value_bytes, created=row.created or {})
            probes.append(probe if found is None else probe._replace(marks=found))
        if row.name_probe:
            get = Get(row.key, families=(schema.DATA,), since=low_bound, versions=few)
            probes.append(_Probe(get, only_columns=row.name_probe))
        if row.slot_probe:
            get = Get(row.key, families=(schema.DATA,), since=low_bound, versions=few)
            probes.append(_Probe(get, only_columns=_SlotsOf(row.slot_probe)))
    reads = plan.depends_on()
    probes += [_Probe(get, reads=reads) for get in reads.gets(low_bound)]
    return probes


def _deeper(probe: _Probe, columns: Sequence[Column], low_bound: int) -> Iterator[_Probe]:
    """Yield probes for older versions of columns of which a probe has read no visible version.

    Versions below the low bound cannot conflict. But of a child column the newest visible version counts, however old it is.
    """
    children = [column for column in columns if column in probe.must_be_absent]
    others = [column for column in columns if column not in probe.must_be_absent]
    if children:
        versions = min(probe.get.versions * DEEPER, ALL_VERSIONS)
        yield probe._replace(get=probe.get._replace(columns=children, versions=versions))
    if others:
        get = probe.get._replace(columns=others, families=None, since=low_bound, versions=ALL_VERSIONS)
        yield probe._replace(get=get)


def _all_touches(key: bytes, since: int, marks: Marks) -> _Probe:
    """Return the probe for all versions of ``lastRevision`` in a row from one id up."""
    get = Get(key, columns=[schema.LAST_REVISION], since=since, versions=ALL_VERSIONS)
    return _Probe(get, marks=marks)


class Probes(NamedTuple):
    """What a read-back reads, in batches of one call each, and the id below which the view contains every revision."""

    low_bound: int
    batches: Sequence[Sequence[_Probe]]
    marks: Marks

    @property
    def first(self) -> list[Get]:
        """The gets of the first batch."""
        return [probe.get for probe in self.batches[0]] if self.batches else []


class ReadBack(Committing):
    """The read-back of one instance's commits."""

    def prepare(self, view: View, plan: ChangeSet, marks: Marks | None = None) -> Probes:
        """Return what the read-back of a plan reads; without ``marks`` it does not look for them."""
        low_bound = self._journal.low_bound_for(view)
        marks = marks or Marks(0)
        respected = marks if marks.revision and not self._store.supports_transactions else None
        most = self._store.batch_bytes
        probes = (part for probe in _probes_of(plan, low_bound, respected) for part in probe.parts(most))
        return Probes(low_bound, list(by_size(probes, _Probe.size, self._store.batch_rows, most)), marks)

    def first_part(self, plan: ChangeSet) -> ChangeSet | None:
        """Return the existing rows of a large commit, which it writes first; None if it is not large, or has too many of them.

        While it writes its other rows, the writers of marks then notice it.
        """
        if self._store.supports_transactions or len(plan.rows) <= self._store.batch_rows:
            return None
        existing = {row.path: row for row in plan.rows if _may_have_marks(row)}
        if not existing or len(existing) > self._store.batch_rows:
            return None
        return ChangeSet(list(existing.values()), [one for one in plan.changes if one.path in existing], [])

    def marks_of(self, view: View, revision: int, part: ChangeSet) -> tuple[list[Get], Callable[[Sequence[Row]], None]]:
        """Return the gets of ``lastRevision`` in the rows of :meth:`first_part`, and a function that judges their rows.

        The function raises Overtaken if one of the rows has a mark with a higher id.
        """
        marks = Marks(revision)
        gets = [_all_touches(row.key, revision, marks).get for row in part.rows]

        def require_none_above(rows: Sequence[Row]) -> None:
            for row in rows:
                self._find_marks(view, revision, ALL_VERSIONS, row, marks)
            marks.require_none_above()

        return gets, require_none_above

    def validate(
        self,
        revision: int,
        view: View,
        plan: ChangeSet,
        probes: Probes | None = None,
        read: Sequence[Row] | None = None,
    ) -> Conflict | None:
        """Run steps 7 to 9; return None, or the conflict over which the revision must abort.

        ``revision`` is 0 for a commit that changes nothing; it aborts no other revision. A conflict with ``other`` 0 means
        that a property would have the name of a child. ``read`` has the rows of ``probes.first``, if they were read with the
        call that wrote the cells. Raises Overtaken if a mark with a higher id is in a row that the commit changes; but see
        :meth:`Marks.rival`.
        """
        low_bound, batches, marks = probes or self.prepare(view, plan)
        observed = _Observed()
        for number, first in enumerate(batches):
            pending: Sequence[_Probe] = first
            if number and revision:
                self._clock.keep_lease()
            while pending:
                rows = read or self._store.read(schema.NODES, [probe.get for probe in pending])
                read = None
                pending = self._observe(revision, view, low_bound, pending, rows, observed)
        rival = marks.rival(observed.versions)
        conflict = rival and self.judge(rival)
        if conflict is not None:
            return conflict
        marks.require_none_above()
        # On a view that the horizon has passed, the read-back may miss that a node was removed.
        self._journal.require_readable(view)
        conflict = self._resolve(revision, view, observed.versions) if observed.versions else None
        if conflict is None and observed.name_conflict is not None:
            return Conflict(*observed.name_conflict, other=0, pending=False)
        return conflict and replace(conflict, slots=observed.slots)

    def judge(self, conflict: Conflict) -> Conflict | None:
        """Return a conflict that was found without a look at the other revision, or None if that is aborted. One round trip."""
        outcome = self._outcomes.of(conflict.other, check=True)
        return None if outcome is Outcome.ABORTED else replace(conflict, pending=outcome is not Outcome.COMMITTED)

    def precondition(
        self, revision: int, view: View, plan: ChangeSet
    ) -> tuple[Iterable[Get], Callable[[Sequence[Row]], bool]]:
        """Return the gets of the read-back, which the transaction creates when it reads, and a function that judges their rows.

        The function returns whether the rows show no conflict; trunk ignores branch cells.
        """
        # The transaction cannot find out, so the journal must know it before.
        self._journal.require_readable(view)
        low_bound = 0
        probes: list[_Probe] = []

        def gets() -> list[Get]:
            nonlocal low_bound, probes
            low_bound = self._journal.low_bound_for(view)
            probes = _probes_of(plan, low_bound)
            return [probe.get for probe in probes]

        def no_conflict(rows: Sequence[Row]) -> bool:
            observed = _Observed()
            incomplete = self._observe(revision, view, low_bound, probes, rows, observed)
            return (
                not incomplete
                and self._journal.is_surely_readable(view)
                and observed.name_conflict is None
                and all(revisions.is_branch(version) for version in observed.versions)
            )

        return _MadeLater(gets), no_conflict

    def _observe(
        self,
        revision: int,
        view: View,
        low_bound: int,
        probes: Sequence[_Probe],
        rows: Sequence[Row],
        observed: _Observed,
    ) -> list[_Probe]:
        """Collect the versions outside the view; return probes for the columns that need older versions too.

        Most columns are read back by every writer of the column. There, versions below the newest one in the view do
        not matter: that one is committed, so a lower version outside the view has lost to it, or will. Writers of
        ``lastRevision`` do not read it back, so all of its versions count (``docs/decisions/0004-read-back.md``).
        """
        incomplete: list[_Probe] = []
        for probe, row in zip(probes, rows, strict=True):
            if probe.reads is not None:
                self._observe_read(revision, view, probe.reads, row, observed)
                continue
            seen: dict[Column, int] = {}
            marks = probe.marks
            if marks is not None and self._find_marks(view, low_bound, probe.get.versions, row, marks):
                incomplete.append(_all_touches(row.key, revision, marks))
            for cell in row.cells:
                version = cell.timestamp
                column = (cell.family, cell.qualifier)
                if marks is not None and column == schema.LAST_REVISION:
                    continue
                if probe.only_columns is not None and column not in probe.only_columns:
                    continue
                if version != revision and self._journal.sees(view, version):
                    if seen.get(column, 0) < ALL_VERSIONS and column in probe.must_be_absent and version >= probe.since:
                        observed.name_conflict = (
                            (paths.path_of(row.key), column) if cell.value == schema.PRESENT else observed.name_conflict
                        )
                    seen[column] = ALL_VERSIONS
                    continue
                count = seen.get(column, 0)
                seen[column] = count + 1 if count < ALL_VERSIONS else count
                if version == revision or version < low_bound:
                    continue
                is_slot = schema.is_slot(column)
                if version in observed.versions and not is_slot:
                    continue
                if probe.created and probe.created.get(column) == cell.value:
                    continue
                if count < ALL_VERSIONS or column == schema.LAST_REVISION:
                    observed.versions.setdefault(version, (paths.path_of(row.key), column))
                    if is_slot and not revisions.is_branch(version):
                        observed.slots.append((paths.path_of(row.key), column, version))
            cut_off = [column for column, count in seen.items() if count == probe.get.versions]
            if cut_off and probe.get.versions < ALL_VERSIONS:
                incomplete += _deeper(probe, cut_off, low_bound)
        return incomplete

    def _find_marks(self, view: View, low_bound: int, most: int, row: Row, marks: Marks) -> bool:
        """Record the marks in a row; return whether older versions than the ``most`` that were read must be read too."""
        versions = [cell for cell in row.cells if (cell.family, cell.qualifier) == schema.LAST_REVISION]
        for cell in versions:
            version = cell.timestamp
            if version < low_bound or version == marks.revision or revisions.is_branch(version):
                continue
            if not self._journal.sees(view, version):
                marks.found_others = True
                # An aborted one counts, too: it may be above one that is not. The next id is above all of them.
                self._clock.observe(version)
                if version > marks.revision and schema.is_mark(cell.value):
                    marks.overtaken = max(marks.overtaken, version)
        is_cut_off = bool(versions) and len(versions) == most < ALL_VERSIONS
        return is_cut_off and not marks.overtaken and versions[-1].timestamp > marks.revision

    def _observe_read(self, revision: int, view: View, reads: ReadSet, row: Row, observed: _Observed) -> None:
        """Collect the versions outside the view that change what was read of a row, or its expected version."""
        path = paths.path_of(row.key)
        for cell in row.cells:
            column = (cell.family, cell.qualifier)
            version = cell.timestamp
            if version == revision or not reads.depends_on(path, column) or self._journal.sees(view, version):
                continue
            observed.versions.setdefault(version, (path, column))

    def _resolve(self, revision: int, view: View, observed: dict[int, tuple[str, Column]]) -> Conflict | None:
        """Run steps 8 and 9 for the versions outside the view, lowest id first."""
        trunk = sorted(version for version in observed if not revisions.is_branch(version))
        head = self._journal.head
        unknown = [version for version in trunk if not self._journal.sees(head, version)]
        outcomes = self._outcomes.of_many(unknown, check=True)
        for other in trunk:
            path, column = observed[other]
            self._clock.observe(other)
            outcome = outcomes.get(other, Outcome.COMMITTED)
            if outcome in (Outcome.ABSENT, Outcome.PENDING) and self._journal.is_trimmed(other):
                # It was decided long ago. A view that is readable now contains it if it was committed.
                self._journal.require_readable(view)
                continue
            if outcome is Outcome.ABSENT and not revision and not self._store.supports_transactions:
                # A commit that changes nothing aborts no sole writer.
                outcome = Outcome.PENDING
            if outcome is Outcome.ABSENT:
                outcome = self._outcomes.abort_missing(other)
            if outcome is Outcome.PENDING and self._outcomes.recover_if_over(other):
                outcome = self._outcomes.of(other)
            if outcome is Outcome.PENDING and revision and other > revision:
                outcome = self._outcomes.abort_other(other)
            if outcome is not Outcome.ABORTED:
                return Conflict(path, column, other, pending=outcome is Outcome.PENDING)
        return None

"""The newest snapshot of trunk that is known to be committed before a moment (``docs/protocol.md``, section 3).

The store's timestamp of a revision's decision says when it was committed, and ids say what a snapshot contains. The
answer is everything up to one revision: the newest one such that it, and every revision with a lower id, was decided
before the moment. Causal order implies id order, so that is a snapshot. It is the same one in every process.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple

from hbasemk.errors import InvalidValueError, UnknownRevisionError
from hbasemk.format import journal_row, revisions, schema
from hbasemk.format.extent import Extent
from hbasemk.format.journal_row import JournalRow
from hbasemk.format.moments import moment
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal.sequence import view_up_to
from hbasemk.kernel.journal.view import View
from hbasemk.store.abc import Get, Scan, scan_all

WINDOW_MS: Final = 300_000
"""How far below the answer's id the decisions of revisions count. A commit that takes longer counts from its id.

Collectors keep so many ms of journal rows below the horizon.
"""
BATCH: Final = 1000
FEW: Final = 20
FLAGS: Final = (schema.COMMITTED, schema.ABORT)


class _Found(NamedTuple):
    """A revision, and when it was committed by the store's clock; infinity if it is not decided yet."""

    revision: int
    at_ms: float


def id_time(instance: Instance, revision: int) -> datetime.datetime:
    """Return the time in the id of a revision, in UTC."""
    return moment(revisions.ms_of(revision) + instance.settings.epoch_ms)


def view_before(instance: Instance, ms: int) -> View:
    """Return the newest view of trunk that is known to be committed before a time in ms since 1970.

    Some round trips, and one for each 1000 revisions of the last minutes before that time. Raises InvalidValueError for a
    time that has not come by this machine's clock and by the store's, UnknownRevisionError for one before the first
    revision, and RevisionCollectedError for one that is too old.
    """
    if ms > instance.runtime.now_ms() and ms > instance.checkpoint_cells.latest_ms():
        raise InvalidValueError(
            f"time must not be in the future, got {moment(ms).isoformat()}; use the head, which is the newest snapshot"
        )
    instance.poll()
    # It may have no journal row yet, and counts as decided later, like everything above it.
    undecided = min(instance.journal.pending, default=revisions.MAX_REVISION)
    # Read before the scan: nothing below the bound commits any more, and this instance has read all that has.
    bound = max(instance.journal.low_bound, instance.journal.verified + 1)
    found = _last_before(instance, ms, bound, undecided)
    if found is None:
        root = instance.settings.root_revision
        if instance.journal.is_trimmed(root):
            raise instance.journal.collected(view_up_to(root))
        raise UnknownRevisionError(
            f"the repository at {instance.location} has no revision that is known to be committed before "
            f"{moment(ms).isoformat()}; its first one is {revisions.to_text(root)}. Give that id, or a later time",
            revision=revisions.to_text(root),
        )
    newest, listed = found[0], found
    floor = min(newest, bound - 1)
    view = View.of(newest, Extent.of(floor, listed), newest)
    instance.journal.require_readable(view)
    return view


def _last_before(instance: Instance, ms: int, bound: int, undecided: int) -> list[int] | None:
    """Return the newest revision that counts, and those below it, at least down to ``bound``; None if none counts.

    Those from ``undecided`` up do not count.
    """
    decided = _decided_up_to(instance, ms)
    cut_ms = ms - instance.settings.epoch_ms
    listed: list[int] = []
    for found in _downwards(instance, _upper_ms(instance, ms)):
        is_over = revisions.ms_of(found.revision) < cut_ms - WINDOW_MS or found.revision <= decided
        if listed and is_over and found.revision < bound:
            break
        if found.at_ms >= ms or found.revision >= undecided:
            # It is not part of the answer, so nothing with a higher id is.
            cut_ms = min(cut_ms, revisions.ms_of(found.revision))
            listed = []
        else:
            listed.append(found.revision)
    return listed or None


def _decided_up_to(instance: Instance, ms: int) -> int:
    """Return an id up to which everything was decided before a time: the watermark if it is older, else 0. One round trip."""
    get = Get(schema.SETTINGS_ROW, columns=(schema.WATERMARK,))
    for cell in instance.store.read(schema.CLUSTER, [get])[0].cells:
        if cell.timestamp < ms:
            return int.from_bytes(cell.value[:8], "big")
    return 0


def _upper_ms(instance: Instance, ms: int) -> int:
    """Return an id time above which no revision was decided before a time.

    Ids can be ahead of the clock, by any time. The search doubles its steps up, and then halves the rest. One round trip
    unless they are ahead by more than the allowed skew.
    """
    step = instance.settings.max_clock_skew_ms
    low = high = max(ms - instance.settings.epoch_ms, 0) + step
    while (early := _first_decided(instance, high, ms)) is not None:
        low = revisions.ms_of(early) + 1
        high = low + step
        step *= 2
    while high - low > instance.settings.max_clock_skew_ms:
        middle = (low + high) // 2
        early = _first_decided(instance, middle, ms)
        if early is None:
            high = middle
        else:
            low = revisions.ms_of(early) + 1
    return high


def _first_decided(instance: Instance, at_ms: int, ms: int) -> int | None:
    """Return the first revision from an id time up if it was decided before a time; else None."""
    if at_ms > revisions.MAX_MS:
        return None
    scan = Scan(schema.revision_key(revisions.pack(at_ms, 0, 0)), None, FEW, columns=FLAGS)
    found = next(_decided(instance, scan), None)
    return None if found is None or found.at_ms >= ms else found.revision


def _downwards(instance: Instance, from_ms: int) -> Iterator[_Found]:
    """Yield the revisions of trunk that are not aborted, from an id time down."""
    start = schema.revision_key(revisions.pack(min(from_ms, revisions.MAX_MS), 0, 0))
    first = Scan(start, None, FEW, reverse=True, columns=FLAGS)
    begun = list(islice(_decided(instance, first), FEW))
    yield from begun
    if begun:
        below = schema.revision_key(begun[-1].revision - 1)
        yield from _decided(instance, Scan(below, None, BATCH, reverse=True, columns=FLAGS))


def _decided(instance: Instance, scan: Scan) -> Iterator[_Found]:
    # Rows up to the trim level are deleted, or no revisions. HBase would step over the markers.
    trimmed = instance.journal.fence.trimmed
    if scan.reverse:
        scan = scan._replace(stop=schema.revision_key(trimmed))
    for row in journal_row.decode(scan_all(instance.store, schema.JOURNAL, scan)):
        if not row.is_branch and not row.aborted and row.revision > trimmed:
            yield _Found(row.revision, _decided_ms(row))


def _decided_ms(row: JournalRow) -> float:
    cell = row.cell(schema.COMMITTED)
    return float(cell.timestamp) if cell is not None and row.committed else float("inf")

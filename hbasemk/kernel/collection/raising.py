"""How a collector raises the horizon: announce, list what must stay readable, publish.

No branch and no checkpoint is ever below the horizon, so readers compare a view with the horizon only. A process that makes a
branch or a checkpoint writes it first and then looks at the horizon cell (:func:`~hbasemk.kernel.journal.fence.protect`).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Final, NamedTuple

from hbasemk.errors import ClockSkewError, FormatError
from hbasemk.format import checkpoint, journal_row, revisions, schema
from hbasemk.format.horizon import Horizon
from hbasemk.format.journal_row import BranchView
from hbasemk.kernel import settings
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal import fence
from hbasemk.kernel.journal.news import FLAGS
from hbasemk.kernel.journal.rows import journal_rows
from hbasemk.kernel.journal.sparse_scan import sparse_rows
from hbasemk.store.abc import Get, Scan, scan_all

BATCH: Final = 1000
NO_VIEW_MS: Final = 3_600_000
"""Id time that a checkpoint without a stored view keeps below its revision: what committed late is missing in its snapshot."""
EXPIRED_MS: Final = 3_600_000
"""How long an expired checkpoint still counts: the clock that set its expiry may be slightly wrong."""
ATTEMPTS: Final = 5


class Hold(NamedTuple):
    """What keeps the horizon from rising: a branch or checkpoint of this revision, which needs all above ``floor``.

    ``is_expired``: it is a checkpoint that has expired, and holds the horizon until it is removed.
    """

    kind: str
    revision: int
    floor: int
    is_expired: bool = False

    def __str__(self) -> str:
        return f"{self.kind} {revisions.to_text(self.revision)}"


def raise_horizon(instance: Instance, retention_ms: int) -> Horizon:
    """Raise the horizon to the newest revision older than the retention that nothing holds back; return the present one.

    The caller has polled. Raises ClockSkewError if this machine's clock and the store's differ too much to decide ages.
    """
    for _ in range(ATTEMPTS):
        current = fence.read_horizon(instance.store)
        target = committed_up_to(instance, oldest_needed(instance, retention_ms), current.revision)
        if target is None:
            return current
        announced = Horizon(current.revision, target, fence.new_nonce(instance.runtime))
        if not fence.replace(instance.store, current, announced):
            continue
        floors = [hold.floor for hold in holds(instance, current.revision)]
        published = committed_up_to(instance, min([target, *floors]), current.revision)
        new = published or current.revision
        if fence.publish(instance.store, announced, Horizon(new, new, fence.new_nonce(instance.runtime))):
            break
    return fence.read_horizon(instance.store)


def target(instance: Instance, retention_ms: int, current: int) -> tuple[int | None, Hold | None]:
    """Return the horizon that a run would publish now, None if the present one stays, and what holds it back. Writes nothing.

    A run first moves the watermark, usually up to the last revision before the first pending one.
    """
    pending = instance.journal.pending
    most = min(pending) - 1 if pending else instance.journal.highest_seen
    wanted = older_than(instance, retention_ms, most)
    hold = first_hold(instance, current, wanted)
    return committed_up_to(instance, wanted if hold is None else hold.floor, current), hold


def oldest_needed(instance: Instance, retention_ms: int) -> int:
    """Return the highest id that is at or below the watermark and older than the retention by both clocks."""
    _, watermark = settings.read(instance.store)
    return 0 if watermark is None else older_than(instance, retention_ms, watermark.revision)


def older_than(instance: Instance, retention_ms: int, most: int) -> int:
    """Return the highest id up to ``most`` that is older than the retention by both clocks; raise ClockSkewError."""
    own = instance.runtime.now_ms() - instance.settings.epoch_ms
    store = instance.lease.time()
    allowed = instance.settings.max_clock_skew_ms
    if abs(own - store) > allowed:
        raise ClockSkewError(
            f"the clock of this machine and that of the store at {instance.location} differ by {abs(own - store)} ms, and "
            f"{allowed} are allowed; the ages of revisions are not known, so nothing was collected. Set the clocks.",
            local_ms=own + instance.settings.epoch_ms,
            server_ms=store + instance.settings.epoch_ms,
            allowed_ms=allowed,
        )
    ms = min(own, store) - retention_ms
    return min(most, revisions.pack(min(ms, revisions.MAX_MS), 0, 0) - 1) if ms > 0 else 0


def committed_up_to(instance: Instance, revision: int, above: int) -> int | None:
    """Return the newest committed trunk revision up to an id and above another one; None if there is none."""
    if revision <= above:
        return None
    scan = Scan(schema.revision_key(revision), schema.revision_key(above), BATCH, reverse=True, columns=FLAGS)
    for row in journal_row.decode(scan_all(instance.store, schema.JOURNAL, scan)):
        if row.committed and not row.is_branch:
            return row.revision
    return None


def holds(instance: Instance, horizon: int) -> list[Hold]:
    """Return the branches and checkpoints that the horizon must not pass, lowest floor first.

    A branch counts until all of its cells are deleted. One whose view the horizon has passed was never completed.
    """
    found = [*_branches(instance, horizon), *_checkpoints(instance, horizon)]
    return sorted((hold for hold in found if hold.floor >= horizon), key=lambda hold: hold.floor)


def first_hold(instance: Instance, horizon: int, wanted: int) -> Hold | None:
    """Return the branch or checkpoint that keeps the horizon furthest below ``wanted``; None if nothing does."""
    return next((hold for hold in holds(instance, horizon) if hold.floor < wanted), None)


def _branches(instance: Instance, horizon: int) -> Iterator[Hold]:
    # The first revision of a branch is above everything in its view.
    scan = Scan(schema.revision_key(horizon + 1), None, BATCH, columns=(schema.BRANCH_VIEW,))
    rows = sparse_rows(instance.store, instance.runtime, instance.settings, scan)
    views = {row.revision: row.branch_view for row in journal_row.decode(rows) if row.is_branch}
    for row in journal_rows(instance.store, list(views), columns=(schema.SWEPT,)):
        view = views[row.revision]
        if row.swept is None and view is not None:
            yield Hold("branch", row.revision, view.extent.floor)


def _checkpoints(instance: Instance, horizon: int) -> Iterator[Hold]:
    (row,) = instance.store.read(schema.CLUSTER, [Get(schema.SETTINGS_ROW, families=(schema.DATA,))])
    cells = {cell.qualifier: cell.value for cell in row.cells}
    now = instance.lease.store_ms()
    earliest = instance.checkpoint_cells.earliest_ms()
    for qualifier, value in cells.items():
        revision = checkpoint.revision_of(qualifier)
        if revision is None:
            continue
        found = _list_of(value, revision)
        if not _counts(value, found, now):
            continue
        view = cells.get(checkpoint.view_column(revision)[1])
        floor = 0 if view is None else _floor_of(view)
        if not floor and revision >= horizon:
            # What its snapshot contains is unknown, except that it contains what committed long before.
            floor = max(revisions.earlier(revision, NO_VIEW_MS), horizon)
        is_expired = found is not None and all(entry.until_ms <= earliest for entry in found.entries)
        yield Hold("checkpoint", revision, floor, is_expired)


def _list_of(value: bytes, revision: int) -> checkpoint.CheckpointList | None:
    """Return the list of a checkpoint; None if it is damaged."""
    try:
        return checkpoint.CheckpointList.decode(value, revision)
    except FormatError:
        return None


def _counts(value: bytes, found: checkpoint.CheckpointList | None, now: int) -> bool:
    """Return whether a list of a checkpoint keeps its revision. A damaged one does; the integrity check reports it."""
    if found is None:
        return True
    if len(value) == checkpoint.OLD:
        # Only a time of expiry. Nobody extends it: who does so first looks whether it is readable.
        return found.entries[0].until_ms + EXPIRED_MS >= now
    return bool(found.entries)


def _floor_of(view: bytes) -> int:
    """Return the floor of a stored view; 0 if it is damaged, which the integrity check reports."""
    try:
        return BranchView.decode(view).extent.floor
    except (ValueError, zlib.error):
        return 0

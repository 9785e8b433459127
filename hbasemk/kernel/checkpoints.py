"""Checkpoints: snapshots of trunk that stay readable for a time, exactly as they were taken, in every process.

A checkpoint is an entry for a revision. Several users can keep one revision, each with an entry of its own, as long as
they keep the same view of it. An entry counts until it is removed by compare-and-set: when its user releases it, or
an hour after it has expired by the store's clock. Every change of a checkpoint, and the hourly maintenance, remove
expired entries.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from hbasemk.errors import BranchError, CheckpointError, ClosedError, FormatError, StoreError, StoreUnknownError
from hbasemk.format import revisions
from hbasemk.format.checkpoint import SHARED, CheckpointList, Entry, digest_of, revision_of
from hbasemk.format.journal_row import BranchView
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal import fence
from hbasemk.kernel.journal.checkpoint_cells import Stored
from hbasemk.kernel.journal.view import View
from hbasemk.kernel.retry import BRIEFLY, TimeLimit

_NAME: Final = re.compile("[0-9a-f]{16}-[0-9a-f]{8}")


class Checkpoint(NamedTuple):
    """One entry of a revision that is kept; ``until_ms`` is its time of expiry in ms since 1970, by the store's clock."""

    revision: int
    number: int
    until_ms: int
    message: str

    @property
    def name(self) -> str:
        """The text that names the checkpoint: the revision, a hyphen, and the number of the entry."""
        return name_of(self.revision, self.number)


def name_of(revision: int, number: int) -> str:
    """Return the name of a checkpoint."""
    return f"{revisions.to_text(revision)}-{number:08x}"


def keep_head(instance: Instance, lifetime_ms: int, message: str = "", *, shared: bool = False) -> Checkpoint:
    """Poll, and keep the head for so many ms from now; see :func:`keep`.

    If a checkpoint already keeps the revision of the head with more concurrent revisions, keep that view of it.
    """
    instance.poll()
    until_ms = instance.checkpoint_cells.latest_ms() + lifetime_ms
    return keep(instance, instance.head(), until_ms, message, shared=shared, or_more=True)


def keep_for(instance: Instance, view: View, lifetime_ms: int, message: str = "") -> Checkpoint:
    """Keep a view of trunk for so many ms from now, by the store's clock; see :func:`keep`."""
    return keep(instance, view, instance.checkpoint_cells.latest_ms() + lifetime_ms, message)


def keep(
    instance: Instance, view: View, until_ms: int, message: str = "", *, shared: bool = False, or_more: bool = False
) -> Checkpoint:
    """Keep a view of trunk until a time (ms since 1970), exactly as it is.

    Two round trips, one to remove old entries, and one where old revisions are collected. One more for the first checkpoint of
    a revision on a store without transactions.

    ``shared``: use the entry that all such users share; it keeps its time if that is later. Otherwise the entry is new.
    ``or_more``: accept a view that a checkpoint already keeps of this revision if it contains all of this view.

    Raises BranchError for a view of a branch, CheckpointError if a checkpoint keeps another view of the same revision or if the
    store does not show the new one, and RevisionCollectedError if the view is too old.
    """
    text = revisions.to_text(view.revision)
    if revisions.is_branch(view.revision):
        raise BranchError(f"a checkpoint keeps a snapshot of trunk, got branch revision {text}", revision=text)
    instance.journal.require_readable(view)
    cells = instance.checkpoint_cells
    wanted = BranchView(instance.journal.contents(view), view.upper)
    floor = 0
    kept = Entry(SHARED if shared else instance.runtime.random.getrandbits(32) or 1, until_ms, message)

    def change(stored: Stored, again: bool) -> tuple[CheckpointList, bytes | None] | None:
        nonlocal kept, floor
        found = stored.list
        data, floor = wanted.encode(), wanted.extent.floor
        if found.entries and stored.view is not None:
            _require_same(instance, stored, wanted, or_more=or_more)
            data, floor = stored.view.value, 0 if stored.kept is None else stored.kept.extent.floor
        same = found.entry(kept.number)
        if same is not None and shared:
            kept = max(same, kept._replace(message=kept.message or same.message), key=lambda entry: entry.until_ms)
        elif same is not None and not again:
            kept = kept._replace(number=instance.runtime.random.getrandbits(32) or 1)
        if same == kept and stored.view is not None:
            return None
        # The view is written again: if another process removes the old cells now, it spares the new ones.
        return found.replaced(kept)._replace(digest=digest_of(data)), data

    try:
        cells.change(view.revision, change)
        is_protected = fence.protect(instance.store, instance.runtime, floor)
        if is_protected:
            instance.outcomes.quietly(cells.remove_expired)
            return Checkpoint(view.revision, *kept)
    except BaseException as error:
        # Other exceptions than errors are interrupts such as Ctrl-C.
        if not shared and (isinstance(error, StoreError) or not isinstance(error, Exception)):
            _give_up(instance, view.revision, kept.number, error)
        raise
    # The collector did not see it. No process can read the view any more.
    _remove(instance, view.revision, kept.number)
    instance.journal.fence.refresh()
    raise instance.journal.collected(view)


def _remove(instance: Instance, revision: int, number: int) -> None:
    """Remove an entry of this call, if it exists."""

    def change(stored: Stored, _: bool) -> tuple[CheckpointList, bytes | None] | None:
        return None if stored.list.entry(number) is None else (stored.list.without(number), None)

    instance.checkpoint_cells.change(revision, change)


def _give_up(instance: Instance, revision: int, number: int, error: BaseException) -> None:
    """Remove an entry that no caller has received, after an error of the store or an interrupt.

    After an error, raise StoreUnknownError if it may still exist.
    """
    try:
        with TimeLimit(instance.runtime, BRIEFLY):
            _remove(instance, revision, number)
    except FormatError:
        # The list of entries is damaged, so it does not have the entry. The caller raises the error, which names the list.
        return
    except (StoreError, ClosedError):
        if not isinstance(error, StoreError):
            return
        raise StoreUnknownError(
            f"the store at {instance.location} failed while the checkpoint {name_of(revision, number)} was made ({error}), and "
            "again when it should be removed; it may exist. If it does, release it, or wait until it expires."
        ) from error


def _require_same(instance: Instance, stored: Stored, wanted: BranchView, *, or_more: bool) -> None:
    """Raise CheckpointError unless a checkpoint keeps the same revisions as a view, or more if ``or_more`` is True."""
    kept = stored.kept
    assert kept is not None
    cells = instance.checkpoint_cells
    lacks = cells.missing(wanted.extent, kept.extent)
    differing = lacks or ([] if or_more else cells.missing(kept.extent, wanted.extent))
    if not differing:
        return
    text, other = revisions.to_text(stored.revision), revisions.to_text(differing[0])
    verbs = ("lacks", "contains") if lacks else ("contains", "lacks")
    raise CheckpointError(
        f"a checkpoint keeps revision {text} as another process saw it: it {verbs[0]} the concurrent revision {other}, which "
        f"this snapshot {verbs[1]}. Nothing was written. Take a checkpoint of a newer snapshot, or of "
        f"repo.at({text!r}), which is the snapshot that the checkpoint keeps.",
        revision=text,
    )


def all_of(instance: Instance, damaged: dict[int, FormatError] | None = None) -> list[Checkpoint]:
    """Return all checkpoints, by revision, including some expired ones. One round trip for each 1000 revisions.

    Raises FormatError if the list of a revision is damaged, unless ``damaged`` is given: then adds the error to it.
    """
    found = []
    for cell in instance.checkpoint_cells.all_lists():
        revision = revision_of(cell.qualifier)
        if revision is None:
            continue
        try:
            entries = CheckpointList.decode(cell.value, revision).entries
        except FormatError as error:
            if damaged is None:
                raise
            damaged[revision] = error
        else:
            found += [Checkpoint(revision, *entry) for entry in entries]
    return found


def named(instance: Instance, name: str) -> Checkpoint | None:
    """Return the checkpoint with a name; None if there is none. One round trip, which reads only the list of its revision."""
    if _NAME.fullmatch(name) is None:
        return None
    text, _, number = name.partition("-")
    revision = int(text, 16)
    entry = instance.checkpoint_cells.read(revision).list.entry(int(number, 16))
    return None if entry is None else Checkpoint(revision, *entry)


def earliest_ms(instance: Instance) -> int:
    """Return the earliest time, in ms since 1970, that the store's clock can show now. At most two round trips.

    A checkpoint has expired if its ``until_ms`` is not later.
    """
    return instance.checkpoint_cells.earliest_ms()


def view_of(instance: Instance, revision: int) -> View | None:
    """Return the view that checkpoints keep of a revision now; None if none keeps one. Two to four round trips."""
    return instance.checkpoint_cells.read_view(revision)


def extend(instance: Instance, revision: int, number: int, lifetime_ms: int) -> Checkpoint:
    """Keep a checkpoint for at least so many ms from now; return it with its time. It never becomes shorter.

    Raises CheckpointError if it has been released or has expired by the store's clock.
    """
    now = instance.checkpoint_cells.latest_ms()
    extended = Checkpoint(revision, number, 0, "")

    def change(stored: Stored, again: bool) -> tuple[CheckpointList, None] | None:  # noqa: ARG001
        nonlocal extended
        found = stored.list
        entry = found.entry(number)
        if entry is None or entry.until_ms <= now:
            raise _ended(revision, number, "extended")
        longer = entry._replace(until_ms=max(entry.until_ms, now + lifetime_ms))
        extended = Checkpoint(revision, *longer)
        return None if longer == entry else (found.replaced(longer), None)

    instance.checkpoint_cells.change(revision, change)
    return extended


def release(instance: Instance, revision: int, number: int) -> None:
    """Remove a checkpoint; raise CheckpointError if it has been removed already."""

    def change(stored: Stored, again: bool) -> tuple[CheckpointList, None] | None:
        found = stored.list
        if found.entry(number) is None:
            if again:
                return None
            raise _ended(revision, number, "released")
        return found.without(number), None

    instance.checkpoint_cells.change(revision, change)
    instance.outcomes.quietly(instance.checkpoint_cells.remove_expired)


def end_damaged(instance: Instance, revision: int) -> None:
    """End all checkpoints of a revision whose list cannot be read. Nothing else ends them: nobody knows when they expire.

    Raises CheckpointError if the list can be read, or if there is none.
    """

    def change(stored: Stored, again: bool) -> tuple[CheckpointList, None] | None:
        try:
            found = stored.list
        except FormatError:
            return CheckpointList(0, ()), None
        if again and not found.entries:
            return None
        text = revisions.to_text(revision)
        raise CheckpointError(
            f"no damaged checkpoint keeps revision {text}. Name the checkpoints to end: `hbasemk checkpoint list` shows them.",
            revision=text,
        )

    instance.checkpoint_cells.change(revision, change)


def _ended(revision: int, number: int, what: str) -> CheckpointError:
    return CheckpointError(
        f"checkpoint {name_of(revision, number)} cannot be {what}: it has been released, or has expired. "
        "repo.checkpoints() and `hbasemk checkpoint list` show those that exist, and expired ones for up to an hour; make a new "
        "one if you need the snapshot.",
        revision=revisions.to_text(revision),
    )

"""Checkpoints: snapshots that stay readable for a time, exactly as they were taken, in every process."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable

from hbasemk import arguments
from hbasemk.errors import FormatError, InvalidValueError, UnknownRevisionError
from hbasemk.format import limits, revisions
from hbasemk.format.checkpoint import MAX_MESSAGE
from hbasemk.format.moments import moment
from hbasemk.kernel import checkpoints
from hbasemk.maintenance import LiveInstance
from hbasemk.options import CENTURY
from hbasemk.snapshot import Snapshot, view_of


class Checkpoint:
    """A snapshot that is kept until a time, unless :meth:`release` ends it before; see :meth:`Repository.checkpoint`.

    Several checkpoints can keep one revision. Each has its own ``name``, and ends by itself.
    """

    __slots__ = ("_get_instance", "_kept")

    def __init__(self, get_instance: Callable[[], LiveInstance], kept: checkpoints.Checkpoint) -> None:
        self._get_instance = get_instance
        self._kept = kept

    @property
    def name(self) -> str:
        """The text that names this checkpoint, for ``hbasemk checkpoint``: the revision, a hyphen, 8 hexadecimal digits."""
        return self._kept.name

    @property
    def revision(self) -> str:
        """The revision of the snapshot as text. ``repo.at(revision)`` is the snapshot."""
        return revisions.to_text(self._kept.revision)

    @property
    def until(self) -> datetime.datetime:
        """The time at which the checkpoint expires by the store's clock, in UTC, as this object last read it."""
        return moment(self._kept.until_ms)

    @property
    def message(self) -> str:
        """The message with which it was made."""
        return self._kept.message

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot, exactly as it was taken. Two to four round trips. Raises UnknownRevisionError if it has ended."""
        instance = self._get_instance()
        view = checkpoints.view_of(instance, self._kept.revision)
        if view is None:
            raise UnknownRevisionError(
                f"no checkpoint keeps revision {self.revision} any more: {self.name} has been released, or has expired. "
                "Read another snapshot, or make a new checkpoint.",
                revision=self.revision,
            )
        return Snapshot(instance, view)

    def extend(self, lifetime: float) -> None:
        """Keep the snapshot for at least ``lifetime`` seconds from now. It never expires earlier than before.

        Raises InvalidValueError for a lifetime as :meth:`Repository.checkpoint`, and CheckpointError if the checkpoint has been
        released or has expired.
        """
        lifetime_ms = _lifetime_ms(lifetime)
        self._kept = checkpoints.extend(self._get_instance(), self._kept.revision, self._kept.number, lifetime_ms)

    def release(self) -> None:
        """End the checkpoint now. Raises CheckpointError if it has been released already, or removed after its expiry."""
        checkpoints.release(self._get_instance(), self._kept.revision, self._kept.number)

    def __repr__(self) -> str:
        return f"<Checkpoint {self.name} until {self.until.isoformat(timespec='seconds')}>"


def make(
    get_instance: Callable[[], LiveInstance], lifetime: float, snapshot: Snapshot | None, message: str
) -> Checkpoint:
    """Make a checkpoint; see :meth:`Repository.checkpoint`."""
    lifetime_ms = _lifetime_ms(lifetime)
    if limits.size(arguments.text(message, "message")) > MAX_MESSAGE:
        raise InvalidValueError(
            f"message must have at most {MAX_MESSAGE} bytes, got {limits.size(message)}: every process reads it"
        )
    instance = get_instance()
    if snapshot is None:
        return Checkpoint(get_instance, checkpoints.keep_head(instance, lifetime_ms, message))
    view = view_of(instance, snapshot)
    return Checkpoint(get_instance, checkpoints.keep_for(instance, view, lifetime_ms, message))


def list_all(
    get_instance: Callable[[], LiveInstance], damaged: dict[int, FormatError] | None = None
) -> list[Checkpoint]:
    """Return all checkpoints; see :meth:`Repository.checkpoints`. ``damaged`` receives errors by revision."""
    return [Checkpoint(get_instance, kept) for kept in checkpoints.all_of(get_instance(), damaged)]


def find(get_instance: Callable[[], LiveInstance], name: str) -> Checkpoint | None:
    """Return the checkpoint with a name; None if there is none. One round trip."""
    kept = checkpoints.named(get_instance(), name)
    return None if kept is None else Checkpoint(get_instance, kept)


def _lifetime_ms(lifetime: float) -> int:
    """Return a lifetime in ms, rounded up; raise TypeError, and InvalidValueError for a number out of range."""
    seconds = arguments.number(lifetime, "lifetime")
    if not 0 < seconds <= CENTURY:
        raise InvalidValueError(
            f"lifetime must be a number of seconds, more than 0 and at most {CENTURY} (100 years), got {limits.shown(lifetime)}"
        )
    return math.ceil(seconds * 1000)

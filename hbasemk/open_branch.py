"""The branches that have not ended, as :meth:`Repository.branches` lists them."""

from __future__ import annotations

import datetime
from dataclasses import dataclass

from hbasemk.format import revisions
from hbasemk.format.moments import moment
from hbasemk.kernel.instance import Instance


@dataclass(frozen=True, slots=True)
class OpenBranch:
    """A branch that is neither merged nor rebased nor abandoned; ``repo.resume_branch(revision)`` continues it.

    ``revision`` is its newest revision and ``first`` its first one, both as text. ``base`` is the trunk revision on which it is
    based, and ``message`` that of :meth:`Repository.branch`. On HBase ``repo.at(base)`` may be another snapshot than
    :attr:`Branch.base`. ``begun`` and ``time`` are the times in ``first`` and ``revision``,
    in UTC. ``writer`` is the process that made ``revision``, as ``hbasemk status`` names the holders of leases; None if that
    is no longer recorded.
    """

    revision: str
    first: str
    base: str | None
    message: str
    begun: datetime.datetime
    time: datetime.datetime
    writer: str | None


def list_all(instance: Instance) -> list[OpenBranch]:
    """Return the open branches by their first revision; see :meth:`Repository.branches`."""
    return [
        OpenBranch(
            revision=revisions.to_text(one.newest),
            first=revisions.to_text(one.first),
            base=None if one.base is None else revisions.to_text(one.base),
            message=one.message,
            begun=moment(one.begun_ms),
            time=moment(one.time_ms),
            writer=one.writer,
        )
        for one in instance.open_branches()
    ]

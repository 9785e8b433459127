"""The status of a repository as its tables and one instance show it: the watermark, pending revisions and leases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hbasemk.format.watermark import Watermark
from hbasemk.kernel import settings
from hbasemk.kernel.ids.leases import all_leases
from hbasemk.kernel.instance import Instance


class LeaseStatus(NamedTuple):
    """The lease of one machine id.

    ``end_ms``: its end in ms since 1970, None if the lease cannot be read; ``held``: whether it continues now, as far as is
    known.
    """

    machine: int
    holder: str
    end_ms: int | None
    held: bool


class RepositoryStatus(NamedTuple):
    """The watermark (None: there is none), the number of known revisions above it, pending revisions, and leases."""

    watermark: Watermark | None
    above: int
    pending: Sequence[int]
    leases: Sequence[LeaseStatus]


def repository_status(instance: Instance) -> RepositoryStatus:
    """Return the status of a repository. One round trip, and one for each 1000 machine ids."""
    watermark = read_watermark(instance)
    above = 0 if watermark is None else sum(revision > watermark.revision for revision in instance.journal)
    return RepositoryStatus(watermark, above, sorted(instance.journal.pending), _leases(instance))


def read_watermark(instance: Instance) -> Watermark | None:
    """Return the watermark in the store. One round trip."""
    return settings.read(instance.store)[1]


def _leases(instance: Instance) -> list[LeaseStatus]:
    now, epoch = instance.runtime.now_ms(), instance.settings.epoch_ms
    found = []
    damaged: set[int] = set()
    for machine, record in all_leases(instance.store, damaged).items():
        end = record.end + epoch
        found.append(LeaseStatus(machine, record.holder, end, end > now))
    found += [LeaseStatus(machine, "unknown", None, held=False) for machine in sorted(damaged)]
    return found

"""Upgrade a repository to the format of this version, while no process uses it (``docs/operations.md``).

The upgrade changes no data. It does this:

1. It replaces leases that cannot be read, as a repair does: no other command can, because each refuses the older format.
   Then it refuses if the lease of a process has not ended.
2. In a store that orders all writes it numbers the revisions above the watermark (:class:`Numbering`). In others it enters
   those of format 1 into logs (:func:`enter_all`), and closes the logs of later formats (:func:`close_all`).
3. It refuses if a lease has changed since step 1.
4. It replaces the format in the settings, in one compare-and-set.
5. It reads the leases again. If a process of an older version took one meanwhile, it raises an error that names the
   process. Processes of this version read the settings when they claim or renew a lease, so they stop by themselves.

A crash before step 4 leaves a repository of the old format; after it, the upgrade is complete. Of several upgrades at
once, one succeeds. The others find the new format, or raise an error if their numbers were overtaken.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any, Final

from hbasemk.errors import CHECK_ADVICE, FormatError, InvalidValueError, StoreUnusableError
from hbasemk.format import schema
from hbasemk.format.lease_record import LeaseRecord
from hbasemk.format.limits import shown
from hbasemk.kernel import settings
from hbasemk.kernel.arrival_numbering import MARK, Numbering, read_settings, replace_settings
from hbasemk.kernel.ids import damaged_lease
from hbasemk.kernel.ids.lease import Lease
from hbasemk.kernel.ids.leases import all_leases
from hbasemk.kernel.log_upgrade import close_all, enter_all
from hbasemk.kernel.retry import BRIEFLY, TimeLimit
from hbasemk.kernel.retrying_store import RetryingStore
from hbasemk.kernel.runtime import Runtime
from hbasemk.kernel.settings import Settings
from hbasemk.store.abc import Store

OLDER_CHECK: Final = ". `hbasemk check` of a version with the repository's format lists what is damaged."
"""Replaces :data:`CHECK_ADVICE`: the check of this version refuses an older format."""
WATCH_EVERY: Final = 1.0
"""Seconds between two reads of a lease that ends far ahead."""
_BEGIN: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True, slots=True)
class Upgraded:
    """What an upgrade did. If ``before`` equals ``after``, the repository had that format already."""

    before: int
    after: int
    numbered: int = 0
    """How many rows above the watermark got an arrival number, or were entered into a log."""
    aborted: int = 0
    """How many of them were pending and have been aborted."""


def upgrade(store: Store, runtime: Runtime, say: Callable[[str], object], wanted: int | None = None) -> Upgraded:
    """Upgrade the repository in a store to the format ``wanted``, None: the format of this version.

    ``say`` is called with a text for each step that takes long. Raises InvalidValueError for a format to which this version
    cannot upgrade, and FormatError if a newer version wrote the repository, or if it is damaged. Raises StoreUnusableError if
    there is no repository, if this user may only read it, or if a process uses it.
    """
    try:
        return _upgrade(store, runtime, say, wanted)
    except FormatError as error:
        error.message = error.message.replace(CHECK_ADVICE, OLDER_CHECK)
        raise


def _upgrade(store: Store, runtime: Runtime, say: Callable[[str], object], wanted: int | None) -> Upgraded:
    newest = settings.format_of(store)
    if wanted is not None and (type(wanted) is not int or not 1 <= wanted <= newest):
        raise InvalidValueError(
            f"the format must be an int from 1 to {newest}, which this version of hbasemk knows; got {shown(wanted)}. "
            "Use a newer version for a later format. Nothing was written."
        )
    retrying = RetryingStore(store, runtime)
    # A wrong address is reported at once.
    with TimeLimit(runtime, BRIEFLY):
        retrying.verify(schema.TABLES)
        found, watermark = settings.read(retrying, any_format=True)
    if found is None:
        raise StoreUnusableError(f"there is no repository at {store.location}, so there is nothing to upgrade")
    after = newest if wanted is None else wanted
    if _is_reached(found, after, store):
        return Upgraded(after, after)
    if store.read_only:
        raise StoreUnusableError(
            f"the repository at {store.location} has format {found.format}, and this user may only read it; run "
            "`hbasemk upgrade` as a user who may write to it. Nothing was written."
        )
    return _Upgrade(retrying, runtime, found, say).run(after, 0 if watermark is None else watermark.revision)


def _is_reached(found: Settings, after: int, store: Store) -> bool:
    """Return whether the repository has the format ``after``; raise InvalidValueError if it has a later one."""
    if found.format > after:
        raise InvalidValueError(
            f"the repository at {store.location} has format {found.format} and cannot be downgraded to format {after}; restore "
            "a copy, or export the tree and import it into a new repository. The format was not changed."
        )
    return found.format == after


class _Upgrade:
    """One run of the upgrade of one repository."""

    def __init__(self, store: RetryingStore, runtime: Runtime, found: Settings, say: Callable[[str], object]) -> None:
        self._store = store
        self._runtime = runtime
        self._settings = found
        self._say = say
        self._lease = Lease(store, runtime, found)

    def run(self, after: int, floor: int) -> Upgraded:
        """Run all steps; revisions at or below ``floor`` need no number."""
        leases = self._wait_for_leases()
        stored = read_settings(self._store)
        found = Settings.decode(stored, self._store)
        # Another upgrade may have ended meanwhile.
        if _is_reached(found, after, self._store):
            return Upgraded(after, after)
        before = found.format
        numbering = Numbering(self._store, self._runtime)
        if self._store.supports_transactions:
            stored = numbering.run(stored, floor)
        else:
            prepare = enter_all if before < 2 else close_all
            numbering.numbered, numbering.aborted = prepare(self._store, floor)
        new = [record for machine, record in all_leases(self._store).items() if leases.get(machine) != record]
        if new:
            raise self._in_use("began to use it during the upgrade", new)
        fields: dict[str, Any] = json.loads(stored)
        fields.pop(MARK, None)
        if not replace_settings(self._store, stored, json.dumps({**fields, "format": after}).encode()):
            return self.run(after, floor)
        self._report_older(leases, after)
        return Upgraded(before, after, numbering.numbered, numbering.aborted)

    # --- leases ------------------------------------------------------------------------------------------

    def _wait_for_leases(self) -> Mapping[int, LeaseRecord]:
        """Return all leases after all have ended; raise StoreUnusableError if a process may still use one.

        A clock that was wrong can put the end of a lease far ahead. This watches such a lease: a live holder renews it. It also
        waits for a lease that replaces a damaged one: the process that lost that one claims another if it lives.
        """
        longest = self._settings.lease_ms + self._settings.max_clock_skew_ms
        first: Mapping[int, LeaseRecord] | None = None
        while True:
            leases = self._readable_leases()
            live = {one: leases[one] for one in leases if not self._lease.has_ended(one, leases[one])}
            held = [record for record in live.values() if record.nonce != damaged_lease.NOBODY]
            soon = [record for record in held if record.end - self._lease.time() <= longest]
            if soon:
                raise self._in_use("may still use it", soon)
            if not live:
                return leases
            if first is None:
                first = live
                if held:
                    self._say(
                        f"the lease of {_names(held)} ends far ahead of the clock; waiting {longest / 1000:g} s to see whether "
                        "its process is alive"
                    )
            renewed = [record for machine, record in live.items() if first.get(machine) != record]
            if renewed:
                raise self._in_use("renewed its lease just now", renewed)
            self._runtime.sleep(WATCH_EVERY)

    def _readable_leases(self) -> Mapping[int, LeaseRecord]:
        """Return all leases, after the replacement of those that cannot be read."""
        while True:
            damaged: set[int] = set()
            leases = all_leases(self._store, damaged)
            if not damaged:
                return leases
            for machine in sorted(damaged):
                if damaged_lease.replace(self._store, self._settings, self._lease, machine) is not None:
                    self._say(
                        f"the lease of machine id {machine:04x} cannot be read; the upgrade has replaced it, and waits until the "
                        "new one is over"
                    )

    def _in_use(self, does: str, records: list[LeaseRecord]) -> StoreUnusableError:
        now = self._lease.time()
        left = max(record.end for record in records) + self._settings.max_clock_skew_ms - now
        if left <= self._settings.lease_ms + 2 * self._settings.max_clock_skew_ms:
            ends = _BEGIN + timedelta(milliseconds=now + left + self._settings.epoch_ms)
            until = f"its lease is over at {ends:%Y-%m-%d %H:%M:%S} UTC, {max(left, 0) / 1000:.1f} s from now, at the latest"
        else:
            until = "it runs"
        return StoreUnusableError(
            f"the repository at {self._store.location} cannot be upgraded while a process uses it, and {_names(records)} "
            f"{does} ({until}). End all processes that use the repository and try again after that. It has format "
            f"{Settings.decode(read_settings(self._store), self._store).format}."
        )

    def _report_older(self, before: Mapping[int, LeaseRecord], after: int) -> None:
        """Raise StoreUnusableError if a process of an older version took a lease at the moment of the upgrade."""
        leases = all_leases(self._store).items()
        older = [record for machine, record in leases if before.get(machine) != record and record.format < after]
        if older:
            raise StoreUnusableError(
                f"the repository at {self._store.location} has format {after} now, but {_names(older)} began to use it with an "
                "older version at the same moment; end this process at once, then run `hbasemk check`"
            )


def _names(records: Iterable[LeaseRecord]) -> str:
    return ", ".join(sorted({record.holder or "a process without a name" for record in records}))

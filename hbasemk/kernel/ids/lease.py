"""The lease of a machine id, which ensures that no two processes issue the same revision id.

A lease is an interval of *id time*. Its holder issues only ids whose ms lie inside the interval, and the next holder's
interval starts where this one ended. This alone keeps ids unique (I1), whatever any clock shows. Clocks only decide
when another process may take over a lease.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from hbasemk.errors import (
    ClosedError,
    FormatError,
    LeaseLostError,
    SchemaVersionError,
    StoreNotAppliedError,
    StoreUnusableError,
)
from hbasemk.format import revisions, schema
from hbasemk.format.horizon import Horizon
from hbasemk.format.lease_record import LeaseRecord, record_of
from hbasemk.kernel import schema_version
from hbasemk.kernel import settings as kernel_settings
from hbasemk.kernel.damage import Damage
from hbasemk.kernel.ids import log_holder
from hbasemk.kernel.ids.leases import lease_of, leases_of
from hbasemk.kernel.ids.log_holder import TakenLog
from hbasemk.kernel.ids.server_clock import MEASUREMENT_VALID, ServerClock
from hbasemk.kernel.retry import run_with_retries
from hbasemk.kernel.retrying_store import RetryingStore
from hbasemk.kernel.runtime import Runtime
from hbasemk.kernel.schema_version import Accepted
from hbasemk.kernel.settings import Settings
from hbasemk.store.abc import Get, NewCell, Put, Row

WATCHED: Final = Get(schema.SETTINGS_ROW, columns=(schema.SETTINGS, schema.SCHEMA_VERSION, schema.HORIZON))
"""What each claim and each renewal reads again."""
PROBES_PER_READ: Final = 16
QUICK_CLAIM: Final = 5.0
"""Seconds; less than a collector waits after it has shown a horizon to claims, before it deletes leases."""


class Lease:
    """One instance's lease of a machine id, claimed at the first commit and renewed in the background.

    Each claim and each renewal reads the format and the application's schema number again. ``accepted`` are the numbers
    with which the instance may commit (None: all).
    """

    def __init__(
        self, store: RetryingStore, runtime: Runtime, settings: Settings, accepted: Accepted | None = None
    ) -> None:
        self.store = store
        self.accepted = accepted
        self._runtime = runtime
        self._settings = settings
        self._lock = runtime.lock()
        self._record: LeaseRecord | None = None
        self._unconfirmed: LeaseRecord | None = None
        self._log: tuple[bytes, TakenLog] | None = None
        self._renewed_at = 0.0
        self._observed: dict[int, tuple[bytes, float]] = {}
        self.machine = 0
        self.is_closed = False
        """Whether the instance has been closed, and so its lease is released for good."""
        self.server = ServerClock(store, runtime)

    @property
    def settings(self) -> Settings:
        """The settings of the repository."""
        return self._settings

    @property
    def held(self) -> bool:
        """Whether this instance holds a machine id. The lease may need renewal before the next id."""
        return self._record is not None and (self.store.supports_transactions or self.log is not None)

    @property
    def nonce(self) -> bytes:
        """The random bytes that tell this lease from any other; empty without a lease."""
        return self._record.nonce if self._record else b""

    @property
    def log(self) -> TakenLog | None:
        """The log of the machine id as this lease found it; None without a lease, or if the store orders all writes."""
        return self._log[1] if self._record is not None and self._log and self._log[0] == self._record.nonce else None

    @property
    def above(self) -> int:
        """The id above which the ids of this lease must be: the log's bound, or the watermark at the claim."""
        log = self.log
        return 0 if log is None else log.above

    @property
    def start(self) -> int:
        """The first ms, since the repository's epoch, for which ids may be issued."""
        return self._record.start if self._record else 0

    @property
    def end(self) -> int:
        """The first ms, since the repository's epoch, for which an id needs a renewal."""
        return self._record.end if self._record else 0

    @property
    def seconds(self) -> float:
        """The length of a lease."""
        return self._settings.lease_ms / 1000

    def due(self) -> bool:
        """Return whether a third of the lease has passed, so that renewal is due. The wall clock here plays no part.

        The end of the lease alone does not show this: if ids are ahead of the store's clock, so is the end.
        """
        lease_ms = self._settings.lease_ms
        unrenewed = (self._runtime.monotonic() - self._renewed_at) * 1000
        return self.held and (self.end - self._id_time() < lease_ms * 2 / 3 or unrenewed > lease_ms / 3)

    def claim(self, above: int = 0) -> None:
        """Claim a machine id: the one derived from the MAC, or the next one that is free or whose lease has expired.

        ``above`` is an id that the first id of the lease must exceed. Raises StoreUnusableError if all 65,536 are held,
        FormatError if this version does not know the repository's format, SchemaVersionError for a schema number that this
        process does not accept, and RevisionOverflowError if the lease would begin after the last id.
        """
        with self._lock:
            if self._record is None:
                self._claim(revisions.ms_of(above))
            if not self.held:
                self._take_log()

    def _claim(self, above_ms: int) -> None:
        preferred, name = self._runtime.identity()
        holder = f"{name} (format {kernel_settings.format_of(self.store)})"
        self.measure()
        for first in range(0, revisions.MAX_MACHINE + 1, PROBES_PER_READ):
            machines = [(preferred + first + n) & revisions.MAX_MACHINE for n in range(PROBES_PER_READ)]
            gets = [Get(schema.machine_key(machine), columns=(schema.LEASE,)) for machine in machines]
            began = self._runtime.monotonic()
            current, *rows = self.store.read(schema.CLUSTER, [WATCHED, *gets])
            self._check_settings(current)
            for machine, row in zip(machines, rows, strict=True):
                try:
                    found = record_of(row)
                except FormatError:
                    # Nobody knows which ids it covers, so its machine id stays unused. The integrity check reports it.
                    continue
                if found is not None and found == self._unconfirmed:
                    # An earlier attempt claimed it, and the reply was lost.
                    self._hold(machine, found)
                    self._confirm(may_be_late=True)
                    return
                horizon_ms = _above_horizon(current)
                free_from = max(horizon_ms, 0 if found is None else found.end)
                if (found is None or self._is_free(found, above_ms)) and self._take(machine, found, free_from, holder):
                    is_slow = self._runtime.monotonic() - began > QUICK_CLAIM
                    self._confirm(may_be_late=found is None and (is_slow or horizon_ms > 0))
                    return
        raise StoreUnusableError(
            f"all {revisions.MAX_MACHINE + 1} machine ids of the repository at {self.store.location} are leased; "
            "close an instance, or wait until a lease expires"
        )

    def _take_log(self) -> None:
        """Take over the log of the machine id; raise LeaseLostError if a later holder has it.

        Raises FormatError and SchemaVersionError as :meth:`claim`: a process that was paused before this may have read the
        settings long ago, or hold a lease that is long over.
        """
        record = self._record
        if record is not None:
            taken = log_holder.take(self.store, self.machine, record)
            if taken is None:
                raise self.lost()
            self._check_claim(taken.settings)
            self._log = record.nonce, taken

    def renew(self, until: int = 0) -> None:
        """Extend the lease, at least past the id time ``until``; raise LeaseLostError if another process took it over.

        Raises FormatError if the repository has been upgraded to a format that this version does not know, and
        SchemaVersionError if its schema number has become one that this process does not accept. The lease is then given up.
        After a StoreError the lease is unchanged or longer; the next renewal finds out which. Retried as a whole, so that other
        threads go on while this one waits for the store.
        """
        run_with_retries(self._runtime, lambda: self._renew(until))

    def _renew(self, until: int = 0) -> None:
        with self._lock:
            record = self._record
            if record is None:
                raise self.lost()
            found = record
            while not self._extend(record, found, until):
                # An earlier renewal may have arrived although its reply was lost. The number may have been set before that and
                # after the last check, so check again: between any two renewals, the process has read the number.
                latest = lease_of(self.store, self.machine)
                if latest is None or latest.nonce != record.nonce:
                    raise self.lost()
                found = latest

    def _extend(self, record: LeaseRecord, found: LeaseRecord, until: int) -> bool:
        """Check the settings, and renew the lease; return False unless ``found`` is in its row."""
        try:
            self._check_settings(*self.measure([WATCHED]))
        except (FormatError, SchemaVersionError):
            self._record = None
            raise
        # Never shorten a lease: ids up to its end may exist, and the next holder's ids begin there. Always change it: the change
        # shows other processes that the holder is alive. A clock that is past the last id extends no lease.
        now = min(self._id_time(), revisions.MAX_MS)
        end = max(max(now, until, record.start) + self._settings.lease_ms, found.end + 1)
        renewed = LeaseRecord(record.start, end, record.nonce, record.holder)
        return self._write(self.machine, found, renewed)

    def keep(self) -> None:
        """Renew the lease if it is due, during a call that may last longer than a lease.

        If the lease is lost or damaged, the work continues: another instance may have aborted it, and its compare-and-set shows
        that. Retried as :meth:`renew`.
        """
        if self._record is not None and self.due():
            run_with_retries(self._runtime, self._keep)

    def _keep(self) -> None:
        with self._lock:
            record = self._record
            if record is None or not self.due():
                return
            try:
                self._renew()
            except LeaseLostError:
                # The next request for an id raises the error.
                self._record = record
            except FormatError:
                # So does the next renewal, or each call of a store that has been stopped.
                return

    def measure(self, also: Sequence[Get] = ()) -> list[Row]:
        """Measure the store's clock again, and return the rows of ``also``. Two round trips."""
        machine = self.machine if self.held else self._runtime.identity()[0]
        return self.server.measure(schema.machine_key(machine), also)

    def _check_settings(self, row: Row) -> None:
        """Stop this instance if the settings show another format; raise SchemaVersionError for a number it does not accept."""
        error = kernel_settings.format_change(row, self.store)
        if error is not None:
            # The instance may misread what others write.
            self.store.stop(error)
            raise error
        if self.accepted is not None:
            schema_version.require(schema_version.of_row(row), self.accepted, self.store.location)

    def _check_claim(self, row: Row) -> None:
        """Give up a claimed lease, and raise, as :meth:`_check_settings` says."""
        try:
            self._check_settings(row)
        except SchemaVersionError:
            self.release(0)
            raise
        except FormatError:
            # The store is stopped, so the lease ends by itself.
            self._record = None
            raise

    def _confirm(self, *, may_be_late: bool) -> None:
        """Read again after a claim what may have changed meanwhile. One round trip if anything may have.

        The schema number: this call finds a change, or the changing process finds the lease. In a store without an order of
        writes also the horizon, for a claim that may have read it before an earlier lease was deleted (``may_be_late``). If it
        fails, the next claim repeats it.
        """
        may_be_late = may_be_late and not self.store.supports_transactions
        if self.accepted is None and not may_be_late:
            return
        record = self._record
        try:
            self._confirm_now(may_be_late)
        except BaseException:
            if self._record is record:
                self._record, self._unconfirmed = None, record
            raise

    def _confirm_now(self, may_be_late: bool) -> None:
        own = [Get(schema.machine_key(self.machine), columns=(schema.LEASE,))] if may_be_late else []
        current, *rows = self.store.read(schema.CLUSTER, [WATCHED, *own])
        self._check_claim(current)
        if may_be_late:
            self._begin_above(_above_horizon(current), record_of(rows[0]))

    def _begin_above(self, horizon_ms: int, found: LeaseRecord | None) -> None:
        """Raise the begin of a claimed lease, ``found`` in its row, if the lease before it ended later."""
        record = self._record
        if record is None:
            raise self.lost()
        if found is None:
            self._record = None
            raise StoreNotAppliedError(
                f"the lease of machine id {self.machine:#06x} written to {self.store.location} could not be read back: the "
                "store's clock went back to a time before an earlier lease was deleted; retry when that time has come again"
            )
        if record.start < horizon_ms:
            later = LeaseRecord(horizon_ms, max(horizon_ms, record.end) + 1, record.nonce, record.holder)
            if not self._write(self.machine, record, later):
                raise self.lost()

    def release(self, issued: int) -> None:
        """Release the machine id when closing; ``issued`` is the highest ms for which ids were issued."""
        with self._lock:
            record = self._record
            if record is None:
                return
            self._record = None
            end = min(record.end, max(self._id_time(), issued, record.start) + 1)
            self._compare_and_set(self.machine, record, record.released(end))

    def forget(self) -> None:
        """Drop the claim without a call. A forked child must do so, because its parent still uses the lease."""
        self._record = self._unconfirmed = None

    def is_over(self, revision: int) -> bool:
        """Return whether the lease under which ``revision`` was issued has ended. Round trips as :meth:`over`."""
        return bool(self.over([revision]))

    def over(self, issued: Iterable[int], damage: Damage | None = None) -> list[int]:
        """Return those of some revisions whose lease has ended, in the given order; never the repository's first revision.

        One round trip for each batch of machine ids, and two more if the store's clock was not measured recently. Only the
        store's clock may decide that another process's lease has expired.

        Raises FormatError if a lease is damaged. With ``damage``, keeps the error there and leaves out the lease's revisions.
        """
        # The first revision was created as committed. If it seems pending, its row is damaged, and a roll-back would delete /.
        first = self._settings.root_revision
        machines = {revision: revisions.machine_of(revision) for revision in issued if revision != first}
        records = leases_of(self.store, list(dict.fromkeys(machines.values())), damage)
        over: list[int] = []
        for revision, machine in machines.items():
            if machine not in records:
                continue
            record = records[machine]
            if record is None or record.start > revisions.ms_of(revision) or self.has_ended(machine, record):
                over.append(revision)
        return over

    def has_ended(self, machine: int, record: LeaseRecord) -> bool:
        """Return whether the lease in ``record`` is over. Two round trips if the store's clock was not measured recently."""
        self._measure_if_old()
        return self._is_over(record) or self._is_stale(machine, record)

    def _is_stale(self, machine: int, record: LeaseRecord) -> bool:
        """Return whether a lease that ends far ahead went without renewal for longer than a lease lasts.

        A wrong clock, or ids that were ahead, can put the end of a lease far ahead. A live holder renews much earlier,
        so the holder of such a lease is dead. This process measures the time itself.
        """
        longest = self._settings.lease_ms + self._settings.max_clock_skew_ms
        if record.end - self._id_time() <= longest:
            self._observed.pop(machine, None)
            return False
        now = self._runtime.monotonic()
        seen, since = self._observed.get(machine, (b"", now))
        if seen != record.encode():
            self._observed[machine] = record.encode(), now
            return False
        return (now - since) * 1000 > longest

    def time(self) -> int:
        """Return a lower bound of the store's current id time. Two round trips if it was not measured recently."""
        self._measure_if_old()
        return self._id_time()

    def store_ms(self) -> int:
        """Return a lower bound of the store's current time in ms since 1970. Round trips as :meth:`time`."""
        return self.time() + self._settings.epoch_ms

    def _measure_if_old(self) -> None:
        if not self.server.is_recent(MEASUREMENT_VALID):
            self.measure()

    def _id_time(self) -> int:
        """Return a lower bound of the store's current id time; the clock must have been measured."""
        return int(self.server.at_least(self._runtime.monotonic())) - self._settings.epoch_ms

    def _is_over(self, record: LeaseRecord) -> bool:
        # The holder's own clock may be behind the store's by the allowed skew.
        return record.end + self._settings.max_clock_skew_ms <= self._id_time()

    def _is_free(self, record: LeaseRecord, above_ms: int) -> bool:
        """Return whether a claim may take a lease: it is over, or is released and far ahead, as ids up to ``above_ms`` are.

        Otherwise each short process would use up one more machine id, until the time catches up with the ids.
        """
        skew = self._settings.max_clock_skew_ms
        return self._is_over(record) or (record.is_released and self._id_time() + skew < record.end <= above_ms + skew)

    def _take(self, machine: int, found: LeaseRecord | None, free_from: int, holder: str) -> bool:
        # The local clock may lag behind, but a clock that is ahead must not take id time from others.
        now = self._id_time()
        start = max(min(now, self._runtime.now_ms() - self._settings.epoch_ms), free_from)
        # A lease without ids would block this instance even after a wrong clock is right again.
        revisions.pack(start, machine, 0)
        nonce = self._runtime.random.getrandbits(128).to_bytes(16, "big")
        self._unconfirmed = LeaseRecord(start, max(start, now) + self._settings.lease_ms, nonce, holder)
        return self._write(machine, found, self._unconfirmed)

    def _write(self, machine: int, found: LeaseRecord | None, record: LeaseRecord) -> bool:
        if not self._compare_and_set(machine, found, record):
            return False
        self._hold(machine, record)
        return True

    def _hold(self, machine: int, record: LeaseRecord) -> None:
        self.machine = machine
        self._record = record
        self._unconfirmed = None
        self._renewed_at = self._runtime.monotonic()

    def _compare_and_set(self, machine: int, found: LeaseRecord | None, record: LeaseRecord) -> bool:
        row = schema.machine_key(machine)
        put = Put(row, [NewCell(*schema.LEASE, record.encode())])
        expected = found.encode() if found else None
        if self.store.check_and_write(schema.CLUSTER, schema.LEASE, expected, put):
            return True
        # After a lost reply, the second attempt finds the value that the first one wrote.
        return lease_of(self.store, machine) == record

    def lost(self) -> LeaseLostError | ClosedError:
        """Drop the lease, and return the error for it: another process has taken over the machine id, or closed its log.

        ClosedError if this instance has released it, because it is closed.
        """
        self._record = None
        return self.lost_error(self.machine)

    def lost_error(self, machine: int) -> LeaseLostError | ClosedError:
        """Return the error for a revision with a machine id whose lease this instance has no more; keep the present lease.

        ClosedError if this instance has released it, because it is closed.
        """
        if self.is_closed:
            return closed()
        return LeaseLostError(
            f"this process lost machine id {machine:#06x} of the repository at {self.store.location}: another process "
            "ended its lease, because this process did not renew it in time (it was paused, or the store was out of reach). "
            "The commit was not made; the next commit claims a new machine id.",
            machine=machine,
        )


def closed() -> ClosedError:
    """Return the error for a commit that needs the lease of a closed instance."""
    return ClosedError("the repository has been closed; nothing was committed")


def _above_horizon(settings: Row) -> int:
    """Return the first ms above the horizon, in ms since the epoch: only leases that ended below it are ever deleted."""
    data = next((cell.value for cell in settings.cells if cell.qualifier == schema.HORIZON[1]), None)
    return 0 if data is None else revisions.ms_of(Horizon.decode(data).revision) + 1

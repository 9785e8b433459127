"""A machine id, claimed as a lease so that no two processes ever issue the same revision id.

A lease is an interval of *id time*: its holder issues only ids whose ms lie inside, and the next holder's interval
starts where the last one ended. That alone keeps ids unique (I1), whatever any clock shows; the clocks only decide
when a lease may be taken over.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from hbasemk.errors import FormatError, LeaseLostError, StoreUnusableError
from hbasemk.format import revisions, schema
from hbasemk.kernel.retry import again
from hbasemk.kernel.runtime import Runtime
from hbasemk.kernel.settings import Settings
from hbasemk.store.abc import CellVersion, Delete, Get, NewCell, Put, Row, Store

PROBES_PER_READ: Final = 16
MEASURES: Final = 20
"""How often measuring the store's clock is tried while others do it in the same row."""
FRESH: Final = 30.0
"""Seconds for which a measurement of the store's clock is good enough to call another's lease over."""
LATEST: Final = 2 * revisions.MAX_MS
"""No lease ends later, in ms since the repository's epoch: ids end at half of it."""
_HEAD: Final = struct.Struct(">QQ16s")


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """What the cluster table says of one machine id; ``start`` and ``end`` in ms since the repository's epoch."""

    start: int
    end: int
    nonce: bytes
    holder: str

    def encode(self) -> bytes:
        """The bytes of the lease cell."""
        return _HEAD.pack(self.start, self.end, self.nonce) + self.holder.encode()

    @classmethod
    def decode(cls, data: bytes) -> LeaseRecord:
        """Read a lease cell; raises FormatError if it is damaged."""
        try:
            start, end, nonce = _HEAD.unpack_from(data)
            if max(start, end) > LATEST:
                raise FormatError(f"the lease {data[:60]!r} is damaged")
            return cls(start, end, nonce, data[_HEAD.size :].decode())
        except (struct.error, UnicodeDecodeError) as error:
            raise FormatError(f"the lease {data[:60]!r} is damaged") from error


def record_of(row: Row) -> LeaseRecord | None:
    """The lease in a row of the cluster table, if there is one."""
    for cell in row.cells:
        if (cell.family, cell.qualifier) == schema.LEASE:
            try:
                return LeaseRecord.decode(cell.value)
            except FormatError as error:
                raise schema.damaged(error.message, schema.CLUSTER, row.key, schema.LEASE) from error
    return None


class ServerClock:
    """What this process knows of one server's clock, measured once in a while and carried on monotonically.

    Where reading the store's clock takes no round trip, it is read each time instead.
    """

    def __init__(self, store: Store, runtime: Runtime) -> None:
        self._store = store
        self._runtime = runtime
        self._low = self._high = 0.0
        self.measured_at = float("-inf")
        """When it was measured, by the monotonic clock."""

    def measure(self, row: bytes) -> None:
        """Write a cell with the server's time and read it back: two round trips.

        More where it is not this cell that comes back: another measured in the same row, or the store's clock has gone
        back since somebody did, and a store shows a column's highest timestamp. None where the clock can be read without.
        """
        if self._store.clock_ms() is not None:
            self.measured_at = self._runtime.monotonic()
            return
        for _ in range(MEASURES):
            token = self._runtime.random.getrandbits(64).to_bytes(8, "big")
            put = Put(row, [NewCell(*schema.CLOCK, token)])
            before = self._runtime.monotonic()
            self._store.write(schema.CLUSTER, [put], durable=False)
            answer = self._store.read(schema.CLUSTER, [Get(row, columns=(schema.CLOCK,))])[0]
            after = self._runtime.monotonic()
            if answer.cells and answer.cells[0].value == token:
                self.heard(answer.cells[0].timestamp, before, after)
                return
            if answer.cells:
                version = CellVersion(*schema.CLOCK, answer.cells[0].timestamp)
                self._store.delete(schema.CLUSTER, [Delete(row, [version])])
        raise StoreUnusableError(
            f"the clock cell written to {self._store.location} could not be read back in {MEASURES} attempts"
        )

    def heard(self, server_ms: int, before: float, after: float) -> None:
        """The server gave a cell this timestamp at some moment between two of the monotonic clock."""
        self._low = server_ms - after * 1000
        self._high = server_ms + 1 - before * 1000
        self.measured_at = after

    def is_recent(self, seconds: float) -> bool:
        """Whether it was measured within the last ``seconds``."""
        return self._runtime.monotonic() - self.measured_at < seconds

    def at_least(self, monotonic: float) -> float:
        """The lowest time, in ms since 1970, that the server's clock can have shown at ``monotonic``."""
        known = self._store.clock_ms()
        return self._low + monotonic * 1000 if known is None else known

    def at_most(self, monotonic: float) -> float:
        """The highest time, in ms since 1970, that the server's clock can have shown at ``monotonic``."""
        known = self._store.clock_ms()
        return self._high + monotonic * 1000 if known is None else known + 1


class Lease:
    """One instance's hold on a machine id. Claimed at the first commit, renewed in the background."""

    def __init__(self, store: Store, runtime: Runtime, settings: Settings) -> None:
        self.store = store
        self._runtime = runtime
        self._settings = settings
        self._lock = runtime.lock()
        self._record: LeaseRecord | None = None
        self._renewed_at = 0.0
        self._observed: dict[int, tuple[bytes, float]] = {}
        self.machine = 0
        self.server = ServerClock(store, runtime)

    @property
    def held(self) -> bool:
        """Whether a machine id is claimed (it may have to be renewed before the next id)."""
        return self._record is not None

    @property
    def start(self) -> int:
        """The first ms, since the repository's epoch, of which ids may be issued."""
        return self._record.start if self._record else 0

    @property
    def end(self) -> int:
        """The ms, since the repository's epoch, from which on no id may be issued without renewal."""
        return self._record.end if self._record else 0

    def due(self) -> bool:
        """Whether a third of the lease is used up, so that it is time to renew. This machine's wall clock does not matter.

        The end alone does not show it: where ids are ahead of the store's clock, so is the end.
        """
        lease_ms = self._settings.lease_ms
        unrenewed = (self._runtime.monotonic() - self._renewed_at) * 1000
        return self.held and (self.end - self._id_time() < lease_ms * 2 / 3 or unrenewed > lease_ms / 3)

    def claim(self) -> None:
        """Take a machine id: the one preferred by the MAC, or the next that is free or whose lease is over.

        Raises StoreUnusableError when all 65,536 are held.
        """
        with self._lock:
            if self._record is not None:
                return
            preferred, holder = self._runtime.identity()
            self.measure()
            for first in range(0, revisions.MAX_MACHINE + 1, PROBES_PER_READ):
                machines = [(preferred + first + n) & revisions.MAX_MACHINE for n in range(PROBES_PER_READ)]
                gets = [Get(schema.machine_key(machine), columns=(schema.LEASE,)) for machine in machines]
                rows = again(self._runtime, lambda gets=gets: self.store.read(schema.CLUSTER, gets))  # type: ignore[misc]
                for machine, row in zip(machines, rows, strict=True):
                    found = record_of(row)
                    if (found is None or self._is_over(found)) and self._take(machine, found, holder):
                        return
            raise StoreUnusableError(
                f"all {revisions.MAX_MACHINE + 1} machine ids of the repository at {self.store.location} are leased"
            )

    def renew(self, until: int = 0) -> None:
        """Extend the lease, at least past the id time ``until``; raises LeaseLostError if another took it over.

        After a StoreError the lease is as it was, or longer; the next renewal finds out.
        """
        with self._lock:
            record = self._record
            if record is None:
                raise self._lost()
            self.measure()
            # Never shorter: ids may have been issued up to its end, and the next holder's begin there. Always another: others
            # see by the change that the holder is alive.
            end = max(max(self._id_time(), until, record.start) + self._settings.lease_ms, record.end + 1)
            wanted = LeaseRecord(record.start, end, record.nonce, record.holder)
            if not self._write(self.machine, record, wanted):
                # Perhaps only because an earlier renewal arrived and its reply did not.
                found = self._read(self.machine)
                if found is None or found.nonce != record.nonce or not self._write(self.machine, found, wanted):
                    raise self._lost()

    def keep(self) -> None:
        """Renew the lease if it is due; for work in one call that may last longer than a lease.

        After a loss the work goes on: others may have ended what was begun, and its compare-and-set shows that.
        """
        with self._lock:
            record = self._record
            if record is None or not self.due():
                return
            try:
                self.renew()
            except LeaseLostError:
                # Who wants the next id is told.
                self._record = record

    def measure(self) -> None:
        """Measure the store's clock again. Two round trips."""
        machine = self.machine if self.held else self._runtime.identity()[0]
        again(self._runtime, lambda: self.server.measure(schema.machine_key(machine)))

    def release(self, issued: int) -> None:
        """Give the machine id back, for closing; ``issued`` is the highest ms of which ids were issued."""
        with self._lock:
            record = self._record
            if record is None:
                return
            self._record = None
            end = min(record.end, max(self._id_time(), issued, record.start) + 1)
            over = LeaseRecord(record.start, end, record.nonce, record.holder)
            self._compare_and_set(self.machine, record, over)

    def forget(self) -> None:
        """Drop the claim without a call, as a forked child must: the parent goes on using it."""
        self._record = None

    def is_over(self, writer: int) -> bool:
        """Whether the lease under which the revision ``writer`` was issued has ended. One round trip, and two more
        where the store's clock was not measured lately: only by that may anyone end what another began.
        """
        record = self._read(revisions.machine_of(writer))
        if record is None or record.start > revisions.ms_of(writer):
            return True
        self._measure_if_old()
        return self._is_over(record) or self._stands_still(revisions.machine_of(writer), record)

    def _stands_still(self, machine: int, record: LeaseRecord) -> bool:
        """Whether a lease that ends far ahead was not renewed for longer than a lease lasts, as this process watched it.

        A clock that was wrong, or ids that were ahead, put the end there. A holder renews well before, so it is gone.
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
        """The id time that the store's clock shows now, at least. Two round trips where it was not measured lately."""
        self._measure_if_old()
        return self._id_time()

    def _measure_if_old(self) -> None:
        if not self.server.is_recent(FRESH):
            self.measure()

    def _id_time(self) -> int:
        """The id time that the store's clock shows now, at least; it must have been measured."""
        return int(self.server.at_least(self._runtime.monotonic())) - self._settings.epoch_ms

    def _is_over(self, record: LeaseRecord) -> bool:
        # The holder's own clock may be behind the store's by the allowed skew.
        return record.end + self._settings.max_clock_skew_ms <= self._id_time()

    def _take(self, machine: int, found: LeaseRecord | None, holder: str) -> bool:
        # Our own clock may lag, but one that is ahead takes no time from anybody.
        now = self._id_time()
        start = max(min(now, self._runtime.now_ms() - self._settings.epoch_ms), found.end if found else 0)
        nonce = self._runtime.random.getrandbits(128).to_bytes(16, "big")
        wanted = LeaseRecord(start, max(start, now) + self._settings.lease_ms, nonce, holder)
        return self._write(machine, found, wanted)

    def _write(self, machine: int, found: LeaseRecord | None, wanted: LeaseRecord) -> bool:
        if not self._compare_and_set(machine, found, wanted):
            return False
        self.machine = machine
        self._record = wanted
        self._renewed_at = self._runtime.monotonic()
        return True

    def _compare_and_set(self, machine: int, found: LeaseRecord | None, wanted: LeaseRecord) -> bool:
        row = schema.machine_key(machine)
        put = Put(row, [NewCell(*schema.LEASE, wanted.encode())])
        expected = found.encode() if found else None
        if again(self._runtime, lambda: self.store.check_and_write(schema.CLUSTER, schema.LEASE, expected, put)):
            return True
        # After a lost reply the second attempt finds the first one's value.
        return self._read(machine) == wanted

    def _read(self, machine: int) -> LeaseRecord | None:
        get = Get(schema.machine_key(machine), columns=(schema.LEASE,))
        return record_of(again(self._runtime, lambda: self.store.read(schema.CLUSTER, [get]))[0])

    def _lost(self) -> LeaseLostError:
        self._record = None
        return LeaseLostError(
            f"another process took over machine id {self.machine:#06x} of the repository at {self.store.location}, "
            "because this one did not renew its lease in time (it was paused, or the store was out of reach). The "
            "commit was not made; the next one claims a new machine id.",
            machine=self.machine,
        )

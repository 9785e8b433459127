"""The logs of all writers, as a bound of the watermark in a store that does not order all writes (section 5)."""

from __future__ import annotations

from hbasemk.format import revisions
from hbasemk.format.writer_log import WriterLog
from hbasemk.kernel.damage import Damage
from hbasemk.kernel.ids import log_holder
from hbasemk.kernel.ids.lease import Lease
from hbasemk.kernel.ids.leases import leases_of
from hbasemk.kernel.journal.journal import Journal
from hbasemk.kernel.retrying_store import RetryingStore


class Logs:
    """Reads the id up to which no writer announces a revision any more."""

    def __init__(self, store: RetryingStore, journal: Journal, lease: Lease) -> None:
        self._store = store
        self._journal = journal
        self._lease = lease

    def bound(self, watermark: int, damage: Damage) -> tuple[int, list[int]]:
        """Return an id below which no writer announces any, and the announced ids above the watermark, lowest first.

        This holds for the present holders of the logs; a process that claims a machine id later begins above the watermark.
        Closes logs whose lease is over and that would hold the bound below a known id, or below another log. Leaves those open
        whose lease is damaged, and keeps the error in ``damage``. Two round trips, and more for these.
        """
        logs = self._journal.read_logs()
        top = max([self._journal.highest_seen, *(log.bound for log in logs.values())])
        late = [machine for machine, log in logs.items() if log.is_open and log.bound < top]
        if self._close_over({machine: logs[machine] for machine in late}, damage):
            logs = self._journal.read_logs()
        bounds = [log.bound for log in logs.values() if log.is_open]
        announced = sorted(one for log in logs.values() for one in log.ids if one > watermark)
        return min(bounds, default=revisions.MAX_REVISION - 1) + 1, announced

    def close_over(self, damage: Damage) -> None:
        """Close all open logs whose holder has no lease any more; keep the error of a damaged lease in ``damage``.

        Also those of machine ids whose lease was deleted. Two round trips, and one for each of these logs.
        """
        self._close_over({machine: log for machine, log in self._journal.read_logs().items() if log.is_open}, damage)

    def _close_over(self, late: dict[int, WriterLog], damage: Damage) -> bool:
        """Close the logs among these whose holder has no lease any more; return whether there are any."""
        closed = False
        for machine, record in leases_of(self._store, list(late), damage).items():
            log = late[machine]
            if record is None or record.nonce != log.holder or self._lease.has_ended(machine, record):
                log_holder.close(self._store, machine, log)
                closed = True
        return closed

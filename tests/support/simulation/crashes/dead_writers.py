"""What dead writers leave, and the maintenance that passes or recovers it, for crashes at any call."""

from __future__ import annotations

from hbasemk.format import schema
from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.operations import (
    AddNode,
    SetProperty,
)
from tests.support.runtime import open_instance
from tests.support.simulation.crashes.sites import Died, Site, Steps


def leave(site: Site, seconds: float) -> int:
    """Create the revision of a writer that died after its cells, so many seconds ago."""
    # The commit does not fit into one transaction.
    steps = Steps(site.store, rows=1)
    one = open_instance(steps, site.world, mac=0x21, seed=77)
    one.clock.next(0)
    steps.log.clear()
    # Without an order of writes, the existing row is written first, too.
    writes = 2 if site.store.supports_transactions else 3
    steps.fail(5 if site.store.supports_transactions else 8, "died")
    try:
        one.commit(
            lambda _: OperationList([SetProperty("/a", "p", "left"), AddNode("/a/left", {})]),
            "",
            retry_timeout=1,
            max_poll_age=0,
        )
    except Died:
        assert steps.log.count("write nodes") == writes, steps.log
    site.world.advance(seconds)
    return max(int.from_bytes(key, "big") for key in site.store._tables[schema.JOURNAL].rows)


def left_undone(site: Site) -> int:
    """Create the same revision, aborted by another instance and not swept."""
    revision = leave(site, 16)
    one = site.open(1)
    one.outcomes.abort_other(revision)
    one.close()
    site.world.advance(16)
    return revision


def recover(site: Site) -> None:
    site.acting.poll()
    site.acting.maintain()
    site.world.advance(16)
    site.acting.poll()
    site.acting.maintain()


def many_revisions(site: Site) -> None:
    """Create revisions for the watermark to pass, one of them swept in doubt."""
    one = site.open(1)
    for number in range(3):
        one.commit(lambda _, n=number: OperationList([AddNode(f"/w{n}", {})]), "", retry_timeout=1, max_poll_age=0)  # type: ignore[misc]
    leave(site, 16)
    one.poll()
    one.maintain()
    one.commit(lambda _: OperationList([AddNode("/w9", {})]), "", retry_timeout=1, max_poll_age=0)
    site.world.advance(12)
    one.close()


def advance(site: Site) -> None:
    site.world.advance(12)
    site.acting.poll()
    site.acting.recovery.advance()

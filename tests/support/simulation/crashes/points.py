"""Crash points: an action is stopped at one step, in one way, and a later instance finds all or nothing of it."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypedDict

import pytest

from hbasemk import CommitUnknownError, Outcome, StoreError, StoreUnknownError
from hbasemk.check import blobs as checked_blobs
from hbasemk.errors import HbasemkError
from hbasemk.kernel import blobs
from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.operations import AddNode, SetProperty
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.reading import child_count, reader
from hbasemk.store.memory import MemoryStore
from tests.support.runtime import World
from tests.support.simulation.crashes.kind import TREE, Kind
from tests.support.simulation.crashes.sites import AWAY, AWAY_LOST, WAYS, Died, Site, live_on, problems
from tests.support.simulation.object_graphs import image_of

SAME, OTHER = 2, 0x40
MACS = (SAME, OTHER)
"""The MACs of the later instance: that of the stopped one, and a different one."""


class Offers(TypedDict, total=False):
    """The features of a store."""

    transactions: bool
    parallel: bool


STORES: dict[str, Offers] = {
    "one by one": {},
    "at one moment": {"transactions": True},
    "ids before reads as on HBase": {"parallel": True},
}


def make_sizes_small(patch: pytest.MonkeyPatch) -> None:
    """Make chunks and wide nodes small."""
    for module in (blobs, checked_blobs):
        patch.setattr(module, "CHUNK", 10)
    for module in (child_count, reader):
        patch.setattr(module, "WIDE", 4)
    patch.setattr(child_count, "FEW", 3)


def prepared(kind: Kind, offers: Offers) -> Site:
    """Return the site before the action."""
    world = World()
    site = Site(MemoryStore(world.clock, **offers), world, rows=kind.rows)
    if kind.name == "creation of a repository":
        return site
    first = site.open(1)
    first.commit(lambda _: OperationList(TREE), "", retry_timeout=1, max_poll_age=0)
    first.close()
    site.state = kind.prepare(site)
    return site


def begun(site: Site, kind: Kind) -> Site:
    """Return a copy of the site, with the instances open."""
    here = site.copy()
    here.begin(acts=kind.name != "creation of a repository")
    return here


def outcomes(site: Site, kind: Kind) -> tuple[object, object, int]:
    """Run the action without faults; return the views before and after it, and its number of steps."""
    here = begun(site, kind)
    before = kind.look(here, here.watcher) if hasattr(here, "watcher") else None
    here.steps.fail(-1, "")
    kind.act(here)
    steps = here.steps.steps
    live_on(here, here.open(OTHER))
    after = kind.look(here, here.open(OTHER))
    assert (before != after) == kind.changes or before is None
    return (after if before is None else before), after, steps


class Point:
    """One crash point of an action, which has begun and is over, and the checks after it."""

    def __init__(self, site: Site, kind: Kind, step: int, way: str, expected: tuple[object, object]) -> None:
        self.kind = kind
        self.expected = expected
        self.away = way in (AWAY, AWAY_LOST)
        self.site = begun(site, kind)
        self.unknown: int | None = None
        self.acknowledged = self.refused = self.may_be = False
        self.site.steps.fail(step, way)
        self._act()
        if self.site.steps.dead and hasattr(self.site, "acting"):
            del self.site.acting

    def image(self, *others: Instance) -> bytes:
        """Return all that the checks depend on: what the action returned, the site, and what its live instances know.

        The state of other instances can be added. Cycles of garbage that hold a view would change what its pin does later.
        """
        gc.collect(1)
        return image_of((self, others), shared=(self.kind, self.expected))

    def _act(self) -> None:
        try:
            self.kind.act(self.site)
            self.acknowledged = True
        except CommitUnknownError as error:
            self.unknown = int(error.revision, 16)
        except StoreError as error:
            self.refused = True
            self.may_be = isinstance(error, StoreUnknownError) and _may_be(self.kind)
        except Died:
            assert self.site.steps.dead

    def check(self, mac: int) -> tuple[Instance, Instance]:
        """Check what a later instance with this MAC finds; return it, and one that begins at the end."""
        site, kind = self.site, self.kind
        # Immediately, old and new instances see all or nothing.
        if hasattr(site, "watcher"):
            assert kind.look(site, site.watcher) in self.expected
        elif not self.acknowledged and not site.steps.dead:
            # A process that was interrupted during the creation tries again.
            site.steps.heal()
            kind.act(site)
        later = site.open(mac)
        seen = kind.look(site, later)
        assert seen in self.expected
        if self.acknowledged:
            assert seen == self.expected[1], "acknowledged and lost"
        # Time passes. The stopped instance cannot reach the store until others have rolled back its work.
        back_soon = mac == SAME and self.away
        if back_soon:
            self._come_back()
        live_on(site, later)
        live_on(site, later)
        if not back_soon and not site.steps.dead:
            self._come_back()
        later.poll()
        assert not later.journal.pending
        found = kind.look(site, later)
        assert found in self.expected
        if self.acknowledged:
            assert found == self.expected[1], "acknowledged and lost"
        return later, self._goes_on(later)

    def _an_hour_later(self, later: Instance) -> None:
        """Let an hour pass, after which branches are maintained."""
        self.site.world.advance(3601)
        later.maintain()

    def _come_back(self) -> None:
        """Make the store reachable again for the stopped instance."""
        site, kind = self.site, self.kind
        site.steps.heal()
        if not hasattr(site, "acting"):
            return
        one = site.acting
        for _ in range(2):
            try:
                one.maintain()
            except HbasemkError as error:
                assert "lost machine id" in str(error)
        one.poll()
        seen = kind.look(site, one)
        assert seen in self.expected
        if self.unknown is not None:
            ended = one.outcome(self.unknown)
            assert ended in (Outcome.COMMITTED, Outcome.ABORTED)
            if kind.changes and not kind.name.startswith("rebase"):
                # A rebase commits on another branch, and then records that on the old one.
                assert (seen == self.expected[1]) == (ended is Outcome.COMMITTED)
        elif self.refused and not kind.again:
            assert seen == self.expected[0] or self.may_be, "refused, and it is there"
        if self.refused and kind.again:
            self.refused = False
            kind.act(site)
            self.acknowledged = True

    def _goes_on(self, later: Instance) -> Instance:
        """Check that commits succeed on all instances, including one that begins at a new watermark; return that one."""
        site = self.site
        later.commit(
            lambda _: OperationList([AddNode("/then", {"n": 1}), SetProperty("/", "afterwards", True)]),
            "",
            retry_timeout=1,
            max_poll_age=0,
        )
        if self.kind.hourly:
            self._an_hour_later(later)
            assert problems(later) == []
            self._an_hour_later(later)
            heads, unswept = later.branches._heads._all_unswept()
            assert all(len(heads[root].value) == 8 for root in unswept), "an ended branch is not swept"
        self.kind.finish(site, later)
        later.poll()
        # The leases of the others end.
        live_on(site, later, 16)
        head = later.head().revision
        if site.store.supports_transactions:
            # There only a higher id lets the watermark pass the last revision; time does not.
            later.commit(lambda _: OperationList([SetProperty("/", "last", True)]), "", retry_timeout=1, max_poll_age=0)
        later.recovery.advance()
        assert problems(later) == []
        final = self.kind.shown(later)
        begins = site.open(0x50)
        assert begins.journal.floor >= head
        assert self.kind.shown(begins) == final
        for live in ("watcher", "acting"):
            if hasattr(site, live):
                assert self.kind.shown(getattr(site, live)) == final
        assert final["/then"] == {"n": 1}
        return begins


def _may_be(kind: Kind) -> bool:
    """Return whether an action ends with a separate call whose unknown outcome becomes its error."""
    return kind.name.split()[0] in {"merge", "rebase", "reset", "abandon"}


@contextmanager
def named_if_it_fails(name: str) -> Iterator[None]:
    """Print the name of a point if it fails."""
    try:
        yield
    except BaseException:
        print(name)
        raise


def different_points(
    site: Site, kind: Kind, steps: Iterable[int], expected: tuple[object, object]
) -> Iterator[tuple[int, str, Point | None]]:
    """Yield each step, each way to stop there, and the point; None if an earlier point has the same image.

    The checks after a point depend on nothing but its image and the later instance's MAC.
    """
    images: set[bytes] = set()
    for step, way in itertools.product(steps, WAYS):
        with named_if_it_fails(f"{kind.name}: {way} at step {step}"):
            point = Point(site, kind, step, way, expected)
        image = point.image()
        yield step, way, None if image in images else point
        images.add(image)

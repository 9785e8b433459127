"""A crash at any step of any action leaves all or nothing of it, and needs no manual cleaning up.

At each point a later instance has the same MAC, and in another run a different one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

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
from tests.support import proof
from tests.support.runtime import World
from tests.support.simulation.crashes.kind import TREE, Kind
from tests.support.simulation.crashes.kinds import KINDS
from tests.support.simulation.crashes.sites import AWAY, AWAY_LOST, WAYS, Died, Site, live_on, problems

SAME, OTHER = 2, 0x40
STORES = {
    "one by one": {},
    "at one moment": {"transactions": True},
    "ids before reads as on HBase": {"parallel": True},
}
"""The features of each kind of store."""


@pytest.fixture(autouse=True)
def small_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make chunks and wide nodes small."""
    for module in (blobs, checked_blobs):
        monkeypatch.setattr(module, "CHUNK", 10)
    for module in (child_count, reader):
        monkeypatch.setattr(module, "WIDE", 4)
    monkeypatch.setattr(child_count, "FEW", 3)


@pytest.fixture(scope="module")
def counted() -> Iterator[list[int]]:
    """Count the crash points of each test."""
    points: list[int] = []
    yield points
    print(f"{sum(points)} crash points of {len(points)} kinds of actions and stores")


def prepared(kind: Kind, offers: dict[str, bool]) -> Site:
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
    """One crash point, and the checks after it."""

    def __init__(self, site: Site, kind: Kind, step: int, way: str, mac: int, expected: tuple[object, object]) -> None:
        self.kind, self.way, self.mac = kind, way, mac
        self.expected = expected
        self.site = begun(site, kind)
        self.unknown: int | None = None
        self.acknowledged = self.refused = self.may_be = False
        self.site.steps.fail(step, way)
        self.act()

    def act(self) -> None:
        try:
            self.kind.act(self.site)
            self.acknowledged = True
        except CommitUnknownError as error:
            self.unknown = int(error.revision, 16)
        except StoreError as error:
            self.refused = True
            self.may_be = isinstance(error, StoreUnknownError) and kind_may_be(self.kind)
        except Died:
            assert self.site.steps.dead

    def check(self) -> None:
        site, kind = self.site, self.kind
        # Immediately, old and new instances see all or nothing.
        if hasattr(site, "watcher"):
            assert kind.look(site, site.watcher) in self.expected
        elif not self.acknowledged and not site.steps.dead:
            # A process that was interrupted during the creation tries again.
            site.steps.heal()
            kind.act(site)
        later = site.open(self.mac)
        seen = kind.look(site, later)
        assert seen in self.expected
        if self.acknowledged:
            assert seen == self.expected[1], "acknowledged and lost"
        # Time passes. The stopped instance cannot reach the store until others have rolled back its work.
        back_soon = self.mac == SAME and self.way in (AWAY, AWAY_LOST)
        if back_soon:
            self.come_back()
        live_on(site, later)
        live_on(site, later)
        if not back_soon and not site.steps.dead:
            self.come_back()
        later.poll()
        assert not later.journal.pending
        found = kind.look(site, later)
        assert found in self.expected
        if self.acknowledged:
            assert found == self.expected[1], "acknowledged and lost"
        self.goes_on(later)

    def an_hour_later(self, later: Instance) -> None:
        """Let an hour pass, after which branches are maintained."""
        self.site.world.advance(3601)
        later.maintain()

    def come_back(self) -> None:
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

    def goes_on(self, later: Instance) -> None:
        """Check that commits succeed on all instances, including one that begins at a new watermark."""
        site = self.site
        later.commit(
            lambda _: OperationList([AddNode("/then", {"n": 1}), SetProperty("/", "afterwards", True)]),
            "",
            retry_timeout=1,
            max_poll_age=0,
        )
        if self.kind.hourly:
            self.an_hour_later(later)
            assert problems(later) == []
            self.an_hour_later(later)
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
        live = [one for one in (getattr(site, "watcher", None), getattr(site, "acting", None)) if one is not None]
        for one in live:
            if one is getattr(site, "acting", None) and (site.steps.dead or self.way == ""):
                continue
            assert self.kind.shown(one) == final
        assert final["/then"] == {"n": 1}


def kind_may_be(kind: Kind) -> bool:
    """Return whether an action ends with a separate call whose unknown outcome becomes its error."""
    return kind.name.split()[0] in {"merge", "rebase", "reset", "abandon"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "action",
    proof.sampled(
        itertools.product(KINDS, STORES),
        # Every twelfth kind on each store, and not the same kinds on two stores.
        lambda position, _: sum(divmod(position, len(STORES))) % 12 == 0,
        lambda action: f"{action[0].name}-{action[1]}",
    ),
)
def test_an_action_stopped_at_any_call_is_applied_fully_or_not_at_all(
    action: tuple[Kind, str], counted: list[int]
) -> None:
    kind, store = action
    site = prepared(kind, STORES[store])
    before, after, steps = outcomes(site, kind)
    assert steps >= 1
    points = 0
    for step in range(steps):
        for way in WAYS:
            for mac in (SAME, OTHER):
                try:
                    Point(site, kind, step, way, mac, (before, after)).check()
                except BaseException:
                    print(f"{kind.name}: {way} at step {step}, then an instance with MAC {mac:#x}")
                    raise
                points += 1
    counted.append(points)
    print(f"{kind.name}: {steps} steps, {points} crash points")

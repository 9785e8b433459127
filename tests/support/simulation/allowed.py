"""The trees that a few writers of one commit each may leave: those of every way in which each may see some of the others."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

from hbasemk.errors import HbasemkError
from hbasemk.format import revisions
from hbasemk.format.extent import Extent
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal.view import View
from hbasemk.testing.simulation import Simulator
from tests.support.simulation.trees import tree
from tests.support.simulation.writers import ALL_KINDS, Prepared

Tree: TypeAlias = "dict[str, Any]"


class History(NamedTuple):
    """The order in which writers write and read back, and for each writer those whose revisions its snapshot contains."""

    order: tuple[int, ...]
    sees: tuple[frozenset[int], ...]


@functools.cache
def histories(count: int) -> list[History]:
    """Return what ``count`` writers may see of each other, if each fixes its snapshot, writes and reads back, and decides.

    A snapshot contains the writers that decided before it was fixed. To write and to read back are one step here: each writes
    before it reads back, so two that both miss the other's cells cannot both commit. Each order of these three steps of all
    writers is a history; many are the same.
    """
    found: dict[History, None] = {}
    for steps in _orders((3,) * count):
        decided: frozenset[int] = frozenset()
        sees = [decided] * count
        order: list[int] = []
        made = [0] * count
        for writer in steps:
            if made[writer] == 0:
                sees[writer] = decided
            elif made[writer] == 1:
                order.append(writer)
            else:
                decided |= {writer}
            made[writer] += 1
        found[History(tuple(order), tuple(sees))] = None
    return list(found)


@functools.cache
def _orders(left: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return all orders of the steps of some writers, of which each has this number of steps left."""
    if not any(left):
        return [()]
    return [
        (writer, *rest)
        for writer, count in enumerate(left)
        if count
        for rest in _orders((*left[:writer], count - 1, *left[writer + 1 :]))
    ]


class Allowed:
    """The trees that the writers may produce.

    Each history runs once, one commit after the other, in the order in which the writers read back; each commits on a snapshot
    of those that it sees. If one of them loses, or is invalid on its snapshot, there is no such history. So a
    writer misses an earlier one only if it does not depend on what that one wrote, by the rules of section 4 of the protocol:
    an adjust and a set of the same number may miss each other, a copy may miss any change of its source, and a commit that
    expects a version must precede those that change the node, but not those that see these.
    """

    def __init__(self, prepared: Prepared, kinds: Sequence[str]) -> None:
        self.prepared = prepared
        self.kinds = kinds
        self._known: dict[frozenset[int], list[Tree]] = {}

    def __call__(self, numbers: Sequence[int]) -> list[Tree]:
        """Return the trees that may be there if exactly these writers have committed."""
        writers = frozenset(numbers)
        if writers not in self._known:
            kinds = [self.kinds[number] for number in sorted(writers)]
            trees = [self.after(kinds, history) for history in histories(len(kinds))]
            self._known[writers] = [one for at, one in enumerate(trees) if one is not None and one not in trees[:at]]
        return self._known[writers]

    def after(self, kinds: Sequence[str], history: History) -> Tree | None:
        """Return the tree after a history of writers of these kinds, or None if one of them cannot commit."""
        simulator = Simulator(0)
        simulator.store = self.prepared.store.clone(lambda: int(simulator.ms))
        simulator.ms += 5
        made: dict[int, int] = {}
        for writer in history.order:
            instance = simulator.add("one", lambda _: None).open()
            simulator.ms += 1
            seen = [made[other] for other in history.sees[writer] if other in made]
            before = instance.statistics.conflicts
            try:
                revision = ALL_KINDS[kinds[writer]](_Seeing(instance, self.prepared, seen), self.prepared)  # type: ignore[arg-type]
            except HbasemkError:
                return None
            if instance.statistics.conflicts != before:
                return None
            if revisions.machine_of(revision) == instance.lease.machine:
                # Not the head, which a commit without effect returns.
                made[writer] = revision
        fresh_instance = simulator.add("fresh_instance", lambda _: None).open()
        return tree(fresh_instance, fresh_instance.head())


class _Seeing:
    """An instance that commits on a snapshot of the initial state and these revisions only, and does not retry."""

    def __init__(self, instance: Instance, prepared: Prepared, seen: Sequence[int]) -> None:
        self._instance = instance
        name = max([prepared.head, *seen])
        self._view = View.of(name, Extent.of(prepared.head, set(seen) - {prepared.head}), name)

    def head(self) -> View:
        return self._view

    def poll(self) -> list[int]:
        return []

    def commit(self, make: Any, message: str, **_: Any) -> int:
        return self._instance.commit_on(self._view, make(self._view), message)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._instance, name)

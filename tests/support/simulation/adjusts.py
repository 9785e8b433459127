"""Random schedules with adjusts beside the other operations, and a model that knows which adjusts each set had seen."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final, TypeAlias

from hbasemk.errors import HbasemkError, StoreError
from hbasemk.format import exact, paths, revisions, values
from hbasemk.kernel.commit import folds
from hbasemk.kernel.commit.change_source import ReadyChangeSet
from hbasemk.kernel.commit.operations import (
    AddNode,
    Adjust,
    CopyNode,
    Increment,
    MoveNode,
    Operation,
    RemoveNode,
    SetProperty,
)
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal.view import View
from hbasemk.testing.simulation import Actor
from tests.support.branches import commit_on_branch
from tests.support.simulation.schedules import FEW, Schedule
from tests.support.simulation.trees import Broken

ADJUSTS: Final[list[Callable[[int], list[Operation]]]] = [
    # Each adjust of the count has its own bit, so a wrong sum shows which adjusts are lost or counted twice.
    lambda n: [Adjust("/a", "count", 2 ** (n + 8))],
    lambda n: [Adjust("/a", "count", 2 ** (n + 8))],
    lambda n: [Adjust("/a", "count", 2 ** (n + 8)), Adjust("/a/b", "q0", 2**n)],
    lambda n: [SetProperty("/a", "p", n), Adjust("/a/b", "q0", 2**n)],
    lambda n: [Adjust("/a/b", "q0", 2**n)],
    lambda n: [Adjust("/a/b", "q0", 0.5), Adjust("/a/b", "q1", -(2**n))],
    lambda n: [Adjust("/a/b", "q1", 2**n), SetProperty("/a/b", "q2", None)],
    lambda n: [SetProperty("/a/b", "q0", n)],
    lambda n: [SetProperty("/a/b", "q0", n / 2), Adjust("/a/b", "q0", 2**n)],
    lambda _: [SetProperty("/a/b", "q0", "text")],
    lambda _: [SetProperty("/a/b", "q0", None)],
    lambda _: [SetProperty("/a/b", "q1", None)],
    lambda _: [Increment("/a/b", "q1", 1)],
    lambda _: [AddNode("/a/b/q0", {})],
    lambda _: [RemoveNode("/a/b/q0")],
]

Tree: TypeAlias = "dict[str, dict[str, Property]]"


@dataclass
class Property:
    """A property of the model: the value that was set, and the adjusts since the node was added, as (revision, amount).

    ``seen`` is the number of each adjust that the set had seen. ``writer`` is the revision that set the value.
    """

    value: Any = None
    writer: int = 0
    seen: set[int] = field(default_factory=set)
    adjusts: list[tuple[int, int | float | Fraction]] = field(default_factory=list)

    def shows(self, visible: Callable[[int], bool] = lambda _: True) -> Any:
        """Return the value with the visible adjusts."""
        if self.value is None or isinstance(self.value, str):
            return self.value
        amounts = [by for at, (revision, by) in enumerate(self.adjusts) if at not in self.seen and visible(revision)]
        total = Fraction(self.value) + sum(Fraction(by) for by in amounts)
        return int(total) if isinstance(self.value, int) and total.denominator == 1 else float(total)

    def set(self, value: Any, revision: int, visible: Callable[[int], bool]) -> None:
        """Set the value; it includes the visible adjusts."""
        self.value, self.writer = value, revision
        self.seen = {at for at, (other, _) in enumerate(self.adjusts) if visible(other)}

    def adjust(self, by: int | float | Fraction, revision: int, visible: Callable[[int], bool]) -> None:
        """Adjust the value, or create the property if the adjust's view shows that it is absent."""
        if self.value is None and visible(self.writer):
            self.set(0, revision, visible)
        self.adjusts.append((revision, by))


def apply(tree: Tree, operation: Operation, revision: int, visible: Callable[[int], bool]) -> None:
    """Apply one operation of a revision, in whose view the visible revisions are."""
    if isinstance(operation, AddNode):
        tree[operation.path] = {name: Property(value, revision) for name, value in operation.properties.items()}
    elif isinstance(operation, RemoveNode):
        for path in [path for path in tree if paths.is_at_or_below(path, operation.path)]:
            del tree[path]
    elif isinstance(operation, MoveNode):
        for path in [path for path in tree if paths.is_at_or_below(path, operation.source)]:
            plain = {name: Property(one.shows(), revision) for name, one in tree.pop(path).items()}
            tree[paths.rebase(path, operation.source, operation.target)] = plain
    elif isinstance(operation, (SetProperty, Increment, Adjust)):
        one = tree[operation.path].setdefault(operation.name, Property())
        if isinstance(operation, SetProperty):
            one.set(operation.value, revision, visible)
        elif isinstance(operation, Increment):
            one.set((one.shows(visible) or 0) + operation.amount, revision, visible)
        else:
            one.adjust(operation.by, revision, visible)


class AdjustSchedule(Schedule):
    """One run of a seed, with adjusts on trunk, on old bases and on branches."""

    few = (*FEW, *ADJUSTS)

    def __init__(self, seed: int, **options: Any) -> None:
        self.attempted: dict[int, tuple[Sequence[Operation], Callable[[int], bool]]] = {}
        self.folds = 0
        super().__init__(seed, **options)

    def begins(self, instance: Instance, revision: int, view: View, operations: Sequence[Operation]) -> None:
        """Record what each revision attempts, and what its view shows."""
        journal = instance.journal
        floor = journal.floor
        above = {one for one in journal if journal.sees(view, one)}
        self.attempted[revision] = (operations, lambda other: other <= floor or other == revision or other in above)

    def branch(self, actor: Actor, instance: Instance, number: int) -> None:
        """Commit to a branch once or twice, and merge it."""
        if self.simulator.chance.happens(0.3):
            super().branch(actor, instance, number)
            return
        chance, branches = self.simulator.chance, instance.branches
        with contextlib.suppress(StoreError, HbasemkError):
            base = instance.head()
            at = branches.begin(base)
            operations = chance.choice(self.few)(number)
            at = commit_on_branch(instance, at, operations)
            actor.runtime.sleep(chance.choice((0, 0.01, 1)))
            if chance.happens(0.5):
                more = chance.choice(ADJUSTS)(number + 50)
                at = commit_on_branch(instance, at, more)
                operations = [*operations, *more]
            revision = branches.merge(at, "")
            if revision > at and revisions.machine_of(revision) == instance.lease.machine:
                # Not the head, which a merge without effect returns.
                self.begins(instance, revision, base, operations)
                self.merged.add(revision)

    def turn(self, actor: Actor, instance: Instance, number: int) -> None:
        """Commit once, or fold what a view shows of a property."""
        if not self.simulator.chance.happens(0.15):
            super().turn(actor, instance, number)
            return
        path, name = self.simulator.chance.choice((("/a", "count"), ("/a/b", "q0")))
        with contextlib.suppress(StoreError, HbasemkError):
            view = instance.head()
            state = instance.reader.node(view, path)
            found = None if state is None else state.property_of(name)
            if found is None or found.value() is None or exact.of_value(found.value() or b"") is None:
                return
            plan = folds.plan_of(path, name, found, sorted(found.totals)[self.simulator.chance.below(2) :])
            if plan is not None:
                instance.commit_on(view, ReadyChangeSet(plan), "", lambda one: self.begins(instance, one, view, ()))
                self.folds += 1

    def increments(self) -> int | None:
        """Return what the committed increments and adjusts of the count add up to."""
        total = 0
        for revision in self.committed():
            if revision > self.setup and revision not in self.attempted:
                return None
            for one in self.attempted.get(revision, ((), None))[0]:
                if isinstance(one, Increment) and one.path == "/a":
                    total += int(one.amount)
                elif isinstance(one, Adjust) and one.path == "/a":
                    total += int(one.by)
        return total

    def compare_with_model(self, committed: dict[int, Any], final: dict[str, Any]) -> None:
        """Check I16: each set counts with exactly the adjusts that it had not seen."""
        later = [revision for revision in sorted(committed) if revision > self.setup]
        if any(
            revision not in self.attempted or any(isinstance(one, CopyNode) for one in self.attempted[revision][0])
            for revision in later
        ):
            # A branch that was rebased, or a merge whose process died; or a copy of nodes that others changed.
            self.compared = False
            return
        self.compared = True
        tree: Tree = {"/": {}, "/a": {"count": Property(0, self.setup)}, "/a/b": {}}
        for revision in later:
            operations, visible = self.attempted[revision]
            written = {(change.path, name) for change in committed[revision][1] for name in change.properties}
            touched: set[tuple[str, str]] = set()
            for operation in operations:
                place = (operation.path, operation.name) if isinstance(operation, (SetProperty, Adjust)) else ("", "")
                # A property that kept its value is not written, so it does not undo a later commit.
                if not isinstance(operation, SetProperty) or place in written | touched:
                    touched.add(place)
                    try:
                        apply(tree, operation, revision, visible)
                    except KeyError as error:
                        if revision in self.merged and all(
                            change.path != place[0] for change in committed[revision][1]
                        ):
                            # The branch undid its own change, so the merge does not depend on the node, which is gone.
                            continue
                        raise Broken(f"{revision:016x} committed {operation}, which cannot be done then") from error
        expected = {
            path: tuple(
                sorted(
                    (name, values.encode(value)) for name, one in of_path.items() if (value := one.shows()) is not None
                )
            )
            for path, of_path in tree.items()
        }
        if expected != final:
            raise Broken(f"I16: the tree is {final}, and the committed operations make {expected}")

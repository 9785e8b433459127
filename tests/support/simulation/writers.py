"""Writers of one commit each, and the initial state from which they begin."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from hbasemk.format import values
from hbasemk.kernel.branches.rebase import rebase
from hbasemk.kernel.commit import folds
from hbasemk.kernel.commit.change_source import ChangeSource, OperationList, ReadyChangeSet
from hbasemk.kernel.commit.operations import (
    AddNode,
    Adjust,
    CopyNode,
    Expect,
    Increment,
    MoveNode,
    Operation,
    RemoveNode,
    SetProperty,
)
from hbasemk.kernel.commit.stage import Stage
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal.view import View
from hbasemk.kernel.settings import Settings
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.simulation import Simulator
from hbasemk.transaction import Transaction, source_of
from tests.support.branches import commit_on_branch
from tests.support.simulation.trees import WITHOUT_MEANING
from tests.support.sole_writers import let_compete, let_know

FOREVER: Final = 1e9


class Prepared(NamedTuple):
    """The initial state: the store, the base of commits on an old base, a branch's revision, the nodes' versions, the
    revision of a branch that adjusts, and the newest revision of trunk."""

    store: MemoryStore
    base: int
    branch: int
    versions: Mapping[str, str]
    adjusting: int
    head: int


def prepare(
    parallel: bool = False,
    adjusts: bool = False,
    *,
    marked: bool = False,
    transactions: bool = False,
    batch_rows: int = 1000,
) -> Prepared:
    """Create a small tree, a revision after its base, and two branches with one commit; perhaps adjust a property.

    ``marked``: the newest revision has marked the row of /a.
    """
    simulator = Simulator(0, parallel=parallel, transactions=transactions, batch_rows=batch_rows)
    instance = simulator.add("first", lambda _: None).open(wanted=Settings(max_clock_skew_ms=500, lease_ms=2000))

    def commit(*operations: Operation) -> int:
        return instance.commit(lambda _: OperationList(operations), "", retry_timeout=9, max_poll_age=0)

    base = commit(
        AddNode("/a", {"p": 0, "count": 0}),
        AddNode("/a/b", {"q": 0}),
        AddNode("/a/b/c", {}),
        AddNode("/a/leaf", {}),
        AddNode("/gone", {"old": 1}),
    )
    branch = instance.branches.begin(instance.at(base))

    branch = commit_on_branch(instance, branch, [SetProperty("/a", "p", "branch"), AddNode("/a/b/branch", {})])
    adjusting = instance.branches.begin(instance.at(base))
    adjusting = commit_on_branch(instance, adjusting, [Adjust("/a", "count", 256), Adjust("/a", "fresh", 256)])
    commit(RemoveNode("/gone"), SetProperty("/a/b", "q", 1))
    if adjusts:
        commit(Adjust("/a", "count", 128))
    if marked:
        for value in (1, 2, 3, None):
            commit(SetProperty("/a", WITHOUT_MEANING, value))
    nodes = instance.nodes(instance.head(), ["/a", "/a/b", "/a/leaf"])
    versions = {path: node.version for path, node in nodes.items() if node is not None}
    return Prepared(simulator.store, base, branch, versions, adjusting, instance.head().revision)


RECENT: Final = 1e-6
"""Seconds. In a simulation, only a poll at the same moment is as recent as that.

So the first attempt of a writer begins without a poll: its head may be old, as with background polling, and there are
fewer interleavings.
"""


def on_head(*operations: Operation) -> Callable[[Instance, Prepared], int]:
    def commit(instance: Instance, _: Prepared) -> int:
        return instance.commit(lambda _: OperationList(operations), "", retry_timeout=FOREVER, max_poll_age=RECENT)

    return commit


def on_old_base(*operations: Operation) -> Callable[[Instance, Prepared], int]:
    def commit(instance: Instance, prepared: Prepared) -> int:
        return instance.commit_on(instance.at(prepared.base), OperationList(operations), "")

    return commit


def expecting(path: str, *operations: Operation, on: Any = on_head) -> Callable[[Instance, Prepared], int]:
    """Commit operations that expect a node as it is in the initial state, or its absence."""

    def commit(instance: Instance, prepared: Prepared) -> int:
        done: int = on(Expect(path, prepared.versions.get(path)), *operations)(instance, prepared)
        return done

    return commit


def serializable(change: Callable[[Transaction], object]) -> Callable[[Instance, Prepared], int]:
    def commit(instance: Instance, _: Prepared) -> int:
        def make(snapshot: View) -> ChangeSource:
            tx = Transaction(instance, snapshot, "", "serializable")
            change(tx)
            return source_of(tx)

        return instance.commit(make, "", retry_timeout=FOREVER, max_poll_age=RECENT)

    return commit


KINDS: dict[str, Callable[[Instance, Prepared], int]] = {
    "set": on_head(SetProperty("/a", "p", "set")),
    "unset": on_head(SetProperty("/a", "p", None)),
    "increment": on_head(Increment("/a", "count", 1)),
    "add": on_head(AddNode("/a/b/new", {"n": 1})),
    "set its name": on_head(SetProperty("/a/b", "new", 1)),
    "remove leaf": on_head(RemoveNode("/a/leaf")),
    "remove subtree": on_head(RemoveNode("/a/b")),
    "move": on_head(MoveNode("/a/b", "/moved")),
    "copy": on_head(CopyNode("/a/b", "/copy")),
    "copy below": on_head(CopyNode("/a/leaf", "/a/b/new")),
    "re-add": on_head(AddNode("/gone", {"again": 1})),
    "remove and add": on_head(RemoveNode("/a/b"), AddNode("/a/b", {"again": 1})),
    "old base": on_old_base(SetProperty("/a/b", "r", 2), Increment("/a", "count", 10)),
    "old base below": on_old_base(AddNode("/a/b/c/old", {}), SetProperty("/a/leaf", "x", 1)),
    "merge": lambda instance, prepared: instance.branches.merge(prepared.branch, ""),
    # Each changes the property that the other sets to its present value.
    "set one, repeat other": on_head(SetProperty("/a", "p", "one"), SetProperty("/a/b", "q", 1)),
    "repeat one, set other": on_head(SetProperty("/a", "p", 0), SetProperty("/a/b", "q", "other")),
    "old base, repeated": on_old_base(Increment("/a", "count", 0), SetProperty("/a/leaf", "x", 1)),
    # Each changes the node that the other expects.
    "expect one, set other": expecting("/a", SetProperty("/a/leaf", "x", "expecting")),
    "expect other, set one": expecting("/a/leaf", SetProperty("/a", "p", "expecting")),
    "old base, expecting": expecting("/a", SetProperty("/a/leaf", "x", 3), on=on_old_base),
    # Each creates or changes what the other expects.
    "expect none, unset": expecting("/a/b/new", SetProperty("/a", "p", None)),
    "expect it, add": expecting("/a", AddNode("/a/b/new", {"n": 2})),
    # Each writes the property that the other reads.
    "serializable list": serializable(lambda tx: tx.set("/a", "children", len(tx.children("/a/b")))),
    "serializable add": serializable(lambda tx: tx.add("/a/b/new", {"n": tx.get("/a", "children") or 0})),
}


ADJUST_KINDS: dict[str, Callable[[Instance, Prepared], int]] = {
    "adjust": on_head(Adjust("/a", "count", 4), Adjust("/a/b", "q", 0.5)),
    "adjust, on an old base": on_old_base(Adjust("/a", "count", 64), Adjust("/a", "fresh", 64)),
    "first adjust": on_head(Adjust("/a", "fresh", 8)),
    "set a number": on_head(SetProperty("/a", "count", 1000), SetProperty("/a", "fresh", 2000)),
    "set and adjust": on_head(SetProperty("/a", "count", 500), Adjust("/a", "count", 2), Adjust("/a", "fresh", 16)),
    "unset a number": on_head(SetProperty("/a", "count", None), SetProperty("/a", "fresh", None)),
    "set a text": on_head(SetProperty("/a", "count", "text")),
    "remove the node": on_head(RemoveNode("/a")),
    "remove and add the node": on_head(RemoveNode("/a"), AddNode("/a", {"count": 7})),
    "add a child of the name": on_head(AddNode("/a/fresh", {})),
    "move the node": on_head(MoveNode("/a", "/moved")),
    "copy the node": on_head(CopyNode("/a", "/copy")),
    "merge adjusts": lambda instance, prepared: instance.branches.merge(prepared.adjusting, ""),
    "fold": lambda instance, _: _fold(instance),
    "adjust, serializable": serializable(lambda tx: tx.adjust("/a", "count", 32)),
    "read it, serializable": serializable(lambda tx: tx.set("/a/b", "seen", tx.get("/a", "count"))),
}
"""What meets adjusts of /a: ``count`` has an adjust already, ``fresh`` does not exist."""
EXPECT_KINDS: dict[str, Callable[[Instance, Prepared], int]] = {
    "expect the node": expecting("/a"),
    "expect the node, adjust it": expecting("/a", Adjust("/a", "count", 4096)),
    # Each changes the node that the other expects.
    "expect the node, set another": expecting("/a", SetProperty("/a/b", "seen", 1)),
    "expect another, adjust the node": expecting("/a/b", Adjust("/a", "count", 8192)),
    # Each creates or changes what the other expects.
    "expect the node, copy it": expecting("/a", CopyNode("/a", "/copy")),
    "expect no copy, adjust the node": expecting("/copy", Adjust("/a", "count", 16384)),
    "rebase and merge adjusts": lambda instance, prepared: instance.branches.merge(_rebase(instance, prepared), ""),
}
"""What meets adjusts of /a, too, most of it with expected versions."""


def _rebase(instance: Instance, prepared: Prepared) -> int:
    instance.poll()
    return rebase(instance.branches, prepared.adjusting, instance.head(), "")


def _fold(instance: Instance) -> int:
    def make(view: View) -> ChangeSource:
        state = instance.reader.node(view, "/a")
        found = None if state is None else state.property_of("count")
        if found is None or not isinstance(values.decode(found.value() or values.encode("")), int):
            return OperationList([])
        plan = folds.plan_of("/a", "count", found, sorted(found.totals))
        return OperationList([]) if plan is None else ReadyChangeSet(plan)

    return instance.commit(make, "", retry_timeout=FOREVER, max_poll_age=RECENT)


def _as_sole_writer(stage: Stage, *commits: Sequence[Operation]) -> Callable[[Instance, Prepared], int]:
    """Commit to /a as the process that has written it last, and found nobody else there; return the last revision.

    ``stage`` is that of the first commit. Where a snapshot is given, only the last commit is made.
    """

    def commit(instance: Instance, prepared: Prepared) -> int:
        let_know(instance, "/a", prepared.head, stage)
        return _in_turn(instance, prepared, commits)

    return commit


def _in_turn(
    instance: Instance,
    prepared: Prepared,
    commits: Sequence[Sequence[Operation]],
    before_each: Callable[[], None] = lambda: None,
) -> int:
    """Commit on the head; return the last revision. Where a snapshot is given, only the last commit is made."""
    is_instance = isinstance(instance, Instance)
    revision = 0
    for operations in commits if is_instance else commits[-1:]:
        if is_instance:
            before_each()
        revision = on_head(*operations)(instance, prepared)
    return revision


def _among_others(name: str, *commits: Sequence[Operation]) -> Callable[[Instance, Prepared], int]:
    """Commit to a property of /a over which other processes compete; return the last revision."""

    def commit(instance: Instance, prepared: Prepared) -> int:
        return _in_turn(instance, prepared, commits, lambda: let_compete(instance, "/a", name))

    return commit


def _adding_among_others(instance: Instance, prepared: Prepared) -> int:
    """Increment a number of /a over which other processes compete, and add a node, as the process that has written /a last."""
    operations: list[Operation] = [Increment("/a", "count", 3), AddNode("/a/fresh", {"n": 1})]
    let_know(instance, "/a", prepared.head, Stage.ALONE)
    return _among_others("count", operations)(instance, prepared)


def _beside_a_branch(instance: Instance, prepared: Prepared) -> int:
    """Commit to a branch, and then increment the same number of /a on trunk, over which other processes compete."""
    if isinstance(instance, Instance):
        commit_on_branch(instance, instance.begin_branch(instance.head()), [Increment("/a", "count", 64)])
    return _among_others("count", [Increment("/a", "count", 3)])(instance, prepared)


def _adding_alone(path: str) -> Callable[[Instance, Prepared], int]:
    """Add a node below /a as its sole writer, which has read only /a."""
    add = _as_sole_writer(Stage.ALONE, [AddNode(path, {"n": 1})])

    def commit(instance: Instance, prepared: Prepared) -> int:
        if isinstance(instance, Instance):
            instance.nodes(instance.head(), ["/a"])
        return add(instance, prepared)

    return commit


SOLE_KINDS: dict[str, Callable[[Instance, Prepared], int]] = {
    "set alone": _as_sole_writer(Stage.ALONE, [SetProperty("/a", "p", "alone")]),
    "set a new property alone": _as_sole_writer(Stage.ALONE, [SetProperty("/a", "fresh", "alone")]),
    "increment alone": _as_sole_writer(Stage.ALONE, [Increment("/a", "count", 3)]),
    "mark, then set alone": _as_sole_writer(
        Stage.MARK,
        [SetProperty("/a", WITHOUT_MEANING, 1)],
        [SetProperty("/a", WITHOUT_MEANING, None), SetProperty("/a", "p", "marked")],
    ),
    "mark, then increment alone": _as_sole_writer(
        Stage.MARK,
        [SetProperty("/a", WITHOUT_MEANING, 1)],
        [SetProperty("/a", WITHOUT_MEANING, None), Increment("/a", "count", 3)],
    ),
    "set alone, then increment alone": _as_sole_writer(
        Stage.ALONE,
        [SetProperty("/a", WITHOUT_MEANING, 1)],
        [SetProperty("/a", WITHOUT_MEANING, None), Increment("/a", "count", 3)],
    ),
    "increment among others": _among_others("count", [Increment("/a", "count", 3)]),
    "set among others": _among_others("p", [SetProperty("/a", "p", "among")]),
    "set, then increment among others": _among_others(
        "count",
        [SetProperty("/a", WITHOUT_MEANING, 1), Increment("/a", "count", 0)],
        [SetProperty("/a", WITHOUT_MEANING, None), Increment("/a", "count", 3)],
    ),
    "add alone": _adding_alone("/a/fresh"),
}
"""They begin in a state in which the row of /a is marked."""
EXISTS: Final = "add the leaf alone"
"""As they, but the node exists in the initial state."""
NAMED: Final = "set the name of the leaf alone"
"""As they, but a child has the name in the initial state."""
BESIDE_OTHERS: Final[dict[str, Callable[[Instance, Prepared], int]]] = {
    "increment and add among others": _adding_among_others,
    "commit to a branch, increment among others": _beside_a_branch,
}
"""As they; each is explored beside a few others."""
ALL_KINDS = {
    **KINDS,
    **ADJUST_KINDS,
    **EXPECT_KINDS,
    **SOLE_KINDS,
    **BESIDE_OTHERS,
    EXISTS: _adding_alone("/a/leaf"),
    NAMED: _as_sole_writer(Stage.ALONE, [SetProperty("/a", "leaf", "alone")]),
}

"""Every action that changes a repository, for crashes at any call."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hbasemk import ConflictError, VersionMismatchError
from hbasemk.format import schema
from hbasemk.kernel import checkpoints, settings
from hbasemk.kernel.commit.change_source import OperationList
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
from hbasemk.store.abc import Get
from hbasemk.transaction import Transaction
from tests.support.branches import commit_on_branch
from tests.support.runtime import open_instance
from tests.support.simulation.crashes import adjusts, repair
from tests.support.simulation.crashes.branches import (
    abandoned,
    branch,
    branch_behind,
    branch_exists,
    branch_head,
    branch_that_conflicts,
    branch_that_is_merged,
    branch_with_markers,
    conflicting_merge,
    late_on_branch,
    left_on_branch,
    long_branch,
    merged,
    rebase_on_head,
    sweep_all,
)
from tests.support.simulation.crashes.sites import Died, Site, Steps, tree

TREE: list[Operation] = [
    AddNode("/a", {"p": "old", "n": 0}),
    AddNode("/a/b", {"q": 1}),
    AddNode("/a/b/c", {}),
    AddNode("/other", {}),
]


@dataclass(frozen=True)
class Kind:
    """An action. ``prepare`` creates its preconditions; ``act`` and ``look`` find its result in ``site.state``.

    ``look`` returns an instance's view of it, which must be that before or after. ``changes``: whether the two differ.
    ``again``: whether the action succeeds when it is repeated after a failure. ``hourly``: whether its remains may stay
    until the hourly maintenance of branches and late rows. ``finish`` runs at the end with an instance, for manual steps
    and final assertions; ``shown`` returns the state that must be equal on all instances.
    """

    name: str
    act: Callable[[Site], Any]
    prepare: Callable[[Site], Any] = lambda _: None
    look: Callable[[Site, Any], Any] = lambda _, instance: tree(instance)
    changes: bool = True
    again: bool = False
    hourly: bool = False
    finish: Callable[[Site, Any], None] = lambda _, __: None
    shown: Callable[[Any], Any] = tree
    rows: int = 1000


def commit(operations: list[Operation]) -> Callable[[Site], Any]:
    return lambda site: site.acting.commit(lambda _: OperationList(operations), "", retry_timeout=5, max_poll_age=0)


def on_base(operations: list[Operation]) -> Callable[[Site], Any]:
    return lambda site: site.acting.commit_on(site.acting.at(site.state), OperationList(operations), "")


def after_others(site: Site) -> int:
    """Create an old base, followed by an unrelated commit."""
    one = site.open(1)
    base = one.head().revision
    one.commit(
        lambda _: OperationList([SetProperty("/other", "x", 1), SetProperty("/a", "unrelated", 1)]),
        "",
        retry_timeout=1,
        max_poll_age=0,
    )
    one.close()
    return base


def after_a_winner(site: Site) -> int:
    one = site.open(1)
    base = one.head().revision
    one.commit(lambda _: OperationList([SetProperty("/a", "p", "won")]), "", retry_timeout=1, max_poll_age=0)
    one.close()
    return base


def lose(site: Site) -> None:
    """Commit with a conflict: rolled back completely, with an error."""
    try:
        on_base([SetProperty("/a", "p", "new"), AddNode("/a/new", {}), RemoveNode("/a/b")])(site)
    except ConflictError:
        return
    raise AssertionError("two that conflict both got through")


def expecting(site: Site) -> None:
    """Commit with the version of another node, the version of a changed node, and the absence of a third one."""

    def make(view: Any) -> OperationList:
        nodes = site.acting.nodes(view, ["/a", "/other"])
        expected = [Expect(path, node.version) for path, node in nodes.items() if node is not None]
        return OperationList([*expected, Expect("/none", None), SetProperty("/a", "p", "new"), AddNode("/a/new", {})])

    site.acting.commit(make, "", retry_timeout=5, max_poll_age=0)


def lose_expectation(site: Site) -> None:
    """Commit with the version of a node that another commit has changed: rolled back completely, with an error."""
    node = site.acting.require(site.acting.at(site.state), "/a")
    try:
        on_base([Expect("/a", node.version), SetProperty("/other", "p", "new"), AddNode("/other/new", {})])(site)
    except VersionMismatchError:
        return
    raise AssertionError("the commit got through although its expected version had changed")


def leave(site: Site, seconds: float) -> int:
    """Create the revision of a writer that died after its cells, so many seconds ago."""
    steps = Steps(site.store, transactions=False)
    one = open_instance(steps, site.world, mac=0x21, seed=77)
    one.clock.next(0)
    steps.log.clear()
    steps.fail(5, "died")
    try:
        one.commit(
            lambda _: OperationList([SetProperty("/a", "p", "left"), AddNode("/a/left", {})]),
            "",
            retry_timeout=1,
            max_poll_age=0,
        )
    except Died:
        assert steps.log.count("write nodes") == 2, steps.log
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


# --- others ------------------------------------------------------------------------------------------------------


def serializable(site: Site) -> None:
    tx = Transaction(site.acting, site.acting.head(), "", "serializable")
    assert tx.children("/a") == ["b"]
    tx.set("/a/b", "q", tx.get("/a", "n"))
    tx.add("/a/s", {})
    tx.commit()


def listed(site: Site) -> int:
    """Change only the list of children, of everything that a transaction on the base reads."""
    one = site.open(1)
    base = one.head().revision
    one.commit(lambda _: OperationList([AddNode("/a/since", {})]), "", retry_timeout=1, max_poll_age=0)
    one.close()
    return base


def list_and_set(site: Site, base: int | None = None) -> None:
    """Write the number of listed children to another node."""
    tx = Transaction(site.acting, site.acting.head() if base is None else site.acting.at(base), "", "serializable")
    tx.set("/other", "count", len(tx.children("/a")))
    tx.commit()


def lose_by_a_list(site: Site) -> None:
    try:
        list_and_set(site, site.state)
    except ConflictError as error:
        assert (error.path, error.column) == ("/a", "child 'since'"), error
        return
    raise AssertionError("a transaction that missed a child got through")


def blob(site: Site) -> str:
    return site.acting.blobs.write(io.BytesIO(bytes(range(95))))


def blob_seen(site: Site, instance: Any) -> Any:
    import hashlib

    from hbasemk.errors import BlobNotFoundError

    name = hashlib.sha256(bytes(range(95))).hexdigest()
    try:
        return instance.blobs.read(name) == bytes(range(95))
    except BlobNotFoundError:
        assert instance.blobs._length(bytes.fromhex(name)) is None, "a blob with a length lacks chunks"
        return False


def create(site: Site) -> None:
    site.acting = open_instance(site.steps, site.world, mac=site.mac, seed=9)


def claim(site: Site) -> int:
    site.acting.lease.forget()
    return site.acting.clock.next(0)


def renew(site: Site) -> None:
    site.world.advance(4)
    site.acting.lease.renew()


def checkpoint(site: Site) -> None:
    checkpoints.keep(site.acting, site.acting.head().revision, 10**13)


def checkpoint_seen(site: Site, instance: Any) -> Any:
    return tree(instance), bool(checkpoints.all_of(instance))


def settings_seen(_: Site, instance: Any) -> Any:
    found, watermark = settings.read(instance.store)
    assert found is not None
    assert watermark is not None
    row = instance.store.read(schema.JOURNAL, [Get(schema.revision_key(found.root_revision))])[0]
    return tree(instance), bool(row.cells)


KINDS = [
    Kind("set", commit([SetProperty("/a", "p", "new")])),
    Kind("unset", commit([SetProperty("/a", "p", None)])),
    Kind("increment", commit([Increment("/a", "n", 1)])),
    Kind("adjust", commit([Adjust("/a", "n", 5)])),
    Kind("adjust in a commit of several nodes", commit(adjusts.SEVERAL)),
    Kind("adjust on an old base", on_base(adjusts.SEVERAL[:3]), adjusts.adjusted_since),
    Kind(
        "merge of a branch that adjusts",
        lambda site: site.acting.branches.merge(site.state[1], ""),
        adjusts.branch_that_adjusts,
        merged,
    ),
    Kind("rebase of a branch that adjusts", rebase_on_head, adjusts.branch_that_adjusts, branch_head),
    Kind("fold", adjusts.fold, adjusts.adjusted, changes=False, again=True),
    Kind("beside a change without effect", commit([SetProperty("/a", "p", "new"), Increment("/a/b", "q", 0)])),
    Kind("add", commit([AddNode("/a/new", {"x": 1})])),
    Kind("remove a leaf", commit([RemoveNode("/a/b/c")])),
    Kind("remove a subtree", commit([RemoveNode("/a")])),
    Kind("move", commit([MoveNode("/a/b", "/moved")])),
    Kind("copy", commit([CopyNode("/a", "/copied")])),
    Kind("add again", commit([RemoveNode("/a/b"), AddNode("/a/b", {"again": True})])),
    Kind("several batches", commit([AddNode(f"/a/new{number}", {"x": 1}) for number in range(8)]), rows=3),
    Kind("with expected versions", expecting),
    Kind("on an old base", on_base([SetProperty("/a", "p", "new"), AddNode("/a/new", {})]), after_others),
    Kind("serializable", serializable),
    Kind("serializable, with a list", list_and_set),
    Kind("serializable, lost by a list", lose_by_a_list, listed, changes=False),
    Kind("serializable, a dead writer's child in a list", list_and_set, lambda site: leave(site, 16)),
    Kind("conflict, lost and rolled back", lose, after_a_winner, changes=False),
    Kind("conflict over an expected version", lose_expectation, after_a_winner, changes=False),
    Kind("meets a dead writer's cells", commit([SetProperty("/a", "p", "new")]), lambda site: leave(site, 16)),
    Kind("meets a writer that is about to die", commit([SetProperty("/a", "n", 5)]), lambda site: leave(site, 1)),
    Kind(
        "begin of a branch",
        lambda site: site.acting.branches.begin(site.acting.head()),
        changes=False,
    ),
    Kind(
        "commit on a branch",
        lambda site: commit_on_branch(site.acting, site.state[1], [SetProperty("/a", "p", "2"), RemoveNode("/a/b")]),
        branch,
        branch_head,
    ),
    Kind("merge", lambda site: site.acting.branches.merge(site.state[1], ""), branch_behind, merged),
    Kind("merge that conflicts", conflicting_merge, branch_that_conflicts, branch_head, changes=False),
    Kind(
        "commit on a branch with a dead writer's",
        lambda site: commit_on_branch(site.acting, site.state[1], [SetProperty("/a", "p", "2"), RemoveNode("/a/b")]),
        left_on_branch,
        branch_head,
    ),
    Kind(
        "merge of a branch with a dead writer's commit",
        lambda site: site.acting.branches.merge(site.state[1], ""),
        left_on_branch,
        merged,
    ),
    Kind("rebase", rebase_on_head, branch_behind, branch_head),
    Kind("rebase of a branch with markers", rebase_on_head, branch_with_markers, branch_head),
    Kind("reset", lambda site: site.acting.branches.reset(site.state[2], site.state[1]), long_branch, branch_head),
    Kind(
        "sweep of an abandoned branch",
        lambda site: site.acting.branches.sweep(24 * 3600 * 1000),
        abandoned,
        branch_exists,
        again=True,
        hourly=True,
    ),
    *(
        Kind(name, sweep_all, prepare, branch_exists, again=True, hourly=True)
        for name, prepare in (
            ("sweep of a new branch", long_branch),
            ("sweep of a branch with a dead writer's commit", left_on_branch),
        )
    ),
    Kind(
        "sweep of a merged branch",
        sweep_all,
        branch_that_is_merged,
        merged,
        changes=False,
        again=True,
        hourly=True,
    ),
    Kind(
        "roll-back of a commit on a branch that went on",
        late_on_branch,
        long_branch,
        branch_head,
        changes=False,
        hourly=True,
    ),
    Kind(
        "abandon of a branch",
        lambda site: site.acting.branches.abandon(site.state[1]),
        branch,
        branch_head,
        hourly=True,
    ),
    Kind("blob", blob, look=blob_seen, again=True),
    Kind("checkpoint", checkpoint, look=checkpoint_seen, again=True),
    Kind("creation of a repository", create, look=settings_seen, changes=False, again=True),
    Kind("claim of a lease", claim, changes=False, again=True),
    Kind("renewal of a lease", renew, changes=False, again=True),
    Kind("release of a lease", lambda site: site.acting.close(), changes=False),
    Kind("recovery of a dead writer", recover, lambda site: leave(site, 16), changes=False, again=True),
    Kind("sweep of what nobody rolled back", recover, left_undone, changes=False, again=True),
    Kind("move of the watermark", advance, many_revisions, changes=False, again=True),
    *(
        Kind(name, repair.recover_late, late, changes=False, again=True, hourly=True, finish=repair.hidden)
        for name, late in (
            ("recovery of rows that arrived late", repair.late_rows),
            ("sweep of an aborted row that arrived late", repair.late_abort),
        )
    ),
    *(
        Kind(name, repair.count_children, wide, changes=False, finish=repair.counted)
        for name, wide in (
            ("count of a wide node's children", repair.wide_node),
            ("new count of a wide node's children", repair.wide_node_with_a_memo),
        )
    ),
    *(
        Kind(
            f"repair of {name.replace('_', ' ')}",
            repair.repair,
            repair.damaged(name),
            repair.not_damaged,
            changes=False,
            again=True,
            finish=repair.repaired,
            shown=repair.shared_view(name),
        )
        for name in repair.REPAIRED
    ),
]

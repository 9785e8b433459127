"""Every action that changes a repository, for crashes at any call."""

from __future__ import annotations

from hbasemk.kernel.commit.operations import (
    AddNode,
    Adjust,
    CopyNode,
    Increment,
    MoveNode,
    RemoveNode,
    SetProperty,
)
from hbasemk.kernel.commit.stage import Stage
from tests.support.branches import commit_on_branch
from tests.support.simulation.crashes import adjusts, checkpoints, repair
from tests.support.simulation.crashes.beside_tree import (
    blob,
    blob_seen,
    claim,
    create,
    renew,
    settings_seen,
)
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
    old_branch,
    rebase_on_head,
    sweep_all,
    sweep_hourly,
)
from tests.support.simulation.crashes.commits import (
    after_a_winner,
    after_others,
    commit,
    expecting,
    list_and_set,
    listed,
    lose,
    lose_by_a_list,
    lose_expectation,
    on_base,
    serializable,
)
from tests.support.simulation.crashes.dead_writers import advance, leave, left_undone, many_revisions, recover
from tests.support.simulation.crashes.kind import Kind
from tests.support.simulation.crashes.sole_writers import (
    increment_among_others,
    increment_too_late,
    marked,
    marked_and_written,
    marked_for_all,
    set_as,
)

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
    Kind("set alone", set_as(Stage.ALONE), marked),
    Kind("set alone, and another has written", set_as(Stage.ALONE, sees_all=False), marked_and_written),
    Kind("increment among others", increment_among_others, marked_for_all),
    Kind("increment among others, too late", increment_too_late, marked_for_all),
    Kind("increment among others beside a sole writer", increment_among_others, marked),
    Kind("increment among others, and another has written", increment_among_others, marked_and_written),
    Kind("increment among others without a mark", increment_among_others),
    Kind("mark a row", set_as(Stage.MARK), marked),
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
        "abandonment of an old branch",
        lambda site: sweep_hourly(site.acting),
        old_branch,
        branch_exists,
        again=True,
        hourly=True,
    ),
    Kind(
        "sweep of an abandoned branch",
        lambda site: sweep_hourly(site.acting),
        abandoned,
        branch_exists,
        changes=False,
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
    Kind("checkpoint", checkpoints.make, look=checkpoints.any_seen, again=True),
    Kind("extension of a checkpoint", checkpoints.extend, checkpoints.kept, checkpoints.seen, again=True),
    Kind("release of a checkpoint", checkpoints.release, checkpoints.kept, checkpoints.seen, again=True),
    Kind("removal of an expired checkpoint", checkpoints.remove, checkpoints.expired, checkpoints.seen, again=True),
    Kind(
        "removal of a released checkpoint",
        checkpoints.remove,
        checkpoints.released,
        checkpoints.seen,
        changes=False,
        again=True,
    ),
    Kind("checkpoint where one has ended", checkpoints.keep_again, checkpoints.released, checkpoints.seen, again=True),
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

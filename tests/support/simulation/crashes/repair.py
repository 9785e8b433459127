"""Recovery, repair and count memos as actions that a crash can stop at any call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hbasemk.check import IntegrityCheck, Repair
from hbasemk.check.problem import DANGLING, HIDDEN, ORPHAN, UNLISTED, UPLOAD
from hbasemk.format import changes, journal_row, paths, schema
from hbasemk.format.changes import RowChange
from hbasemk.format.journal_row import Outcome
from hbasemk.kernel import settings
from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.operations import AddNode, Operation, RemoveNode, SetProperty
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.reading.child_count import Memo
from hbasemk.store.abc import Get, NewCell, Put
from tests.support.corruptions import CASES
from tests.support.simulation.crashes.sites import Site, problems, tree
from tests.support.tables import Tables

DAMAGED = "/damaged"

REPAIRED = (
    "cells_without_a_journal_row",
    "visible_cells_of_an_aborted_revision",
    "cells_of_a_revision_that_says_they_are_deleted",
    "a_child_entry_of_a_missing_node",
    "a_node_whose_parent_is_missing",
    "a_node_whose_parent_was_removed",
    "a_node_that_its_parent_does_not_list",
    "a_revision_that_its_writer_left_pending",
    "a_revision_that_its_writer_left_unswept",
    "a_pending_revision_below_the_watermark",
    "a_revision_in_doubt_that_is_not_hidden",
    "a_committed_revision_that_is_hidden",
    "a_memo_of_another_number_of_children",
    "an_upload_that_ended_days_ago",
)
"""The damages whose repair a crash stops: one for each step of a repair."""


# --- rows that arrive late -----------------------------------------------------------------------------------------


def _late(site: Site, count: int, **flags: bytes) -> list[int]:
    """Write journal rows after their writer's lease, below the watermark and outside of every poll."""
    gone = site.open(0x21)
    base = gone.head().revision
    late = [gone.clock.next(0) for _ in range(count)]
    site.world.advance(16)
    one = site.open(1)
    one.commit(lambda _: OperationList([SetProperty("/a", "p", "since")]), "", retry_timeout=1, max_poll_age=0)
    one.poll()
    site.world.advance(12)
    one.poll()
    one.recovery.advance()
    _, mark = settings.read(site.store)
    assert mark is not None
    assert mark.revision > max(late)
    one.close()
    for revision in late:
        cells = [*journal_row.begin(bytes(16), base, ""), *changes.encode([RowChange("/a", changes.CHANGED, ["p"])])]
        kept = [cell for cell in cells if cell.qualifier.decode() not in flags]
        flagged = [NewCell(schema.DATA, name.encode(), value) for name, value in flags.items()]
        site.store.write(schema.JOURNAL, [Put(schema.revision_key(revision), [*kept, *flagged])])
        site.world.advance(1)
    return late


def late_rows(site: Site) -> list[int]:
    """Write two rows that would begin a revision."""
    return _late(site, 2)


def late_abort(site: Site) -> list[int]:
    """Write one row that is aborted and not swept."""
    return _late(site, 1, abort=schema.YES)


def recover_late(site: Site) -> None:
    site.acting.recovery.recover_late()


def hidden(site: Site, instance: Instance) -> None:
    """Assert that late revisions are hidden from instances that begin at the watermark, and can never commit."""
    _, mark = settings.read(instance.store)
    assert mark is not None
    assert mark.hidden.issuperset(site.state)
    assert set(instance.outcomes.of_many(site.state).values()) == {Outcome.ABORTED}


# --- repair ------------------------------------------------------------------------------------------------------


def damaged(name: str) -> Callable[[Site], Any]:
    def prepare(site: Site) -> dict[str, dict[str, object]]:
        tables = Tables(site.store, site.open, site.world.advance, lambda: int(site.world.ms))
        CASES[name].damage(tables, DAMAGED)
        site.world.advance(30)
        looking = site.open(0x60)
        assert problems(looking) or CASES[name].kind == UPLOAD
        # Repair keeps misplaced nodes and removes all other cells that must not be visible.
        return tree(looking) if CASES[name].kind in {DANGLING, ORPHAN, UNLISTED} else {}

    return prepare


def repair(site: Site) -> None:
    """Repair all problems that another instance found."""
    repair_with(site.acting, site.watcher)


def repair_with(acting: Instance, looking: Instance) -> None:
    acting.poll()
    repairing = Repair(acting)
    for problem in list(IntegrityCheck(looking, notes=True).run()):
        repairing.repair(problem)


def not_damaged(_: Site, instance: Instance) -> dict[str, dict[str, object]]:
    """Return the nodes outside of the repair."""
    return beside_damage(instance)


def beside_damage(instance: Instance) -> dict[str, dict[str, object]]:
    return {path: state for path, state in tree(instance).items() if not path.startswith(DAMAGED)}


def shared_view(name: str) -> Callable[[Instance], Any]:
    """Return the function for the nodes that old and new instances must agree on; old ones keep a revision hidden."""
    if CASES[name].kind == HIDDEN:
        return beside_damage
    return tree


def repaired(site: Site, instance: Instance) -> None:
    """Let a later instance repair the rest; then the check is clean and a second repair has nothing to do."""
    for _ in range(2):
        repair_with(instance, instance)
    left = [str(problem) for problem in IntegrityCheck(instance, notes=True).run()]
    assert left == []
    found = tree(instance)
    assert {path: found.get(path) for path in site.state if path != "/"} == {
        path: properties for path, properties in site.state.items() if path != "/"
    }


# --- the memo of a wide node -------------------------------------------------------------------------------------


def wide_node(site: Site) -> None:
    one = site.open(1)
    children = [AddNode(f"/wide/{number}", {}) for number in range(8)]
    one.commit(lambda _: OperationList([AddNode("/wide", {}), *children]), "", retry_timeout=1, max_poll_age=0)
    one.close()


def wide_node_with_a_memo(site: Site) -> None:
    """Create a memo and enough changes that the next count writes a new one."""
    wide_node(site)
    one = site.open(1)
    count(one)
    assert memo(site) is not None
    changed: list[Operation] = [RemoveNode("/wide/0"), *(AddNode(f"/wide/{number}", {}) for number in range(8, 14))]
    one.commit(lambda _: OperationList(changed), "", retry_timeout=1, max_poll_age=0)
    one.close()


def memo(site: Site) -> Memo | None:
    cells = site.store.read(schema.CLUSTER, [Get(schema.child_count_key(paths.key("/wide")))])[0].cells
    return Memo.decode(cells[0].value, "/wide") if cells else None


def count(instance: Instance) -> int:
    head = instance.head()
    found = instance.counts.of(head, instance.reader.require(head, "/wide"))
    assert found == len(instance.reader.children(head, "/wide"))
    return found


def count_children(site: Site) -> None:
    site.acting.poll()
    before = memo(site)
    count(site.acting)
    # The memo is an optimization: a failed write of it is not an error.
    assert memo(site) != before or site.steps.fails_at >= 0 or site.steps.steps < 2


def counted(_: Site, instance: Instance) -> None:
    """Assert that the count is right with any memo."""
    count(instance)

"""Mutants of adjust: the kernel broken on purpose, one line at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pytest

from hbasemk.format import node, schema
from hbasemk.format.adjusted import Adjusted
from hbasemk.format.changes import RowChange
from hbasemk.kernel.commit import change_set, folds, read_back
from hbasemk.kernel.commit.change_set import RowPlan
from hbasemk.kernel.commit.read_set import ReadSet
from hbasemk.kernel.commit.slots import Slots
from hbasemk.kernel.commit.staged_node import StagedNode
from hbasemk.kernel.reading import reader
from hbasemk.kernel.reading.visible_cells import VisibleCells
from hbasemk.store.abc import Column

Mutant: TypeAlias = Callable[[pytest.MonkeyPatch], None]
MUTANTS: list[Mutant] = []


def mutant(function: Mutant) -> Mutant:
    """Register a mutant."""
    MUTANTS.append(function)
    return function


def one_slot_for_all(patch: pytest.MonkeyPatch) -> None:
    """Let all processes use one slot of each property. This is correct, because every writer depends on its slot."""

    def choose(self: Slots, draft: Any, places: Any) -> None:
        del self
        draft.slots.update(dict.fromkeys(places, 0))

    patch.setattr(Slots, "choose", choose)
    patch.setattr(Slots, "is_collision", lambda *_: False)


@mutant
def total_taken_from_the_head(patch: pytest.MonkeyPatch) -> None:
    original = VisibleCells.visible

    def visible(self: VisibleCells, view: Any, rows: Any) -> Any:
        found = []
        for row, cells in zip(rows, original(self, view, rows), strict=True):
            newest = [cell for cell in row.cells if schema.is_slot((cell.family, cell.qualifier))]
            found.append([cell for cell in cells if not schema.is_slot((cell.family, cell.qualifier))] + newest)
        return found

    patch.setattr(VisibleCells, "visible", visible)


@mutant
def slot_not_read_back(patch: pytest.MonkeyPatch) -> None:
    original = RowPlan.use_slots

    def use_slots(self: RowPlan, totals: Any) -> None:
        self.depends_on.update(dict.fromkeys(self.slots))
        original(self, totals)
        for column in self.slots:
            del self.depends_on[column]

    one_slot_for_all(patch)
    patch.setattr(RowPlan, "use_slots", use_slots)


@mutant
def base_without_subtraction(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Adjusted, "set", lambda self, plain, by=0: self._replace(plain=plain, seen=-by, created=False))


@mutant
def first_adjust_beside_any_base(patch: pytest.MonkeyPatch) -> None:
    class Any_(dict[Column, bytes]):
        def get(self, column: Column, default: Any = None) -> Any:
            return _Equal() if column in self else default

    original = read_back._probes_of

    def probes(*arguments: Any, **named: Any) -> Any:
        return [one._replace(created=Any_(one.created)) for one in original(*arguments, **named)]

    patch.setattr(read_back, "_probes_of", probes)


class _Equal:
    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0


@mutant
def sum_over_an_earlier_life(patch: pytest.MonkeyPatch) -> None:
    original = node.from_cells

    def from_cells(path: str, cells: Any) -> Any:
        return original(
            path,
            [
                cell._replace(timestamp=2**62) if schema.is_slot((cell.family, cell.qualifier)) else cell
                for cell in cells
            ],
        )

    patch.setattr(reader, "from_cells", from_cells)


@mutant
def slots_not_declared(patch: pytest.MonkeyPatch) -> None:
    original = RowChange.columns

    def columns(self: RowChange) -> Iterator[Column]:
        return (column for column in original(self) if not schema.is_slot(column))

    patch.setattr(RowChange, "columns", columns)


@mutant
def merge_without_the_totals(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(StagedNode, "adjust", _adjust_on_trunk_only)


_ADJUST = StagedNode.adjust


def _adjust_on_trunk_only(self: Any, name: str, by: Any, *, creates: bool = False) -> None:
    import sys

    if sys._getframe(1).f_code.co_name != "_change_property":
        _ADJUST(self, name, by, creates=creates)


@mutant
def fold_keeps_the_totals(patch: pytest.MonkeyPatch) -> None:
    original = folds.plan_of

    def plan_of(*arguments: Any) -> Any:
        plan = original(*arguments)
        if plan is not None:
            row = plan.rows[0]
            row.cells = tuple(cell for cell in row.cells if not schema.is_slot((cell[0], cell[1])))
        return plan

    patch.setattr(folds, "plan_of", plan_of)


@mutant
def fold_depends_on_nothing(patch: pytest.MonkeyPatch) -> None:
    original = folds.plan_of

    def plan_of(*arguments: Any) -> Any:
        plan = original(*arguments)
        if plan is not None:
            plan.rows[0].depends_on.clear()
        return plan

    patch.setattr(folds, "plan_of", plan_of)


@mutant
def first_adjust_not_read_back(patch: pytest.MonkeyPatch) -> None:
    original = change_set._plan

    def plan(of: Any) -> Any:
        row, change = original(of)
        for column in row.created or ():
            row.depends_on.pop(column, None)
        return row, change

    patch.setattr(change_set, "_plan", plan)


def sets_ignore_adjusts(patch: pytest.MonkeyPatch) -> None:
    """Only histories find it: in a serializable transaction, the order of a set and an adjust matters to the other reads."""
    patch.setattr(change_set, "_exact", lambda *_: frozenset())


def adjusts_ignore_sets(patch: pytest.MonkeyPatch) -> None:
    """Only histories find it."""
    original = change_set.of_nodes

    def of_nodes(nodes: Any, reads: Any = None) -> Any:
        plan = original(nodes, reads)
        for one, row, _ in plan.adjusting:
            for name in one.slot_adjusts:
                if name not in one.created:
                    row.depends_on.pop(schema.property_column(name), None)
        return plan

    patch.setattr(change_set, "of_nodes", of_nodes)


def slots_not_expected(patch: pytest.MonkeyPatch) -> None:
    """For the interleavings: the expected version of a node does not cover its slots."""
    original = ReadSet.depends_on
    patch.setattr(
        ReadSet,
        "depends_on",
        lambda self, path, column: original(self, path, column) and not schema.is_slot(column),
    )

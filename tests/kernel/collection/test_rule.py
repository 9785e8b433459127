"""The rule that decides which versions of a row are collected, against a model that reads every view before and after."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from hbasemk.format import schema, values
from hbasemk.format.extent import Extent
from hbasemk.format.node import from_cells
from hbasemk.kernel.collection import rule
from hbasemk.store.abc import Cell, Column
from tests.support.proof import SHARES

ROWS = int(os.environ.get("HBASEMK_COLLECTION_ROWS", "4000"))
PROPERTIES = [schema.property_column("p"), schema.property_column("q")]
CHILDREN = [schema.child_column("k"), schema.child_column("l")]
Row = dict[Column, dict[int, bytes]]


def shown(row: Row, view: Extent) -> object:
    """Return what a view shows of a row: None if the node does not exist in it."""
    newest = {}
    for column, versions in row.items():
        visible = [at for at in versions if at in view]
        if visible:
            newest[column] = max(visible)
    cells = [Cell(*column, at, row[column][at]) for column, at in newest.items()]
    state, _ = from_cells("/a", [cell for cell in cells if cell.family == schema.DATA])
    if state is None:
        return None
    names = sorted(
        cell.qualifier
        for cell in cells
        if cell.family == schema.CHILDREN and cell.value == schema.PRESENT and cell.timestamp >= state.created
    )
    return state.created, state.revision, state.encoded, state.version, names


def conflicts(row: Row, view: Extent, horizon: int) -> set[Column]:
    """Return the columns in which a commit on a view finds a version that is not part of the view."""
    return {column for column, versions in row.items() if any(at <= horizon and at not in view for at in versions)}


def random_row(chance: random.Random, last: int) -> Row:
    """Return a row as commits leave it: lives that begin and end, and columns that change in between."""
    row: Row = {column: {} for column in (schema.DELETED, schema.LAST_REVISION, *PROPERTIES, *CHILDREN)}
    alive = False
    for at in range(1, last + 1):
        if chance.random() < 0.4:
            continue
        row[schema.LAST_REVISION][at] = schema.TOUCHED
        if not alive or chance.random() < 0.25:
            alive = not alive or chance.random() < 0.2
            row[schema.DELETED][at] = schema.ALIVE if alive else schema.DEAD
            if not alive:
                continue
        for column in PROPERTIES:
            if chance.random() < 0.4:
                row[column][at] = chance.choice((values.TOMBSTONE, values.encode(at)))
        for column in CHILDREN:
            if chance.random() < 0.4:
                row[column][at] = chance.choice((schema.GONE, schema.PRESENT))
    return row


def collected(row: Row, horizon: int, retained: Sequence[Extent], **options: Any) -> Row:
    versions = {column: list(found.items()) for column, found in row.items()}
    gone = {
        ((cell.family, cell.qualifier), cell.timestamp)
        for cell in rule.collectable(versions, horizon, retained, **options)
    }
    return {
        column: {at: value for at, value in found.items() if (column, at) not in gone} for column, found in row.items()
    }


def check_row(seed: int) -> int:
    """Check one random row; return how many versions went. Raises AssertionError with the seed."""
    chance = random.Random(seed)
    last = chance.randrange(2, 14)
    row = random_row(chance, last)
    first, second = sorted(chance.choices(range(1, last + 1), k=2))
    retained = [
        Extent.of(floor, [at for at in range(floor + 1, last + 1) if chance.random() < 0.5])
        for floor in chance.choices(range(first), k=chance.randrange(3))
    ]
    # Later some of the views have ended, and the horizon has moved.
    left = [view for view in retained if chance.random() < 0.5]
    once = collected(row, first, retained)
    twice = collected(once, second, left)
    for kept, horizon, views in ((once, first, retained), (twice, second, left)):
        readable = [*(Extent(upper) for upper in range(horizon, last + 1)), *views]
        for view in readable:
            assert shown(kept, view) == shown(row, view), f"seed {seed}: {view} of {row} at {horizon}, {views}"
        for view in views:
            assert conflicts(kept, view, horizon) == conflicts(row, view, horizon), f"seed {seed}: conflicts of {view}"
        was_dead = max(((at, value) for at, value in row[schema.DELETED].items() if at <= horizon), default=(0, b""))
        if was_dead[1] == schema.DEAD:
            assert was_dead[0] in kept[schema.DELETED], f"seed {seed}: the deletion is not remembered"
        check_minimal(seed, kept, horizon, views, readable)
    direct = collected(row, second, left)
    assert direct == twice, f"seed {seed}: collected twice is not collected once"
    return sum(map(len, row.values())) - sum(map(len, twice.values()))


def check_minimal(seed: int, kept: Row, horizon: int, views: Sequence[Extent], readable: Sequence[Extent]) -> None:
    """Check that each version that stays is needed: without it a view changes, a conflict or a deletion is lost."""
    last = max((at for at, value in kept[schema.DELETED].items() if at <= horizon), default=0)
    for column, versions in kept.items():
        for at in [at for at in versions if at <= horizon]:
            if column == schema.DELETED and at == last and versions[at] == schema.DEAD:
                continue
            less = {one: {v: b for v, b in found.items() if (one, v) != (column, at)} for one, found in kept.items()}
            needed = any(shown(less, view) != shown(kept, view) for view in readable) or any(
                conflicts(less, view, horizon) != conflicts(kept, view, horizon) for view in views
            )
            newest_outside = any(
                at == max((v for v in versions if v <= horizon and v not in view), default=0) for view in views
            )
            masks = min(versions) < at and any(
                at == max((v for v in versions if v in view), default=0) for view in [Extent(horizon), *views]
            )
            assert needed or newest_outside or masks, f"seed {seed}: {column} at {at} stays for nothing in {kept}"


@pytest.mark.parametrize("share", SHARES)
def test_views_read_the_same_after_a_collection_and_nothing_needless_stays(share: float) -> None:
    seed = random.SystemRandom().randrange(2**40)
    print(f"seeds from {seed}")
    gone = sum(check_row(seed + number) for number in range(round(ROWS * share)))
    assert gone > ROWS * share


def _without_masking(*_: object) -> None:
    return


def _masking_for_the_horizon(original: Callable[..., None]) -> Callable[..., None]:
    return lambda versions, views, kept: original(versions, views[:1], kept)


MUTANTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "no masking": lambda patch: patch.setattr(rule, "_add_masking", _without_masking),
    "masking only for the horizon": lambda patch: patch.setattr(
        rule, "_add_masking", _masking_for_the_horizon(rule._add_masking)
    ),
    "no conflicts": lambda patch: patch.setattr(rule, "_conflicting", lambda *_: ()),
    "only the views at the horizon": lambda patch: patch.setattr(
        rule,
        "_needed",
        lambda versions, view, needed=rule._needed: needed(versions, view) if not view.above else (),
    ),
    "removed properties count as nothing": lambda patch: patch.setattr(
        rule, "_is_nothing", lambda column, newest, _: column not in rule._OWN and newest[1] == values.TOMBSTONE
    ),
    "nothing counts as something": lambda patch: patch.setattr(rule, "_is_nothing", lambda *_: False),
    "the newest version of a view is the oldest": lambda patch: patch.setattr(
        rule, "_newest", lambda found, view: min((one for one in found if one[0] in view), default=None)
    ),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_broken_rule_is_found(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTANTS[mutant](monkeypatch)
    with pytest.raises(AssertionError, match="seed"):
        for seed in range(3000):
            check_row(seed)

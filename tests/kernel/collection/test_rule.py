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


def collected(row: Row, horizon: int) -> Row:
    versions = {column: list(found.items()) for column, found in row.items()}
    gone = {((cell.family, cell.qualifier), cell.timestamp) for cell in rule.collectable(versions, horizon)}
    return {
        column: {at: value for at, value in found.items() if (column, at) not in gone} for column, found in row.items()
    }


def check_row(seed: int) -> int:
    """Check one random row; return how many versions went. Raises AssertionError with the seed."""
    chance = random.Random(seed)
    last = chance.randrange(2, 14)
    row = random_row(chance, last)
    first, second = sorted(chance.choices(range(1, last + 1), k=2))
    once = collected(row, first)
    # Later the horizon has moved.
    twice = collected(once, second)
    for kept, horizon in ((once, first), (twice, second)):
        readable = [Extent(upper) for upper in range(horizon, last + 1)]
        for view in readable:
            assert shown(kept, view) == shown(row, view), f"seed {seed}: {view} of {row} at {horizon}"
        was_dead = max(((at, value) for at, value in row[schema.DELETED].items() if at <= horizon), default=(0, b""))
        if was_dead[1] == schema.DEAD:
            assert was_dead[0] in kept[schema.DELETED], f"seed {seed}: the deletion is not remembered"
        check_minimal(seed, kept, horizon, readable)
    assert collected(row, second) == twice, f"seed {seed}: collected twice is not collected once"
    return sum(map(len, row.values())) - sum(map(len, twice.values()))


def check_minimal(seed: int, kept: Row, horizon: int, readable: Sequence[Extent]) -> None:
    """Check that each version that stays is needed: without it a view changes, or a deletion is lost."""
    last = max((at for at, value in kept[schema.DELETED].items() if at <= horizon), default=0)
    for column, versions in kept.items():
        for at in [at for at in versions if at <= horizon]:
            if column == schema.DELETED and at == last and versions[at] == schema.DEAD:
                continue
            less = {one: {v: b for v, b in found.items() if (one, v) != (column, at)} for one, found in kept.items()}
            needed = any(shown(less, view) != shown(kept, view) for view in readable)
            assert needed, f"seed {seed}: {column} at {at} stays for nothing in {kept}"


@pytest.mark.parametrize("share", SHARES)
def test_views_read_the_same_after_a_collection_and_nothing_needless_stays(share: float) -> None:
    seed = random.SystemRandom().randrange(2**40)
    print(f"seeds from {seed}")
    gone = sum(check_row(seed + number) for number in range(round(ROWS * share)))
    assert gone > ROWS * share


def _without_deletions(original: Callable[..., Any]) -> Callable[..., Any]:
    def needed(versions: rule.Versions, horizon: int) -> list[tuple[Column, int]]:
        found = list(original(versions, horizon))
        return found if len(found) > 1 else []

    return needed


MUTANTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "a deletion is forgotten": lambda patch: patch.setattr(rule, "_needed", _without_deletions(rule._needed)),
    "removed properties count as nothing": lambda patch: patch.setattr(
        rule, "_is_nothing", lambda column, newest, _: column not in rule._OWN and newest[1] == values.TOMBSTONE
    ),
    "nothing counts as something": lambda patch: patch.setattr(rule, "_is_nothing", lambda *_: False),
    "the newest version of a view is the oldest": lambda patch: patch.setattr(
        rule, "_newest", lambda found, horizon: min((one for one in found if one[0] <= horizon), default=None)
    ),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_broken_rule_is_found(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTANTS[mutant](monkeypatch)
    with pytest.raises(AssertionError, match="seed"):
        for seed in range(3000):
            check_row(seed)

"""The trees that interleavings may leave: one for each choice of the writers that a writer has seen."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

import pytest

from hbasemk.format import values
from tests.support.simulation.allowed import Allowed, History, Tree, histories
from tests.support.simulation.writers import prepare

Seen: TypeAlias = "tuple[Any, ...]"


def found(trees: Iterable[Tree], *places: tuple[str, str]) -> list[Seen]:
    """Return the properties at these places in each tree, None for an absent one."""

    def read(tree: Tree, path: str, name: str) -> Any:
        data = dict(tree[path]).get(name)
        return None if data is None else values.decode(data)

    return [tuple(read(tree, *place) for place in places) for tree in trees]


def sees_all_or_none(history: History) -> bool:
    """Return whether each writer sees all earlier ones or none, and none sees any after one that sees none."""
    sees = [history.sees[writer] for writer in history.order]
    stale = [bool(at) and not one for at, one in enumerate(sees)]
    return stale == sorted(stale) and all(
        one in (frozenset(), frozenset(history.order[:at])) for at, one in enumerate(sees)
    )


@pytest.mark.parametrize(("count", "expected"), [(1, 1), (2, 4), (3, 42)])
def test_a_snapshot_is_a_prefix_of_one_order_of_decisions(count: int, expected: int) -> None:
    every = histories(count)
    assert len(every) == len(set(every)) == expected
    for history in every:
        for one in history.sees:
            for other in history.sees:
                assert one <= other or other <= one
        for at, writer in enumerate(history.order):
            assert history.sees[writer] <= set(history.order[:at])
            assert all(history.sees[seen] <= history.sees[writer] for seen in history.sees[writer])


COUNTS = [("/a", "count"), ("/a", "fresh")]
SEEN = [("/a", "count"), ("/a/b", "seen")]
COPIES = [("/a", "count"), ("/a", "fresh"), ("/copy", "count"), ("/copy", "fresh")]


@pytest.mark.parametrize(
    ("kinds", "places", "expected", "missing"),
    [
        pytest.param(
            # The last one precedes the others, because they write what it expects. If the first one sees it, its adjust is
            # part of what is set: 500 + 2. Otherwise 4096 is added.
            ("set and adjust", "unset a number", "expect the node, adjust it"),
            COUNTS,
            {(502, 16), (502 + 4096, 16), (None, None)},
            {(502 + 4096, 16)},
            id="a set sees an unset, and not an adjust before it",
        ),
        pytest.param(
            # The reader depends on the slots, so it misses no adjust before it.
            ("set and adjust", "read it, serializable", "expect the node, adjust it"),
            SEEN,
            {
                *((count, seen) for count in (502, 502 + 4096) for seen in (128, 128 + 4096)),
                (502, 502),
                (502 + 4096, 502 + 4096),
            },
            {(502 + 4096, 502 + 4096)},
            id="a reader sees a set that had not seen an adjust",
        ),
        pytest.param(
            # If the unset sees the first adjust, it removes both properties; otherwise it precedes the adjust.
            ("first adjust", "unset a number", "copy the node"),
            COPIES,
            {
                *((None, None, *copy) for copy in ((128, None), (128, 8), (None, None))),
                *((None, 8, *copy) for copy in ((128, None), (None, None), (128, 8), (None, 8))),
            },
            {(None, 8, 128, 8)},
            id="a copy sees the later one of two writers",
        ),
    ],
)
def test_writers_may_see_some_of_the_others(
    kinds: tuple[str, ...], places: list[tuple[str, str]], expected: set[Seen], missing: set[Seen]
) -> None:
    allowed = Allowed(prepare(adjusts=True), kinds)
    trees = allowed((0, 1, 2))
    assert set(found(trees, *places)) == expected
    assert len(trees) == len(expected)
    simple = [allowed.after(kinds, history) for history in histories(3) if sees_all_or_none(history)]
    assert expected - set(found((tree for tree in simple if tree is not None), *places)) == missing


def test_each_writer_alone_leaves_one_tree_and_conflicting_ones_leave_one_for_each_order() -> None:
    allowed = Allowed(prepare(adjusts=True), ("set a number", "set and adjust"))
    assert found(allowed((0,)), *COUNTS) == [(1000, 2000)]
    assert found(allowed((1,)), *COUNTS) == [(502, 16)]
    # Each sets the count, so the later one sees the other: 2000 + 16, or 2000.
    assert set(found(allowed((0, 1)), *COUNTS)) == {(502, 2016), (1000, 2000)}

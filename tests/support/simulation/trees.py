"""The tree of a snapshot and the tables, as the invariants see them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from hbasemk.check import IntegrityCheck
from hbasemk.kernel.instance import Instance
from tests.support.uncached import without_cache

WITHOUT_MEANING: Final = "_"
"""A property that trees leave out. Writers set it only to have written a node."""


class Broken(AssertionError):
    """An invariant does not hold; the trace shows the cause."""


def check_tables(instance: Instance, when: str = "tables", but: Sequence[str] = ()) -> None:
    """Raise Broken if the integrity check finds any problem of a kind not in ``but``."""
    problems = [str(problem) for problem in IntegrityCheck(instance).run() if problem.kind not in but]
    if problems:
        raise Broken(f"{when}: {problems}")


def tree(instance: Instance, snapshot: Any) -> dict[str, tuple[tuple[str, bytes], ...]]:
    """Return the tree of a snapshot, without the cache."""
    with without_cache(instance):
        return cached_tree(instance, snapshot)


def cached_tree(instance: Instance, snapshot: Any) -> dict[str, tuple[tuple[str, bytes], ...]]:
    """Return the tree of a snapshot."""
    top = instance.reader.node(snapshot, "/")
    assert top is not None
    states = [top]
    for batch in instance.reader.levels(snapshot, "/"):
        states += batch
    return {
        state.path: tuple(sorted(item for item in state.encoded.items() if item[0] != WITHOUT_MEANING))
        for state in states
    }

"""What a kind of action consists of, and the tree on which each of them starts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hbasemk.kernel.commit.operations import (
    AddNode,
    Operation,
)
from tests.support.simulation.crashes.sites import Site, tree

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

"""The number of children that the MicroKernel shows: without those that have reserved names."""

from __future__ import annotations

from collections.abc import Sequence

from hbasemk.format import paths
from hbasemk.format.node import NodeState
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.journal.view import View
from hbasemk.kernel.reading.reader import WIDE
from hbasemk.microkernel.reserved import RESERVED


def child_count(instance: Instance, view: View, state: NodeState) -> int:
    """Return the number of a node's shown children.

    Round trips as :meth:`ChildCounts.of`. A wide node takes one more, unless the cache knows which hidden children it has.
    """
    count = instance.child_count(view, state)
    if count <= WIDE:
        # Counting has put the names into the cache.
        names, is_whole = instance.children_of(view, [state], 0)[state.path]
        if is_whole:
            return sum(name not in RESERVED for name in names)
    return count - _hidden(instance, view, [state])[state.path]


def child_counts(instance: Instance, view: View, wide: Sequence[NodeState]) -> dict[str, int]:
    """Return the numbers of shown children of wide nodes, by path.

    Round trips as :meth:`ChildCounts.of` for each node, and one for all of them, unless the cache knows their hidden children.
    """
    hidden = _hidden(instance, view, wide)
    return {state.path: instance.child_count(view, state, wide=True) - hidden[state.path] for state in wide}


def _hidden(instance: Instance, view: View, states: Sequence[NodeState]) -> dict[str, int]:
    """Return how many children of each node have reserved names, by path."""
    # No node has a path that is too long to be one.
    hidden = {
        state.path: [path for name in RESERVED if paths.is_path(path := paths.join(state.path, name))]
        for state in states
    }
    found = instance.nodes(view, [path for some in hidden.values() for path in some])
    return {parent: sum(found[path] is not None for path in some) for parent, some in hidden.items()}

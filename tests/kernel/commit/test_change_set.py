"""Change sets in memory."""

from __future__ import annotations

import gc

from hbasemk.format import paths
from hbasemk.kernel.commit import change_set
from hbasemk.kernel.commit.staged_node import StagedNode

NODES = 500


def new_node(path: str) -> StagedNode:
    node = StagedNode(path, None)
    node.exists = node.is_new = True
    node.written = {"title": b"\x01text", "size": b"\x02\x05"}
    return node


def test_a_new_node_takes_three_objects_that_the_garbage_collector_visits() -> None:
    # A load keeps them all until its commit ends, and each full collection visits each of them.
    nodes = [new_node(paths.join("/parent", f"n{number}")) for number in range(NODES)]
    gc.collect()
    before = len(gc.get_objects())

    plan = change_set.of_nodes(nodes)

    for _ in range(2):
        # A collection stops watching a tuple of tuples after it has stopped watching these.
        gc.collect()
    assert len(plan.rows) == len(plan.changes) == NODES
    assert len(gc.get_objects()) - before < 3.5 * NODES

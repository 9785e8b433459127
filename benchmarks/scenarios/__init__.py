"""The scenarios by name. A scenario is a function that takes a harness."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from benchmarks.harness import Harness
from benchmarks.scenarios import adjust, footprint, history, multiprocess, reading, writing

SCENARIOS: Final[dict[str, Callable[[Harness], None]]] = {
    "set": writing.set_property,
    "add": writing.add_nodes,
    "read": reading.read_nodes,
    "children": reading.list_children,
    "subtree": reading.read_subtree,
    "branch": writing.branch,
    "load": writing.bulk_load,
    "history": history.read_history,
    "startup": history.start_up,
    "processes": multiprocess.processes,
    "adjust": adjust.adjust,
    "adjust_processes": adjust.adjust_from_processes,
    "visibility_latency": multiprocess.visibility_latency,
    "bytes": footprint.bytes_transferred,
    "idle": footprint.idle,
    "memory": footprint.memory,
}

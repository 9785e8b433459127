"""Check a history for parallel snapshot isolation, and for serializability where a transaction requested it.

The level holds if the visibility edges between transactions (ww, wr, and the order within an instance and in time)
form no cycle, and no cycle has exactly one anti-dependency (Cerone and Gotsman). Cycles with two or more
anti-dependencies are permitted (long forks, write skew), unless the commits depend on all their reads.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

import networkx as nx

from hbasemk.testing.history import graph, versions
from hbasemk.testing.history.anomalies import Anomaly, Kind, Step
from hbasemk.testing.history.graph import Anti, Dependencies
from hbasemk.testing.history.records import History, Transaction

if TYPE_CHECKING:
    Graph: TypeAlias = nx.DiGraph[Hashable]

MOST: Final = 20
"""The largest number of counterexamples that one search reports."""
SOURCES: Final = 4096
"""The number of transactions whose successors one pass computes."""


def check(history: History) -> list[Anomaly]:
    """Return all anomalies detected in ``history``, the simplest first.

    Each cycle of transactions yields one counterexample. Raises HistoryError for a history that contradicts itself.
    """
    inferred = versions.infer(history)
    dependencies = graph.build(inferred)
    found = list(inferred.anomalies)
    found += _overtaken(history, inferred.next, dependencies)
    found += _cycles(dependencies)
    single, rest = _single_anti(dependencies)
    found += single
    found += _dependent_cycles(dependencies, rest)
    return found


def _overtaken(
    history: History, following: Mapping[str, Mapping[str | None, Sequence[str]]], dependencies: Dependencies
) -> Iterator[Anomaly]:
    """Yield commits that depended on a read although a commit that changed it had ended before they began.

    That may be the writer of any later version: of the next one's writer, the end may be unknown.
    """
    for edge in dependencies.anti:
        committing = history.by_id[edge.reader].committing
        if not edge.depended_on or committing is None:
            continue
        for writer in _later(history, following[edge.key], edge.writer, committing):
            if writer.outcome == "committed" and writer.ended is not None and writer.ended < committing:
                yield _anomaly(Kind.OVERTAKEN, [graph.anti_step(edge._replace(writer=writer.id))])
                break


def _later(
    history: History, following: Mapping[str | None, Sequence[str]], writer: str, before: float
) -> Iterator[Transaction]:
    """Yield the writers of a version and of later ones, as long as they began before a moment."""
    found = {writer: history.by_id[writer]}
    waiting = [writer]
    while waiting:
        one = found[waiting.pop()]
        yield one
        if one.begun < before:
            new = [other for other in following.get(one.id, ()) if other not in found]
            found.update((other, history.by_id[other]) for other in new)
            waiting += new


# --- cycles without an anti-dependency -----------------------------------------------------------------------


def _cycles(dependencies: Dependencies) -> Iterator[Anomaly]:
    whole = dependencies.visible
    for part in _components(whole):
        for kind, labels in (
            (Kind.G0, {"ww"}),
            (Kind.G1C, {"ww", "wr"}),
            (Kind.EFFECT_BEFORE_CAUSE, {"ww", "wr", "so", "rt"}),
        ):
            edges = [
                (source, target)
                for source, target, data in whole.subgraph(part).edges(data=True)
                if any(label[0] in labels for label in data["labels"])
            ]
            nodes = _shortest_cycle(whole.edge_subgraph(edges))
            if nodes:
                # Steps lie between transactions, so the cycle must begin with one.
                first = next(at for at, node in enumerate(nodes) if not isinstance(node, graph.Moment))
                yield _anomaly(kind, dependencies.steps([*nodes[first:-1], *nodes[: first + 1]]))
                break


def _components(whole: Graph) -> list[set[Hashable]]:
    return [part for part in nx.strongly_connected_components(whole) if len(part) > 1]


def _shortest_cycle(within: Graph) -> list[Hashable]:
    best: tuple[float, list[Hashable]] | None = None
    for part in _components(within):
        inner = within.subgraph(part)
        for node in list(part)[:100]:
            for before in inner.predecessors(node):
                length, nodes = nx.single_source_dijkstra(inner, node, before)
                length += inner[before][node].get("weight", 1)
                if best is None or length < best[0]:
                    best = length, [*nodes, node]
    return best[1] if best else []


def _anomaly(kind: Kind, steps: Sequence[Step]) -> Anomaly:
    involved = tuple(dict.fromkeys(name for step in steps for name in (step.source, step.target)))
    cycle = " ".join(f"{step.source} --{step.kind}-->" for step in steps)
    return Anomaly(kind, f"{cycle} {steps[-1].target}", involved, tuple(steps))


# --- cycles with one anti-dependency -------------------------------------------------------------------------


def _single_anti(dependencies: Dependencies) -> tuple[list[Anomaly], list[Anti]]:
    """Return the anomalies that contradict one snapshot each, and the anti-dependencies that do not."""
    wrong = _reached(dependencies.visible, {(edge.writer, edge.reader) for edge in dependencies.anti})
    found: dict[tuple[str, str], Anomaly] = {}
    rest: list[Anti] = []
    for edge in dependencies.anti:
        pair = (edge.writer, edge.reader)
        if pair not in wrong:
            rest.append(edge)
        elif pair not in found and len(found) < MOST:
            found[pair] = _of_one(edge, dependencies.steps(nx.dijkstra_path(dependencies.visible, *pair)))
    return sorted(found.values(), key=lambda anomaly: len(anomaly.cycle)), rest


def _of_one(edge: Anti, path: list[Step]) -> Anomaly:
    last = path[-1]
    if last.kind == "ww":
        kind = Kind.LOST_UPDATE
    elif len(path) == 1:
        kind = {"wr": Kind.FRACTURED_READ, "so": Kind.READ_YOUR_WRITES, "rt": Kind.STALE}[last.kind]
    elif last.kind == "wr":
        kind = Kind.NOT_CAUSAL
    else:
        kind = Kind.MONOTONIC_SNAPSHOTS if last.kind == "so" else Kind.STALE
    return _anomaly(kind, [graph.anti_step(edge), *path])


def _reached(whole: Graph, pairs: Collection[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return the pairs with a path from the first to the second; omit pairs within one cycle, already reported.

    A pass over the graph carries one set of bits per node, for SOURCES nodes at once, so memory stays linear.
    """
    condensed = nx.condensation(whole)
    part: dict[Hashable, int] = condensed.graph["mapping"]
    order = [(one, list(condensed.predecessors(one))) for one in nx.topological_sort(condensed)]
    place = {one: at for at, (one, _) in enumerate(order)}
    pairs_by_source: dict[int, list[tuple[str, str]]] = {}
    for pair in pairs:
        if place[part[pair[0]]] < place[part[pair[1]]]:
            pairs_by_source.setdefault(place[part[pair[0]]], []).append(pair)
    found: set[tuple[str, str]] = set()
    sources = sorted(pairs_by_source)
    for at in range(0, len(sources), SOURCES):
        block = sources[at : at + SOURCES]
        own = {order[source][0]: 1 << number for number, source in enumerate(block)}
        bits: dict[int, int] = {}
        for one, before in order[block[0] :]:
            reached = own.get(one, 0)
            for other in before:
                reached |= bits.get(other, 0)
            if reached:
                bits[one] = reached
        for source in block:
            mine = own[order[source][0]]
            found.update(pair for pair in pairs_by_source[source] if bits.get(part[pair[1]], 0) & mine)
    return found


# --- cycles of reads that commits depend on ------------------------------------------------------------------


def _dependent_cycles(dependencies: Dependencies, rest: Sequence[Anti]) -> Iterator[Anomaly]:
    anti = {(edge.reader, edge.writer): edge for edge in rest if edge.depended_on}
    if not anti:
        return
    cycles = {node for part in _components(dependencies.visible) for node in part}
    whole = dependencies.visible.copy()
    whole.add_edges_from((*pair, {"weight": 10}) for pair in anti if not whole.has_edge(*pair))
    for part in _components(whole):
        if part & cycles:
            continue
        nodes = _shortest_cycle(whole.subgraph(part))
        steps = _steps(dependencies, anti, nodes)
        count = sum(step.kind == "rw" for step in steps)
        yield _anomaly(Kind.WRITE_SKEW if count == len(steps) == 2 else Kind.G2, steps)


def _steps(dependencies: Dependencies, anti: dict[tuple[str, str], Anti], nodes: Sequence[Hashable]) -> list[Step]:
    """Return a cycle as steps, rotated so that it begins with an anti-dependency."""
    pairs = list(itertools.pairwise(nodes))
    first = next(number for number, (one, other) in enumerate(pairs) if not dependencies.visible.has_edge(one, other))
    pairs = pairs[first:] + pairs[:first]
    steps: list[Step] = []
    path: list[Hashable] = []
    for one, other in pairs:
        if dependencies.visible.has_edge(one, other):
            path = path or [one]
            path.append(other)
            continue
        if path:
            steps += dependencies.steps(path)
            path = []
        steps.append(graph.anti_step(anti[str(one), str(other)]))
    if path:
        steps += dependencies.steps(path)
    return steps

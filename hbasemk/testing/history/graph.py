"""The dependency graph of a history: which transaction must precede which, and why.

An edge of ``visible`` means that the target has the source in its snapshot: ww (the target overwrote the source's
write), wr (the target read it), so (the target came later in the same instance), rt (the target began after its
instance's poll, and the source had ended before that poll). ``anti`` holds the anti-dependencies, rw: the source read
a version that the target then overwrote, so the target is not in the source's snapshot.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import networkx as nx

from hbasemk.testing.history.anomalies import Step
from hbasemk.testing.history.records import Transaction
from hbasemk.testing.history.versions import Versions

if TYPE_CHECKING:
    Graph: TypeAlias = nx.DiGraph[Hashable]

DIRECT: Final = 1.0
CHAINED: Final = 0.001
"""The weights of edges between transactions and of edges between moments: counterexamples use few of the former."""
WORDS: Final = {
    "so": "the same instance began it after the other had ended",
    "rt": "its instance polled after the other had ended",
}


class Moment(NamedTuple):
    """A node of the graph that is not a transaction: transactions that ended before it precede those that begin after it."""

    kind: str
    where: str
    number: int


class Anti(NamedTuple):
    """An anti-dependency: ``reader`` read a version of ``key``, ``writer`` wrote the next one."""

    reader: str
    writer: str
    key: str
    depended_on: bool


@dataclass(slots=True)
class Dependencies:
    """The dependency graph; a node is a transaction's id or a :class:`Moment`."""

    visible: Graph = field(default_factory=lambda: nx.DiGraph())
    anti: list[Anti] = field(default_factory=list)

    def add(self, source: Hashable, target: Hashable, kind: str, key: str = "") -> None:
        """Add an edge to ``visible``; edges between the same two nodes are merged."""
        if source == target:
            return
        if self.visible.has_edge(source, target):
            self.visible[source][target]["labels"].append((kind, key))
        else:
            plain = isinstance(source, str) and isinstance(target, str)
            self.visible.add_edge(source, target, labels=[(kind, key)], weight=DIRECT if plain else CHAINED)

    def steps(self, nodes: Sequence[Hashable]) -> list[Step]:
        """Return a path in ``visible`` as steps between transactions, without its moments."""
        found: list[Step] = []
        source = nodes[0]
        for before, node in itertools.pairwise(nodes):
            if isinstance(node, Moment):
                continue
            if isinstance(before, Moment):
                kind, key = before.kind, ""
            else:
                kind, key = sorted(self.visible[before][node]["labels"], key=lambda label: _PLAIN.index(label[0]))[0]
            found.append(Step(str(source), str(node), kind, WORDS.get(kind) or _DID[kind].format(source, node, key)))
            source = node
        return found


_PLAIN: Final = ("ww", "wr", "so", "rt")
_DID: Final = {"ww": "{1} overwrote {2} of {0}", "wr": "{1} read {2} of {0}"}


def anti_step(edge: Anti) -> Step:
    """Return the step of an anti-dependency."""
    how = " (depended on)" if edge.depended_on else ""
    return Step(
        edge.reader, edge.writer, "rw", f"{edge.reader} read {edge.key}{how} as it was before {edge.writer} wrote it"
    )


def build(versions: Versions) -> Dependencies:
    """Build the graph of a history from its inferred versions."""
    found = Dependencies()
    found.visible.add_nodes_from(one.id for one in versions.history)
    for key, following in versions.next.items():
        for writer, others in following.items():
            for other in others:
                if writer is not None:
                    found.add(writer, other, "ww", key)
    for seen in versions.seen:
        if seen.writer is not None:
            found.add(seen.writer, seen.reader, "wr", seen.key)
        for other in versions.next.get(seen.key, {}).get(seen.writer, ()):
            if other != seen.reader:
                found.anti.append(Anti(seen.reader, other, seen.key, seen.depended_on))
    instances: dict[str, list[Transaction]] = {}
    for one in versions.history:
        instances.setdefault(one.instance, []).append(one)
    for instance, of_it in instances.items():
        _in_time(found, "so", instance, of_it, [(one.begun, one) for one in of_it if one.ordered])
    polls = [(one.polled, one) for one in versions.history if one.ordered and one.polled is not None]
    _in_time(found, "rt", "", versions.history, polls)
    return found


def _in_time(
    found: Dependencies,
    kind: str,
    where: str,
    ended: Iterable[Transaction],
    began: Iterable[tuple[float, Transaction]],
) -> None:
    """Add edges from all transactions that ended before another began, through a chain of moments."""
    events = [(one.ended, True, one) for one in ended if one.ended is not None and one.outcome != "unknown"]
    events += [(moment, False, one) for moment, one in began]
    last: Moment | None = None
    closed = True
    for _, is_end, one in sorted(events, key=lambda event: event[:2]):
        if not is_end:
            closed = True
            if last is not None:
                found.add(last, one.id, kind)
            continue
        if last is None or closed:
            moment = Moment(kind, where, 0 if last is None else last.number + 1)
            if last is not None:
                found.add(last, moment, kind)
            last, closed = moment, False
        found.add(one.id, last, kind)

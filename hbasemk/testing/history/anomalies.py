"""The anomalies of a history, under their names in the literature, and their descriptions."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from hbasemk.testing.history.records import Add, History, Read, Transaction, Write

SHOWN: Final = 12
"""The number of operations of a transaction that a counterexample shows."""


class Kind(enum.Enum):
    """An anomaly; the value describes it. The names that begin with G are Adya's."""

    G0 = "dirty write: writes of transactions overwrote each other in a circle"
    G1A = "aborted read: a value was read whose writer did not commit"
    G1B = "intermediate read: a value was read that its own writer had overwritten"
    G1C = "circular information flow: transactions saw or overwrote each other in a circle"
    EFFECT_BEFORE_CAUSE = "a transaction read or overwrote the effect of a transaction that began after its own end"
    LOST_UPDATE = "lost update: a transaction overwrote a value that was not in its snapshot"
    FRACTURED_READ = "fractured read: a transaction was read in part, so the reads are not a snapshot"
    READ_YOUR_WRITES = "an instance did not read its own earlier commit"
    MONOTONIC_SNAPSHOTS = "a snapshot of an instance lacked a change that an earlier snapshot of it had"
    NOT_CAUSAL = "a snapshot contained a change without the changes that it was built on"
    STALE = "a snapshot lacked a change that was committed, or read by an instance, before the snapshot's poll"
    OVERTAKEN = "a commit depended on a read although another commit that changed it had ended before"
    WRITE_SKEW = "write skew: two transactions each changed a value that the other depended on"
    G2 = "anti-dependency cycle: transactions that depend on their reads each missed the next one's change"
    INTERNAL = "a transaction did not read its own write"
    UNREPEATABLE = "a transaction read the same key twice and got two values"
    UNSTABLE = "a snapshot changed"
    UNWRITTEN = "a value was read that nobody wrote"
    SAME_REVISION = "two transactions created the same revision"
    LOST_COMMIT = "a transaction that was reported as committed is not committed"
    UNDEAD = "a transaction that was reported as failed is committed"
    INVARIANT = "a snapshot broke an invariant that every transaction preserves"


@dataclass(frozen=True, slots=True)
class Step:
    """One edge of a counterexample: ``source`` comes before ``target``, because ``why``."""

    source: str
    target: str
    kind: str
    why: str


@dataclass(frozen=True, slots=True)
class Anomaly:
    """A violation: its kind and description, the transactions involved, and their ``cycle`` if they form one."""

    kind: Kind
    text: str
    involved: tuple[str, ...] = ()
    cycle: tuple[Step, ...] = ()

    def __str__(self) -> str:
        return f"{self.kind.name}: {self.text}"

    def explain(self, history: History) -> str:
        """Return the counterexample in ``history``: operations and snapshots of transactions, and their dependencies."""
        lines = [f"{self.kind.name} - {self.kind.value}", f"  {self.text}"]
        lines += (f"  {line}" for id_ in self.involved for line in describe_transaction(history.by_id[id_]))
        lines += (f"  {step.source} --{step.kind}--> {step.target}: {step.why}" for step in self.cycle)
        return "\n".join(lines)


def describe_transaction(one: Transaction) -> Iterable[str]:
    """Describe a transaction on two lines."""
    ended = "?" if one.ended is None else f"{one.ended:.3f}"
    snapshot = "" if one.snapshot is None else f", on snapshot {one.snapshot}{'' if one.ordered else ' (an old one)'}"
    revision = "" if one.revision is None else f", revision {one.revision}"
    yield (
        f"{one.id}: {one.outcome}, {one.isolation}, instance {one.instance}, {one.begun:.3f} to {ended}{snapshot}{revision}"
    )
    done = []
    for operation in one.operations[:SHOWN]:
        if isinstance(operation, Read):
            note = "" if not operation.version else f" (by {operation.version})"
            done.append(
                f"read {operation.key} = {operation.value!r}{note}{', depended on' if operation.depended_on else ''}"
            )
        elif isinstance(operation, Write):
            done.append(
                f"removed {operation.key}"
                if operation.value is None
                else f"wrote {operation.key} = {operation.value!r}"
            )
        elif isinstance(operation, Add):
            done.append(f"added {operation.element!r} to {operation.key}")
    more = len(one.operations) - SHOWN
    yield "    " + "; ".join(done or ["nothing"]) + (f"; and {more} more" if more > 0 else "")

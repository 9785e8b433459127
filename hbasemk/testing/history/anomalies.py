"""What can be wrong with a history, by the names that the literature has for it, and how it is told to people."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from hbasemk.testing.history.records import Add, History, Read, Transaction, Write

SHOWN: Final = 12
"""How many operations of a transaction a counterexample shows."""


class Kind(enum.Enum):
    """An anomaly; the value says what it is. G names are Adya's."""

    G0 = "dirty write: writes of transactions overwrote each other in a circle"
    G1A = "aborted read: a value was read whose writer did not commit"
    G1B = "intermediate read: a value was read that its own writer had overwritten"
    G1C = "circular information flow: transactions saw or overwrote each other in a circle"
    EFFECT_BEFORE_CAUSE = "something was seen, or overwritten, that began after whoever did so had ended"
    LOST_UPDATE = "lost update: something was overwritten by a transaction that did not have it in its snapshot"
    FRACTURED_READ = "fractured read: a transaction was seen in part, so what was read is no snapshot"
    READ_YOUR_WRITES = "an instance did not see what it had itself committed before"
    MONOTONIC_SNAPSHOTS = "an instance's snapshot lacked what an earlier one of it had"
    NOT_CAUSAL = "a snapshot contained something without what that was built on"
    STALE = "a snapshot lacked what was committed, or seen by anyone, before its instance asked for it"
    OVERTAKEN = "a commit relied on what another had changed, and ended changing, before that commit began"
    WRITE_SKEW = "write skew: two transactions each changed what the other relied on"
    G2 = "anti-dependency cycle: transactions that rely on what they read each missed the next one's change"
    INTERNAL = "a transaction did not read what it had itself written"
    UNREPEATABLE = "a transaction read the same thing twice and saw two values"
    UNSTABLE = "a snapshot changed"
    UNWRITTEN = "a value was read that nobody wrote"
    SAME_REVISION = "two transactions made the same revision"
    LOST_COMMIT = "a transaction that was told to be committed is not"
    UNDEAD = "a transaction that was told to have failed is committed"
    INVARIANT = "a snapshot broke what every transaction keeps"


@dataclass(frozen=True, slots=True)
class Step:
    """One edge of a counterexample: ``source`` comes before ``target``, because ``why``."""

    source: str
    target: str
    kind: str
    why: str


@dataclass(frozen=True, slots=True)
class Anomaly:
    """Something that must not be: what, in words, and the transactions concerned; ``cycle`` for those that are one."""

    kind: Kind
    text: str
    involved: tuple[str, ...] = ()
    cycle: tuple[Step, ...] = ()

    def __str__(self) -> str:
        return f"{self.kind.name}: {self.text}"

    def explain(self, history: History) -> str:
        """The counterexample: what the transactions did, on which snapshots, and how that hangs together."""
        lines = [f"{self.kind.name} - {self.kind.value}", f"  {self.text}"]
        lines += (f"  {line}" for which in self.involved for line in told(history.by_id[which]))
        lines += (f"  {step.source} --{step.kind}--> {step.target}: {step.why}" for step in self.cycle)
        return "\n".join(lines)


def told(one: Transaction) -> Iterable[str]:
    """A transaction in words, on two lines."""
    ended = "?" if one.ended is None else f"{one.ended:.3f}"
    snapshot = "" if one.snapshot is None else f", on snapshot {one.snapshot}{'' if one.ordered else ' (an old one)'}"
    made = "" if one.revision is None else f", revision {one.revision}"
    yield f"{one.id}: {one.outcome}, {one.isolation}, instance {one.instance}, {one.begun:.3f} to {ended}{snapshot}{made}"
    done = []
    for operation in one.operations[:SHOWN]:
        if isinstance(operation, Read):
            note = "" if not operation.version else f" (by {operation.version})"
            done.append(f"read {operation.key} = {operation.value!r}{note}{', relied on' if operation.relied else ''}")
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

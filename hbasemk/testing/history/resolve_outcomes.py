"""The end of a history: how the transactions turned out whose end nobody was told, by the repository's own log.

A revision's message names the call that made it. So a later instance can tell of every call whether it is committed, and
whether that is what its caller was told.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hbasemk.kernel import log as log
from hbasemk.kernel.instance import Instance
from hbasemk.testing.history.anomalies import Anomaly, Kind
from hbasemk.testing.history.checker import check
from hbasemk.testing.history.records import History, Transaction
from hbasemk.testing.history.workloads import violations


def judge(history: History, fresh_instance: Instance) -> tuple[History, list[Anomaly]]:
    """The history with all outcomes known, and everything that is wrong with it.

    ``fresh_instance`` is an instance that was opened after all others had ended or died and their leases were over.
    """
    settled, wrong = resolve_outcomes(history, committed_calls(fresh_instance))
    return settled, wrong + check(settled) + violations(settled)


def committed_calls(fresh_instance: Instance) -> dict[str, list[str]]:
    """The committed revisions of each call, from old to new."""
    found: dict[str, list[str]] = {}
    for entry in log.log(fresh_instance):
        if entry.message:
            found.setdefault(entry.message, []).insert(0, entry.revision)
    return found


def resolve_outcomes(history: History, committed: Mapping[str, Sequence[str]]) -> tuple[History, list[Anomaly]]:
    """Give each transaction of unknown end its outcome; tells where the log is not what the caller was told."""
    calls: dict[str, list[Transaction]] = {}
    for one in history:
        if one.writes:
            calls.setdefault(one.call, []).append(one)
    wrong: list[Anomaly] = []
    outcomes: dict[str, str] = {}
    revisions: dict[str, str] = {}
    for call, attempts in calls.items():
        made = committed.get(call, ())
        told = [one for one in attempts if one.outcome == "committed"]
        unknown = [one for one in attempts if one.outcome == "unknown"]
        wrong += (_lost(one) for one in told if one.revision not in made)
        if len(made) > 1 or (made and not told and not unknown):
            wrong.append(_undead(attempts, made))
        for one in unknown:
            outcomes[one.id] = "committed" if made and not told else "aborted"
            if made and not told:
                revisions[one.id] = made[0]
                if one.revision not in (None, made[0]):
                    wrong.append(_undead(attempts, made))
    return history.replaced(outcome=outcomes, revision=revisions), wrong


def _lost(one: Transaction) -> Anomaly:
    return Anomaly(
        Kind.LOST_COMMIT, f"{one.id} was told that revision {one.revision} is committed; the log lacks it", (one.id,)
    )


def _undead(attempts: Sequence[Transaction], made: Sequence[str]) -> Anomaly:
    told = ", ".join(f"{one.id} {one.outcome} {one.revision or ''}".rstrip() for one in attempts)
    return Anomaly(
        Kind.UNDEAD, f"the log has {', '.join(made)} of a call that was told: {told}", tuple(one.id for one in attempts)
    )

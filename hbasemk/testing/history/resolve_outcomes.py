"""Resolve the unknown outcomes of a history by the repository's log.

A revision's message names the call that created it. So a later instance can determine whether each call is committed,
and whether this agrees with the outcome that its caller received.
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
    """Return the history with all outcomes resolved, and all its anomalies.

    ``fresh_instance`` was opened after all other instances had ended or died and their leases had expired.
    """
    resolved, anomalies = resolve_outcomes(history, committed_calls(fresh_instance))
    return resolved, anomalies + check(resolved) + violations(resolved)


def committed_calls(fresh_instance: Instance) -> dict[str, list[str]]:
    """Return the committed revisions of each call, from old to new."""
    found: dict[str, list[str]] = {}
    for entry in log.log(fresh_instance):
        if entry.message:
            found.setdefault(entry.message, []).insert(0, entry.revision)
    return found


def resolve_outcomes(history: History, committed: Mapping[str, Sequence[str]]) -> tuple[History, list[Anomaly]]:
    """Resolve each transaction of unknown outcome; report where the log contradicts a reported outcome."""
    calls: dict[str, list[Transaction]] = {}
    for one in history:
        if one.writes:
            calls.setdefault(one.call, []).append(one)
    anomalies: list[Anomaly] = []
    outcomes: dict[str, str] = {}
    revisions: dict[str, str] = {}
    for call, attempts in calls.items():
        committed_revisions = committed.get(call, ())
        reported = [one for one in attempts if one.outcome == "committed"]
        unknown = [one for one in attempts if one.outcome == "unknown"]
        anomalies += (_lost(one) for one in reported if one.revision not in committed_revisions)
        if len(committed_revisions) > 1 or (committed_revisions and not reported and not unknown):
            anomalies.append(_undead(attempts, committed_revisions))
        for one in unknown:
            outcomes[one.id] = "committed" if committed_revisions and not reported else "aborted"
            if committed_revisions and not reported:
                revisions[one.id] = committed_revisions[0]
                if one.revision not in (None, committed_revisions[0]):
                    anomalies.append(_undead(attempts, committed_revisions))
    return history.replaced(outcome=outcomes, revision=revisions), anomalies


def _lost(one: Transaction) -> Anomaly:
    return Anomaly(
        Kind.LOST_COMMIT, f"{one.id} was reported as committed as revision {one.revision}; the log lacks it", (one.id,)
    )


def _undead(attempts: Sequence[Transaction], committed_revisions: Sequence[str]) -> Anomaly:
    reported = ", ".join(f"{one.id} {one.outcome} {one.revision or ''}".rstrip() for one in attempts)
    return Anomaly(
        Kind.UNDEAD,
        f"the log has {', '.join(committed_revisions)} of a call that was reported as: {reported}",
        tuple(one.id for one in attempts),
    )

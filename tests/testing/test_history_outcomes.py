"""Tests of resolved outcomes, which compare the log with the reported outcomes, and of the workloads' own rules."""

from __future__ import annotations

from typing import Any

import pytest

from hbasemk.testing.history import History, Kind, Read, Transaction, Write
from hbasemk.testing.history.records import Ending
from hbasemk.testing.history.resolve_outcomes import resolve_outcomes
from hbasemk.testing.history.workloads import violations


def attempt(name: str, outcome: Ending, revision: str | None = None, call: str = "call") -> Transaction:
    return Transaction(
        name,
        "i",
        (Write("x", name),),
        outcome,
        0.0,
        None if outcome == "unknown" else 1.0,
        revision=revision,
        call=call,
    )


def kinds(found: list[Any]) -> list[Kind]:
    return [anomaly.kind for anomaly in found]


def test_an_unknown_outcome_is_resolved_by_the_log() -> None:
    history = History([attempt("a", "aborted"), attempt("b", "unknown"), attempt("c", "unknown", call="other")])
    resolved, wrong = resolve_outcomes(history, {"call": ["7"]})
    assert wrong == []
    assert [(one.outcome, one.revision) for one in resolved] == [
        ("aborted", None),
        ("committed", "7"),
        ("aborted", None),
    ]


def test_an_unknown_outcome_with_a_revision_gets_that_revision() -> None:
    resolved, wrong = resolve_outcomes(History([attempt("a", "unknown", "7")]), {"call": ["7"]})
    assert (wrong, resolved[0].outcome) == ([], "committed")
    assert kinds(resolve_outcomes(History([attempt("a", "unknown", "6")]), {"call": ["7"]})[1]) == [Kind.UNDEAD]


def test_an_acknowledged_commit_must_be_in_the_log() -> None:
    history = History([attempt("a", "committed", "7")])
    assert resolve_outcomes(history, {"call": ["7"]})[1] == []
    assert kinds(resolve_outcomes(history, {})[1]) == [Kind.LOST_COMMIT]
    assert kinds(resolve_outcomes(history, {"call": ["8"]})[1]) == [Kind.LOST_COMMIT]


def test_a_transaction_reported_as_failed_must_not_be_in_the_log() -> None:
    assert kinds(resolve_outcomes(History([attempt("a", "aborted")]), {"call": ["7"]})[1]) == [Kind.UNDEAD]


def test_a_call_must_not_be_in_the_log_twice() -> None:
    assert kinds(resolve_outcomes(History([attempt("a", "committed", "7")]), {"call": ["7", "8"]})[1]) == [Kind.UNDEAD]


def test_a_read_only_transaction_is_not_in_the_log() -> None:
    reader = Transaction("r", "i", (Read("x", None),), "committed", 0.0, 1.0, call="call")
    assert resolve_outcomes(History([reader]), {})[1] == []


BROKEN = {
    "bank": [Read(f"/bank/{account}#balance", (100 + (account == "a"), account)) for account in "abcd"],
    "subtrees": [Read("/subtrees/s", None), Read("/subtrees/s/k0", "tag")],
    "skew": [Read("/skew/a#balance", (-60, "t")), Read("/skew/b#balance", (0, "u"))],
    "phantoms": [Read(f"/phantoms/k{n}", f"t{n}") for n in range(3)],
}


def compare_and_set(name: str, expected: str | None, value: str, committing: float, ended: float | None) -> Transaction:
    key = "/versions/m#register"
    operations = (Read(key, expected, depended_on=True), Write(key, value)) if expected else (Write(key, value),)
    return Transaction(name, "i", operations, "committed", committing, ended, committing=committing, call=name)


@pytest.mark.parametrize(
    ("third", "reported"),
    [
        (compare_and_set("3", "b", "c", 3.0, 4.0), False),
        (compare_and_set("3", "b", "c", 0.5, 1.5), False),
        (compare_and_set("3", "b", "c", 0.5, None), False),
        # It replaced a value that another one had replaced already.
        (compare_and_set("3", "a", "c", 3.0, 4.0), True),
        # It ended before the commit began whose value it replaced.
        (compare_and_set("3", "b", "c", 0.2, 0.9), True),
        (compare_and_set("3", "c", "d", 0.2, 0.9), True),
    ],
)
def test_compare_and_sets_that_are_not_linearizable_are_reported(third: Transaction, reported: bool) -> None:
    history = [compare_and_set("1", None, "a", 0.0, 0.1), compare_and_set("2", "a", "b", 1.0, 2.0), third]
    if third.operations[0].value == "c":  # type: ignore[union-attr]
        history.append(compare_and_set("4", "b", "c", 1.5, 3.0))
    assert kinds(violations(History(history))) == ([Kind.INVARIANT] if reported else [])


WHOLE = {
    "bank": [Read(f"/bank/{account}#balance", (100, account)) for account in "abcd"],
    "bank in part": [Read("/bank/a#balance", (1, "a"))],
    "subtrees": [Read("/subtrees/s", "top"), Read("/subtrees/s/k0", "tag"), Read("/subtrees/t", None)],
    "skew": [Read("/skew/a#balance", (-60, "t")), Read("/skew/b#balance", (60, "u"))],
    "phantoms": [Read(f"/phantoms/k{n}", f"t{n}" if n < 2 else None) for n in range(3)],
}


@pytest.mark.parametrize("reads", BROKEN.values(), ids=BROKEN)
def test_a_snapshot_that_breaks_a_workloads_rule_is_reported(reads: list[Read]) -> None:
    found = violations(History([Transaction("r", "i", tuple(reads), "committed", 0.0)]))
    assert kinds(found) == [Kind.INVARIANT]


@pytest.mark.parametrize("reads", WHOLE.values(), ids=WHOLE)
def test_a_snapshot_that_keeps_the_rules_is_not_reported(reads: list[Read]) -> None:
    assert violations(History([Transaction("r", "i", tuple(reads), "committed", 0.0)])) == []

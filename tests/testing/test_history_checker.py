"""The checker of histories: known anomalies and near misses, explanations, and saved histories."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from hbasemk.testing.history import Add, History, HistoryError, Kind, Transaction, check
from hbasemk.testing.history.__main__ import main
from tests.support.anomalous_histories import RIGHT, SETUP, WRONG, r, t, w


@pytest.mark.parametrize(("kind", "transactions"), WRONG.values(), ids=WRONG)
def test_an_anomaly_is_found_and_named(kind: Kind, transactions: list[Transaction]) -> None:
    history = History(transactions)
    found = check(history)
    assert [anomaly.kind for anomaly in found] == [kind], "\n".join(anomaly.explain(history) for anomaly in found)
    assert set(found[0].involved) <= set(history.by_id)
    assert found[0].explain(history)


@pytest.mark.parametrize("transactions", RIGHT.values(), ids=RIGHT)
def test_a_near_miss_is_accepted(transactions: list[Transaction]) -> None:
    history = History(transactions)
    found = check(history)
    assert found == [], "\n".join(anomaly.explain(history) for anomaly in found)


def test_all_anomalies_of_histories_are_covered() -> None:
    tested_elsewhere = {Kind.LOST_COMMIT, Kind.UNDEAD, Kind.INVARIANT}
    assert {kind for kind, _ in WRONG.values()} | tested_elsewhere == set(Kind)


def test_a_counterexample_describes_the_cycle_the_operations_and_the_snapshots() -> None:
    history = History(
        [
            SETUP,
            t("2", w("x", "x2"), w("y", "y2"), snapshot="1"),
            t("reader", r("x", "x2"), r("y", "y0"), instance="i", snapshot="2"),
        ]
    )
    assert check(history)[0].explain(history) == (
        "FRACTURED_READ - fractured read: a transaction was read in part, so the reads are not a snapshot\n"
        "  reader --rw--> 2 --wr--> reader\n"
        "  reader: committed, snapshot, instance i, 0.000 to 9.000, on snapshot 2\n"
        "      read x = 'x2'; read y = 'y0'\n"
        "  2: committed, snapshot, instance 2, 0.000 to 9.000, on snapshot 1, revision 2\n"
        "      wrote x = 'x2'; wrote y = 'y2'\n"
        "  reader --rw--> 2: reader read y as it was before 2 wrote it\n"
        "  2 --wr--> reader: reader read x of 2"
    )


@pytest.mark.parametrize("seed", ["0", "1", "2", "3"])
def test_a_counterexample_names_transactions_only_whatever_the_order_of_sets_is(tmp_path: Path, seed: str) -> None:
    History(WRONG["one read what its own instance wrote later"][1]).save(tmp_path / "history")
    command = [sys.executable, "-m", "hbasemk.testing.history", str(tmp_path / "history")]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONHASHSEED": seed}
    )
    assert (done.returncode, done.stderr) == (1, "")
    assert "EFFECT_BEFORE_CAUSE" in done.stdout


def test_a_counterexample_shows_the_reads_that_a_commit_depended_on() -> None:
    (found,) = check(History(WRONG["one set what was there, which another had changed before"][1]))
    assert "read x = 'x0', depended on" in found.explain(
        History(WRONG["one set what was there, which another had changed before"][1])
    )


def test_one_cycle_is_reported_once_for_any_number_of_transactions() -> None:
    several = [t(f"{n}", r("x", f"x{(n - 1) % 4}"), w("x", f"x{n}"), revision=None) for n in range(4)]
    assert [anomaly.kind for anomaly in check(History(several))] == [Kind.G0]


def test_the_same_value_written_twice_is_rejected() -> None:
    with pytest.raises(HistoryError, match="both wrote x = 1"):
        check(History([t("2", w("x", 1)), t("3", w("x", 1))]))
    with pytest.raises(HistoryError, match="both add 1 to s"):
        check(History([t("2", Add("s", 1)), t("3", Add("s", 1))]))


def test_the_command_prints_the_counterexamples_of_saved_histories(tmp_path: Path) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    History(RIGHT["a long fork"]).save(good)
    History(WRONG["two increments of one value"][1]).save(bad)
    result = CliRunner().invoke(main, [str(good)])
    assert (result.exit_code, result.output) == (0, "5 transactions, no anomalies\n")
    result = CliRunner().invoke(main, [str(bad)])
    assert result.exit_code == 1
    assert "LOST_UPDATE" in result.output
    assert "3 transactions, 1 anomaly" in result.output

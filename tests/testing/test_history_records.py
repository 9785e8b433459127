"""Saved histories: what is written is read again, and damaged or wrong records are rejected."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hbasemk.testing.history import History, HistoryError, Read, Write, check
from hbasemk.testing.history.__main__ import main
from hbasemk.testing.history.parts import EACH
from tests.support.anomalous_histories import RIGHT, SETUP, WRONG, r, t, w


def test_a_saved_history_is_the_same_when_loaded(tmp_path: Path) -> None:
    history = History(
        [*(one for _, transactions in WRONG.values() for one in transactions), *itertools.chain(*RIGHT.values())]
    )
    history.save(tmp_path / "history")
    assert list(History.load([tmp_path / "history"])) == list(history)


def test_a_later_line_replaces_an_earlier_one_and_a_torn_line_is_ignored(tmp_path: Path) -> None:
    file = tmp_path / "history"
    begun = t("2", w("x", ("list", 1)), outcome="unknown", ended=None)
    ended = replace(begun, outcome="committed", ended=3.0)
    file.write_text(begun.line() + "\n" + ended.line() + "\n" + t("3", w("x", 1)).line()[:50])
    assert list(History.load([file])) == [ended]
    file.write_text("[]\n")
    with pytest.raises(HistoryError, match="not a transaction of a history"):
        History.load([file])


def test_a_complete_last_line_counts_without_its_end(tmp_path: Path) -> None:
    file = tmp_path / "history"
    file.write_text(t("2", w("x", 1)).line() + "\n" + t("3", r("x", 1)).line())
    assert [one.id for one in History.load([file])] == ["2", "3"]
    file.write_text(t("2", w("x", 1)).line() + "\n" + t("3", r("x", 1)).line().replace("committed", "done"))
    with pytest.raises(HistoryError, match="outcome"):
        History.load([file])


def test_a_line_may_contain_any_character_besides_a_newline(tmp_path: Path) -> None:
    line = t("2", w("x", "SEPARATED")).line().replace("SEPARATED", "a\u2028b\x85c")
    (tmp_path / "history").write_text(line + "\n", encoding="utf-8")
    (found,) = History.load([tmp_path / "history"])
    assert found.operations == (w("x", "a\u2028b\x85c"),)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("outcome", "ok"),
        ("isolation", "SERIALIZABLE"),
        ("begun", None),
        ("begun", "0"),
        ("ended", "9"),
        ("polled", "1"),
        ("committing", "1"),
        ("id", 1),
        ("instance", None),
        ("snapshot", 1),
        ("revision", 1),
        ("call", None),
        ("ordered", "yes"),
    ],
)
def test_a_field_with_a_wrong_value_is_named(field: str, value: Any) -> None:
    with pytest.raises(HistoryError, match=f"{field} .*{value!r}"):
        replace(SETUP, **{field: value})


@pytest.mark.parametrize("value", [{"k": 1}, [1], (1, [2])])
def test_a_value_that_cannot_be_compared_is_rejected(value: Any) -> None:
    for operation in (Read("x", value), Write("x", value)):
        with pytest.raises(HistoryError, match="value"):
            replace(SETUP, operations=(operation,))


def test_an_operation_on_a_key_that_is_no_text_is_rejected() -> None:
    with pytest.raises(HistoryError, match="key"):
        replace(SETUP, operations=(Write(1, 1),))  # type: ignore[arg-type]


@pytest.mark.parametrize("content", [b"\xff\xfe binary\n", b'{"id": "\xff"}\n', b"{}\n", b"[]\n"])
def test_the_command_rejects_a_file_that_is_no_history(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "history").write_bytes(content)
    result = CliRunner().invoke(main, [str(tmp_path / "history")])
    assert result.exit_code == 1
    assert "the line is not a transaction of a history" in result.output


def test_a_part_of_a_number_is_named_by_ascii_digits() -> None:
    history = History([t("2", w("a/\N{SUPERSCRIPT TWO}", 1)), t("3", w("a/2", 1)), t("4", r("a" + EACH, (2,)))])
    assert check(history) == []
    assert check(History([t("3", w("a/2", 1)), t("4", r("a" + EACH, ("two",)))])) != []

"""Commands that write: init, set, adjust, mv, cp and rm."""

from __future__ import annotations

import math
import sys
from typing import Any

import pytest

from hbasemk import Json, Repository, Settings, StoreError, connect
from hbasemk.format import schema
from hbasemk.kernel import settings as kernel_settings
from hbasemk.opening import open_store
from hbasemk.repository import instance_of
from hbasemk.store.abc import CellVersion, DeleteBelow, Get, Store
from tests.support.commands import CONFLICT, DONE, NO, USAGE, Run, assert_one_line


def test_init_creates_a_repository_once(run: Run, url: str) -> None:
    ran = run("init", "--epoch", "2020-02-02", "--lease", "2000", "--max-clock-skew", "300", "--output", "json")

    assert ran.code == DONE
    with connect(url, create=False) as repository:
        settings = instance_of(repository).settings
        assert settings.epoch_ms == 1_580_601_600_000
        assert (settings.lease_ms, settings.max_clock_skew_ms) == (2000, 300)
        assert ran.json["revision"] == repository.head.revision
    assert run("init").code == DONE
    assert run("init", "--lease", "2000").code == DONE
    assert_one_line(run("init", "--lease", "3000"), USAGE, "2000")
    with connect(url, create=False) as repository:
        assert instance_of(repository).settings == settings


def test_init_opens_the_repository_once(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    def counted(url: str) -> tuple[Store, bool, dict[str, Any]]:
        opened.append(url)
        return open_store(url)

    monkeypatch.setattr(sys.modules["hbasemk.opening"], "open_store", counted)
    for created in (True, False, False):
        assert run("init", "--output", "json").json["created"] is created
        assert len(opened) == 1
        opened.clear()


@pytest.mark.parametrize("settings_written", [False, True])
def test_init_says_that_it_completed_an_interrupted_creation(run: Run, url: str, settings_written: bool) -> None:
    store, _, _ = open_store(url)
    store.create_tables(schema.TABLES)
    if settings_written:
        kernel_settings.create(store, Settings())
        cell = store.read(schema.CLUSTER, [Get(schema.SETTINGS_ROW, (schema.WATERMARK,))])[0].cells[0]
        gone = CellVersion(*schema.WATERMARK, cell.timestamp + 1)
        store.delete_below(schema.CLUSTER, [DeleteBelow(schema.SETTINGS_ROW, [gone])])
    store.close()
    for created in (True, False):
        assert run("init", "--output", "json").json["created"] is created


@pytest.mark.parametrize(
    ("value", "kind", "wanted"),
    [
        ("text", "string", "text"),
        ("", "string", ""),
        ("42", "string", "42"),
        ("42", "integer", 42),
        ("-7", "integer", -7),
        ("-0.5", "float", -0.5),
        ("1e3", "float", 1000.0),
        ("TRUE", "boolean", True),
        ("false", "boolean", False),
        ('["a", 1, 2.5, false]', "json", ["a", 1, 2.5, False]),
        ("[]", "json", []),
        ("1.10", "json", Json("1.10")),
        ("1e400", "json", Json("1e400")),
        ("[1.5, 123456789012345678901234567890.5]", "json", [1.5, Json("123456789012345678901234567890.5")]),
        ("-inf", "float", -math.inf),
    ],
)
def test_set_keeps_the_requested_type(run: Run, tree: None, url: str, value: str, kind: str, wanted: object) -> None:
    assert run("set", "/c", "new", value, "--type", kind).code == DONE

    with connect(url) as repository:
        found = repository.head["/c"]["new"]
    assert found == wanted
    assert type(found) is type(wanted)


@pytest.mark.parametrize(
    ("arguments", "name", "wanted"),
    [
        (("--", "/c", "new", "--unset"), "new", "--unset"),
        (("/c", "new", "--", "-x"), "new", "-x"),
        (("-m", "--", "--", "/c", "--new", "-"), "--new", "-"),
        (("--message", "-7", "/c", "-1", "-1e3"), "-1", "-1e3"),
        (("/c", "new", "-"), "new", "-"),
    ],
)
def test_set_accepts_a_leading_hyphen_after_a_separator(
    run: Run, tree: None, url: str, arguments: tuple[str, ...], name: str, wanted: str
) -> None:
    assert run("set", *arguments).code == DONE

    with connect(url) as repository:
        assert dict(repository.head["/c"]) == {name: wanted}


def test_set_names_an_unknown_option_and_suggests_the_separator(run: Run, tree: None) -> None:
    ran = run("set", "/a", "title", "--unst")

    assert "--unst;" in ran.err
    assert "put -- before" in ran.err
    assert "Put -- before" in run("set", "--help").out


def test_set_can_remove_a_property_and_create_a_node(run: Run, tree: None, url: str) -> None:
    assert run("set", "/a", "title", "--unset").code == DONE
    assert run("set", "/a/new", "x", "1", "--create", "-m", "made").code == DONE

    with connect(url) as repository:
        assert "title" not in repository.head["/a"]
        assert repository.head["/a/new"]["x"] == "1"
    assert run("log", "-n", "1", "--output", "json").json["message"] == "made"


def test_set_can_require_that_there_is_no_node(run: Run, tree: None, url: str) -> None:
    new = ("set", "/a/new", "x", "1", "--create", "--if-version", "none")
    assert run(*new).code == DONE
    refused = run(*new)
    assert (refused.code, refused.out) == (CONFLICT, "")
    assert "the node /a/new has version" in refused.err
    with connect(url) as repository:
        assert dict(repository.head["/a/new"]) == {"x": "1"}
    for command in (("set", "/d", "x", "1"), ("rm", "/a"), ("mv", "/a", "/d"), ("adjust", "/c", "n", "1")):
        assert run(*command, "--if-version", "none").code == USAGE
    assert "needs --create" in run("set", "/d", "x", "1", "--if-version", "none").err
    assert run("set", "/a/new", "x", "2", "--create", "--if-version", "0" * 24).code == CONFLICT


def test_adjust_adds_to_a_number_and_creates_it(run: Run, tree: None, url: str) -> None:
    assert run("adjust", "/c", "stock", "5").code == DONE
    assert run("adjust", "/c", "stock", "-2", "-m", "sold").code == DONE
    assert run("adjust", "/c", "weight", "0.5").code == DONE

    with connect(url) as repository:
        assert dict(repository.head["/c"]) == {"stock": 3, "weight": 0.5}
    assert "stock" in run("log", "-n", "2", "--changes").out


@pytest.mark.parametrize("by", ["x", "nan", "inf", "-inf", "1_0x", "1_0", " 5", "٣", "", "9" * 5000])
def test_adjust_refuses_an_amount_that_is_not_a_finite_number(run: Run, tree: None, by: str) -> None:
    ran = run("adjust", "/c", "stock", by)

    assert ran.code == USAGE
    assert "BY must be an integer or a finite number" in ran.err or "digits" in ran.err


@pytest.mark.parametrize(
    ("by", "amount"),
    [
        ("0.1", 0.1),
        ("1.10", 1.1),
        ("-1e3", -1000.0),
        ("0.10000000000000001", 0.1),
        ("0.50000000000000000000", 0.5),
        ("000000000000000000000000.5", 0.5),
        ("0.0000000000000000000001", 1e-22),
        ("9.3132257461547851562500e-10", 2**-30),
        ("0.0000000004656612873077392578125", 2**-31),
        ("123456789012345678901234567890", 123456789012345678901234567890),
        ("0e9", None),
        ("-0.0", None),
        ("-0.000e-9999999999999999999999", None),
    ],
)
def test_adjust_takes_each_number_that_a_float_keeps(
    run: Run, tree: None, url: str, by: str, amount: float | None
) -> None:
    assert run("adjust", "/c", "stock", by).code == DONE
    with connect(url) as repository:
        assert repository.head["/c"].get("stock", 0) == (amount or 0)


@pytest.mark.parametrize(
    ("by", "rounded"),
    [
        ("0.12345678901234567890", "0.12345678901234568"),
        ("100000000000000000000.5", "1e+20"),
        ("-12345678901234567890e0", "-1.2345678901234567e+19"),
        ("1e-400", "0.0"),
        ("1e-9999999999999999999999", "0.0"),
    ],
)
def test_adjust_refuses_to_round_away_digits(run: Run, tree: None, by: str, rounded: str) -> None:
    ran = run("adjust", "/c", "stock", by)

    assert ran.code == USAGE
    assert f"BY would be rounded from '{by}' to the float {rounded}: use a number with at most 17" in ran.err


def test_adjust_takes_an_expected_version(run: Run, tree: None) -> None:
    version = run("cat", "/c", "--show-version").out.strip()

    assert run("adjust", "/c", "stock", "-5", "--if-version", version).code == DONE
    assert run("adjust", "/c", "stock", "-5", "--if-version", version).code == CONFLICT


def test_adjust_names_the_value_that_is_no_number(run: Run, tree: None) -> None:
    ran = run("adjust", "/a", "title", "1")

    assert ran.code == NO
    assert "must be a finite number, got the str" in ran.err


def test_adjust_of_a_missing_node_and_by_nothing_commit_nothing(run: Run, tree: None) -> None:
    before = run("log", "-n", "1").out
    missing = run("adjust", "/none", "stock", "1")

    assert (missing.code, run("adjust", "/c", "stock", "0").code) == (NO, DONE)
    assert "there is no node at /none" in missing.err
    assert run("log", "-n", "1").out == before


def test_mv_cp_and_rm_change_whole_subtrees_and_print_the_revision(run: Run, tree: None) -> None:
    printed = [run("cp", "/a", "/c/a"), run("mv", "/c/a", "/d"), run("rm", "/a")]

    assert [ran.code for ran in printed] == [DONE] * 3
    assert run("ls", "-r").out == "/c\n/d\n/d/b\n"
    assert run("cat", "/d/b").out == 'title = "two"\n'
    logged = [one["revision"] for one in run("log", "-n", "3", "--output", "json").lines]
    assert [ran.out.strip() for ran in reversed(printed)] == logged


EDITS = [
    ("set", "/c", "new", "x"),
    ("adjust", "/c", "number", "1"),
    ("cp", "/a", "/e"),
    ("mv", "/a", "/e"),
    ("rm", "/a"),
]


@pytest.mark.parametrize("edit", EDITS, ids=[edit[0] for edit in EDITS])
def test_an_edit_prints_its_own_revision_beside_another_commit(
    run: Run, tree: None, url: str, monkeypatch: pytest.MonkeyPatch, edit: tuple[str, ...]
) -> None:
    original = Repository.run

    def run_then_see_another(repository: Repository, *given: Any) -> Any:
        result = original(repository, *given)
        with connect(url, create=False) as other:
            original(other, lambda tx: tx.add("/other"), "of another process")
        repository.refresh()
        return result

    monkeypatch.setattr(Repository, "run", run_then_see_another)
    printed = run(*edit, "-m", "of this command").out.strip()
    messages = {one["revision"]: one["message"] for one in run("log", "-n", "2", "--output", "json").lines}
    assert messages[printed] == "of this command"


def test_an_edit_reads_nothing_after_its_commit(run: Run, tree: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(repository: Repository) -> None:
        raise StoreError("the store is away")

    monkeypatch.setattr(Repository, "head", property(unreachable))
    ran = run("set", "/c", "new", "x")
    assert (ran.code, ran.err) == (DONE, "")


def test_an_edit_without_effect_prints_the_newest_revision(run: Run, tree: None) -> None:
    newest = run("log", "-n", "1", "--output", "json").json["revision"]
    assert run("set", "/a", "title", "A").out == f"{newest}\n"
    assert run("adjust", "/a", "count", "0").out == f"{newest}\n"


@pytest.mark.parametrize(
    ("value", "kind"),
    [("1e999", "float"), ("-1e999", "float"), ("NaN", "json"), ("Infinity", "json"), ("[-Infinity]", "json")],
)
def test_set_refuses_numbers_that_it_would_change(run: Run, tree: None, value: str, kind: str) -> None:
    ran = run("set", "/c", "new", "--type", kind, "--", value)
    assert ran.code == USAGE
    assert f"'{value}' is not of the type {kind}" in ran.err


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("boolean", "yes", "expected true or false"),
        ("integer", "5.5", "expected digits, such as 42 or -7"),
        ("float", "1,5", "expected a number, such as 0.5 or 1e3"),
        ("json", "text", """expected JSON, such as "text", 1.5, true or ["a", "b"]"""),
    ],
)
def test_set_says_what_a_type_expects(run: Run, tree: None, kind: str, value: str, expected: str) -> None:
    ran = run("set", "/c", "new", value, "--type", kind)
    assert ran.code == USAGE
    assert f"'{value}' is not of the type {kind}; {expected}\n" in ran.err


@pytest.mark.parametrize(("inside", "name"), [("null", "null"), ("[2]", "a list"), ('{"a": 1}', "an object")])
def test_set_says_in_words_of_json_what_a_list_cannot_hold(run: Run, tree: None, inside: str, name: str) -> None:
    ran = run("set", "-t", "json", "/a", "list", f"[1, {inside}]")
    assert (ran.code, ran.out) == (USAGE, "")
    assert f"'[1, {inside}]' is not a property value: a list cannot hold {name}; expected strings, numbers" in ran.err


@pytest.mark.parametrize(
    ("kind", "value", "shown"),
    [("json", "-0", "-0\n"), ("json", "[-0, 0]", "[-0, 0]\n"), ("integer", "-0", "0\n"), ("integer", "+5", "5\n")],
)
def test_numbers_keep_their_spelling_where_it_matters(run: Run, kind: str, value: str, shown: str) -> None:
    assert run("init").code == DONE
    assert run("set", "-t", kind, "--", "/", "n", value).code == DONE
    assert run("cat", "/", "-p", "n").out == shown


@pytest.mark.parametrize("value", ["1_0", "\u0663", " 5"])
@pytest.mark.parametrize("kind", ["integer", "float"])
def test_texts_that_only_python_reads_as_numbers_are_refused(run: Run, kind: str, value: str) -> None:
    assert run("init").code == DONE
    assert run("set", "-t", kind, "/", "n", value).code == USAGE


@pytest.mark.parametrize("form", ["{}", "-{}", "0.{}", "[1, {}]"])
def test_a_json_number_with_too_many_digits_is_refused_with_the_limit(run: Run, form: str) -> None:
    assert run("init").code == DONE
    ran = run("set", "-t", "json", "/", "n", "--", form.format("1" * 5000))
    assert ran.code == USAGE
    assert "4300" in ran.err
    assert run("cat", "/").out == ""


def test_init_shows_the_epochs_that_differ_as_dates(run: Run, tree: None) -> None:
    ran = run("init", "--epoch", "2020-02-02")
    assert (ran.code, ran.out) == (USAGE, "")
    assert "its epoch is 2013-01-01T00:00:00.000Z, not 2020-02-02T00:00:00.000Z" in ran.err
    assert "its lease_ms is 10000, not 2000" in run("init", "--lease", "2000").err


def test_a_boolean_named_digits_is_not_too_long(run: Run, tree: None) -> None:
    ran = run("set", "/a", "x", "digits", "-t", "boolean")
    assert ran.code == USAGE
    assert "'digits' is not of the type boolean; expected true or false" in ran.err

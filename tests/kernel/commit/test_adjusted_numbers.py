"""Adjusted numbers: their kinds, their sums, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from hbasemk import (
    InvalidChangeError,
    Json,
    LimitError,
    NodeNotFoundError,
    Repository,
    Transaction,
)
from hbasemk.format import values
from tests.support.repositories import Instances


@pytest.fixture
def two(opened: Instances) -> tuple[Repository, Repository]:
    """Two instances on one node."""
    return opened.pair(lambda tx: tx.add("/a", {"n": 10, "text": "x"}))


def value(repository: Repository, name: str = "n") -> Any:
    return repository.refresh()["/a"].get(name)


NUMBERS: list[tuple[Any, list[Any], Any]] = [
    (10, [0.5], 10.5),
    (10, [0.5, 0.5], 11),
    (10.0, [1], 11.0),
    (0.1, [0.2, -0.2], 0.1),
    (0, [0.1] * 10, 1.0),
    (10**400, [1, -(10**400)], 1),
    (1e308, [1e308], 2 * int(1e308)),
    (2**80 + 1, [0.5], float(2**80 + 1)),
    (Json("1.10"), [], Json("1.10")),
    (Json("1.10"), [1, -1], Json("1.10")),
    (Json("1.50"), [1], 2.5),
    (Json("1e3"), [1], 1001.0),
    (-0.0, [1, -1], -0.0),
    (None, [2.0], 2),
    (None, [2.5], 2.5),
]


@pytest.mark.parametrize(("start", "amounts", "expected"), NUMBERS)
def test_numbers_keep_their_kind_and_are_rounded_once(
    two: tuple[Repository, Repository], start: Any, amounts: list[Any], expected: Any
) -> None:
    one, other = two
    other.adjust("/a", "n", 0.25)
    one.refresh()
    one.run(lambda tx: tx.set("/a", "n", start))
    for by in amounts:
        one.adjust("/a", "n", by)
    for repository in (one, other):
        found = value(repository)
        assert (type(found), repr(found)) == (type(expected), repr(expected))


@pytest.mark.parametrize(("start", "amounts", "expected"), NUMBERS)
def test_adjusts_of_a_new_node_are_rounded_once(
    two: tuple[Repository, Repository], start: Any, amounts: list[Any], expected: Any
) -> None:
    one, _ = two

    def add_and_adjust(tx: Transaction) -> Any:
        tx.add("/b", {} if start is None else {"n": start})
        for by in amounts:
            tx.adjust("/b", "n", by)
        return tx["/b", "n"]

    for found in (one.run(add_and_adjust), *(repository.refresh()["/b"]["n"] for repository in two)):
        assert (type(found), repr(found)) == (type(expected), repr(expected))


@pytest.mark.parametrize(
    ("start", "by", "later", "expected"),
    [
        (10, 0.5, 0.5, 11),
        (None, 0.5, 0.5, 1),
        (8.0001220703125, 2.0**43, -(2.0**43), 8.0001220703125),
        (1e308, 1e308, -1e308, 1e308),
        (Json("1.50"), 1, -1, Json("1.50")),
    ],
)
def test_adjusts_after_those_of_a_new_node_continue_from_the_exact_sum(
    two: tuple[Repository, Repository], start: Any, by: float, later: float, expected: Any
) -> None:
    one, other = two
    added = {} if start is None else {"n": start}
    one.run(lambda tx: (tx.add("/b", added), tx.adjust("/b", "n", by)))
    # The other node has an earlier life.
    one.run(lambda tx: (tx.remove("/a"), tx.add("/a", added), tx.adjust("/a", "n", by)))
    for repository in two:
        assert repository.refresh()["/a"] == repository.head["/b"]
    (one if start is None else other).run(lambda tx: (tx.adjust("/a", "n", later), tx.adjust("/b", "n", later)))
    for repository in two:
        for path in ("/a", "/b"):
            found = repository.refresh()[path]["n"]
            assert (type(found), repr(found)) == (type(expected), repr(expected))


JSON_NUMBERS: list[tuple[str, int | float, Any]] = [
    ("1.10", 1, 2.1),
    ("1.10", 0, Json("1.10")),
    ("1e3", 0.5, 1000.5),
    ("-0", 2, 2),
    ("1" * 30, 1, int("1" * 30) + 1),
]


@pytest.mark.parametrize(("text", "by", "expected"), JSON_NUMBERS)
@pytest.mark.parametrize("method", ["increment", "adjust"])
def test_increments_and_adjusts_of_json_numbers_agree(
    two: tuple[Repository, Repository], method: str, text: str, by: int | float, expected: Any
) -> None:
    one, other = two
    one.run(lambda tx: tx.set("/a", "n", Json(text)))
    one.run(lambda tx: getattr(tx, method)("/a", "n", by))
    for repository in (one, other):
        found = value(repository)
        assert (type(found), repr(found)) == (type(expected), repr(expected))


@pytest.mark.parametrize("method", ["increment", "adjust"])
def test_a_json_number_beyond_the_range_of_a_float_is_rejected(two: tuple[Repository, Repository], method: str) -> None:
    one, _ = two
    one.run(lambda tx: tx.set("/a", "n", Json("1e400")))
    with pytest.raises(InvalidChangeError, match=r"'n' of /a cannot be .*1e400"):
        one.run(lambda tx: getattr(tx, method)("/a", "n", 1))


@pytest.mark.parametrize("method", ["increment", "adjust"])
@pytest.mark.parametrize("text", ['{"a":1}', '"x"', "true", "[1"])
def test_json_of_an_earlier_version_that_is_no_number_is_rejected(
    two: tuple[Repository, Repository], monkeypatch: pytest.MonkeyPatch, method: str, text: str
) -> None:
    one, _ = two
    with monkeypatch.context() as earlier:
        earlier.setattr(values, "_is_number", lambda _: True)
        one.run(lambda tx: tx.set("/a", "n", Json(text)))
    with pytest.raises(InvalidChangeError, match=r"'n' of /a cannot be .* must be a .*number, got"):
        one.run(lambda tx: getattr(tx, method)("/a", "n", 1))


def test_adjusts_that_add_up_to_0_create_an_absent_property(two: tuple[Repository, Repository]) -> None:
    one, other = two
    start = 0

    def there_and_back(tx: Transaction) -> None:
        tx.adjust("/a", "m", 2)
        tx.adjust("/a", "m", -2)
        assert tx["/a", "m"] == start

    with one.transaction() as first, other.transaction() as second:
        there_and_back(first)
        second.adjust("/a", "m", 5)
    assert repr(value(one, "m")) == repr(value(other, "m")) == "5"
    start = 5
    one.run(there_and_back)
    branch = one.branch()
    branch.run(lambda tx: (tx.adjust("/a", "k", 1), tx.adjust("/a", "k", -1)))
    assert branch.head["/a"]["k"] == 0
    branch.merge()
    for repository in two:
        assert value(repository, "k") == 0


def test_an_adjust_after_an_unset_begins_at_the_int_0(two: tuple[Repository, Repository]) -> None:
    one, other = two
    one.adjust("/a", "n", 0.25)
    one.run(lambda tx: (tx.unset("/a", "n"), tx.adjust("/a", "n", 0.5), tx.adjust("/a", "n", 0.5)))
    for repository in two:
        assert repr(value(repository)) == "1"
    other.adjust("/a", "n", 0.25)
    assert value(one) == 1.25


def test_a_sum_does_not_depend_on_the_order(two: tuple[Repository, Repository]) -> None:
    one, other = two
    amounts = [0.1, 1e16, -1e16, 0.3, 1e-300]
    for by in amounts:
        one.adjust("/a", "x", by)
    for by in reversed(amounts):
        other.adjust("/a", "y", by)
    assert value(one, "x") == value(one, "y") == 0.4


@pytest.mark.parametrize("by", [True, "1", None, [1], 1j])
def test_an_amount_of_a_wrong_type_is_refused(two: tuple[Repository, Repository], by: Any) -> None:
    with pytest.raises(TypeError, match="by must be an int or a float"):
        two[0].adjust("/a", "n", by)


@pytest.mark.parametrize("by", [float("nan"), float("inf"), float("-inf")])
def test_an_amount_that_is_not_finite_is_refused(two: tuple[Repository, Repository], by: float) -> None:
    with pytest.raises(ValueError, match="by must be an int or a finite float, got"):
        two[0].adjust("/a", "n", by)


def test_a_property_that_is_no_number_is_named_with_its_value(two: tuple[Repository, Repository]) -> None:
    one, _ = two
    with pytest.raises(InvalidChangeError, match="property 'text' of /a cannot be adjusted.*got the str 'x'"):
        one.adjust("/a", "text", 1)
    for wrong in (True, [1], float("nan"), b"1"):
        one.run(lambda tx, wrong=wrong: tx.set("/a", "text", wrong))  # type: ignore[misc]
        for by in (1, 0):
            with pytest.raises(InvalidChangeError, match=f"got the {type(wrong).__name__}"):
                one.adjust("/a", "text", by)


def test_a_missing_node_and_a_name_of_a_child_are_refused(two: tuple[Repository, Repository]) -> None:
    one, _ = two
    branch = one.branch()
    for by in (1, 0):
        with pytest.raises(NodeNotFoundError):
            one.adjust("/none", "n", by)
        with pytest.raises(NodeNotFoundError):
            branch.run(lambda tx, by=by: tx.adjust("/none", "n", by))  # type: ignore[misc]
    one.run(lambda tx: tx.add("/a/k"))
    with pytest.raises(InvalidChangeError, match="both a property and a child"):
        one.adjust("/a", "k", 1)
    with pytest.raises(InvalidChangeError, match="both a property and a child"):
        one.run(lambda tx: (tx.adjust("/a", "m", 1), tx.add("/a/m")))


def test_numbers_with_too_many_digits_are_refused(two: tuple[Repository, Repository]) -> None:
    one, _ = two
    for amount in (10**4300, -(10**4300)):
        with pytest.raises(
            LimitError, match="'n' of /a cannot be adjusted by an int of 14285 bits: the amount has more"
        ) as caught:
            one.adjust("/a", "n", amount)
        assert (caught.value.path, caught.value.name) == ("/a", "n")
    one.run(lambda tx: tx.set("/a", "n", 10**4300 - 1))
    with pytest.raises(LimitError, match="property 'n' of '/a': an int of 14285 bits has more than 4300 digits"):
        one.adjust("/a", "n", 1)


@pytest.mark.parametrize("long", [Json("1" * 2000), Json("1." + "1" * 2000)])
def test_a_long_number_in_its_original_spelling_can_be_adjusted_there_and_back(
    two: tuple[Repository, Repository], long: Json
) -> None:
    one, _ = two
    one.run(lambda tx: tx.set("/a", "n", long))
    one.run(lambda tx: (tx.adjust("/a", "n", 5), tx.adjust("/a", "n", -5)))
    one.adjust("/a", "n", 5)
    one.adjust("/a", "n", -5)
    assert value(one) == long


def test_a_sum_that_concurrent_adjusts_made_too_long_can_be_made_shorter(two: tuple[Repository, Repository]) -> None:
    one, other = two
    half = 5 * 10**4299
    one.run(lambda tx: tx.set("/a", "n", half - 1))
    other.refresh()
    # Each of the two sums is short enough on its own base.
    with one.transaction() as first, other.transaction() as second:
        first.adjust("/a", "n", half)
        second.adjust("/a", "n", half)
    one.refresh()
    with pytest.raises(LimitError):
        one.adjust("/a", "n", 1)
    one.adjust("/a", "n", -1)
    one.adjust("/a", "n", -half)
    assert one.head["/a"]["n"] == 2 * half - 2


@pytest.mark.parametrize(
    ("begin", "by", "then", "result"),
    [
        (0.1, 0.2, -0.30000000000000004, 0.0),
        (1e16, 1, -1e16, 0.0),
        (10, 0.5, 0.5, 11.0),
    ],
)
def test_a_set_to_the_value_that_a_read_has_rounded_counts(
    two: tuple[Repository, Repository], begin: Any, by: Any, then: Any, result: float
) -> None:
    one, other = two
    one.run(lambda tx: tx.set("/a", "n", begin))
    other.adjust("/a", "n", by)
    shown = value(one)
    one.run(lambda tx: tx.set("/a", "n", shown))
    assert value(other) == shown
    other.adjust("/a", "n", then)
    found = value(one)
    assert (found, type(found)) == (result, float)


def test_a_set_to_the_exact_value_that_is_shown_makes_no_revision(two: tuple[Repository, Repository]) -> None:
    one, other = two
    other.adjust("/a", "n", 5)
    head = one.refresh().revision
    one.run(lambda tx: tx.set("/a", "n", 15))
    assert one.refresh().revision == head


def test_a_branch_that_sets_what_is_shown_keeps_the_exact_sum_of_trunk_in_a_rebase(
    two: tuple[Repository, Repository],
) -> None:
    one, other = two
    one.run(lambda tx: tx.set("/a", "n", 0.1))
    branch = one.branch()
    branch.run(lambda tx: tx.set("/a", "n", 0.1))
    other.adjust("/a", "n", 0.2)
    assert branch.rebase() == []
    branch.run(lambda tx: tx.set("/a", "m", 1))
    branch.merge()
    other.adjust("/a", "n", -0.2)
    assert value(one) == 0.1


def test_a_merge_includes_a_set_to_the_value_that_a_read_has_rounded(two: tuple[Repository, Repository]) -> None:
    one, other = two
    one.run(lambda tx: tx.set("/a", "n", 10))
    other.adjust("/a", "n", 0.5)
    one.refresh()
    with one.branch() as branch:
        branch.run(lambda tx: tx.set("/a", "n", 10.5))
    other.adjust("/a", "n", 0.5)
    found = value(one)
    assert (found, type(found)) == (11.0, float)


@pytest.mark.parametrize("other_type", ["text", True, b"bytes", float("inf"), [1]])
def test_a_repeated_value_of_another_type_changes_nothing_beside_earlier_adjusts(
    two: tuple[Repository, Repository], other_type: Any
) -> None:
    one, other = two
    one.adjust("/a", "n", 5)
    one.run(lambda tx: tx.set("/a", "n", other_type))
    for repository in (one, other):
        before = repository.refresh()
        repository.run(lambda tx: tx.set("/a", "n", other_type))
        assert repository.refresh().revision == before.revision
        assert repository.head["/a"].version == before["/a"].version
    one.run(lambda tx: tx.set("/a", "n", 1))
    assert value(one) == value(other) == 1

"""The checker of histories agrees with the definitions of the isolation levels, on random histories."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from hypothesis import given, settings
from hypothesis import strategies as st

from hbasemk.testing.history import History, Read, Transaction, Write, check

KEYS = ("x", "y")


@st.composite
def histories(draw: st.DrawFn) -> list[Transaction]:
    """Up to four transactions on two keys; revisions order the versions.

    Half of them have an instance each and read only versions that are older than their own: what is wrong with these is
    seldom plain.
    """
    apart = draw(st.booleans())
    count = draw(st.integers(2, 4))
    isolation = draw(st.sampled_from(["snapshot", "serializable"]))
    wrote = [draw(st.sets(st.sampled_from(KEYS), max_size=1 if apart else 2)) for _ in range(count)]
    transactions: list[Transaction] = []
    for number in range(count):
        operations: list[Read | Write] = []
        for key in KEYS:
            numbers = range(number if apart else count)
            others = [None, *(f"{key}{other}" for other in numbers if other != number and key in wrote[other])]
            if draw(st.sampled_from((True, apart, False))):
                operations.append(Read(key, draw(st.sampled_from(others))))
            if key in wrote[number]:
                operations.append(Write(key, f"{key}{number}"))
        begun = draw(st.integers(0, 3))
        transactions.append(
            Transaction(
                f"t{number}",
                f"i{number}" if apart else draw(st.sampled_from(["i", "j", "k"])),
                tuple(operations),
                "committed",
                begun=begun,
                ended=begun + draw(st.integers(0, 2)),
                polled=None if apart else draw(st.sampled_from([None, begun])),
                revision=str(number),
                isolation=isolation,
            )
        )
    return transactions


def reads_of(one: Transaction) -> Iterator[Read]:
    return (operation for operation in one.operations if isinstance(operation, Read))


def keys_of(one: Transaction) -> set[str]:
    return {operation.key for operation in one.operations if isinstance(operation, Write)}


def must_see(one: Transaction, other: Transaction) -> bool:
    """Whether ``other`` must have ``one`` in its snapshot by the order in its instance, or in time."""
    if one is other or one.ended is None:
        return False
    return (one.instance == other.instance and one.ended < other.begun) or (
        other.polled is not None and one.ended < other.polled
    )


def newest(key: str, visible: set[int], transactions: list[Transaction]) -> str | None:
    return max((f"{key}{number}" for number in visible if key in keys_of(transactions[number])), default=None)


def is_parallel_snapshot(transactions: list[Transaction]) -> bool:
    """By the axioms: there is a visibility that is a strict partial order, contains what must be seen, orders writers
    of one key as their versions are ordered, and gives each read the newest visible version."""
    numbers = range(len(transactions))
    pairs = [(a, b) for a in numbers for b in numbers if a != b]
    for chosen in itertools.product((False, True), repeat=len(pairs)):
        see = {pair for pair, taken in zip(pairs, chosen, strict=True) if taken}
        if (
            all((b, a) not in see for a, b in see)
            and all((a, d) in see for a, b in see for c, d in see if b == c)
            and all((a, b) in see for a, b in pairs if must_see(transactions[a], transactions[b]))
            and all((a, b) in see for a, b in pairs if a < b and keys_of(transactions[a]) & keys_of(transactions[b]))
            and all(
                read.value == newest(read.key, {a for a in numbers if (a, b) in see}, transactions)
                for b in numbers
                for read in reads_of(transactions[b])
            )
        ):
            return True
    return False


def is_serializable(transactions: list[Transaction]) -> bool:
    """There is one order that keeps what must be kept, in which each read gives the version written last."""
    for order in itertools.permutations(range(len(transactions))):
        place = {number: at for at, number in enumerate(order)}
        if all(
            place[a] < place[b]
            for a in place
            for b in place
            if a != b
            and (
                must_see(transactions[a], transactions[b])
                or (a < b and keys_of(transactions[a]) & keys_of(transactions[b]))
            )
        ) and all(
            read.value == newest(read.key, {a for a in place if place[a] < place[b]}, transactions)
            for b in place
            for read in reads_of(transactions[b])
        ):
            return True
    return False


@settings(max_examples=400, deadline=None)
@given(histories())
def test_the_checker_agrees_with_the_definitions(transactions: list[Transaction]) -> None:
    right = is_parallel_snapshot(transactions)
    if right and transactions[0].isolation == "serializable":
        right = is_serializable(transactions)
    history = History(transactions)
    found = check(history)
    assert (found == []) == right, "\n".join(anomaly.explain(history) for anomaly in found) or "nothing was found"

"""On a store with transactions, no process commits to a branch after a change to a schema number that it does not accept."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import pytest

from hbasemk import SchemaVersionError, Settings
from hbasemk.format import schema
from hbasemk.format.journal_row import JournalRow
from hbasemk.kernel import schema_change, schema_version
from hbasemk.kernel.branches.rebase import rebase
from hbasemk.kernel.commit.operations import AddNode, SetProperty
from hbasemk.kernel.instance import Instance
from hbasemk.store.abc import NewCell, Put, Scan, scan_all
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import Call, CountingStore, FaultyStore, lost_reply
from tests.support.branches import commit_on_branch
from tests.support.collecting import commit
from tests.support.runtime import TestRuntime, World, open_instance

SETTINGS: Final = Settings(lease_ms=2_000, max_clock_skew_ms=1_000)
MINE: Final = (SetProperty("/a", "p", "mine"), SetProperty("/b", "p", "mine"))


class Place:
    """A process that accepts only the number 0, with a branch, and another process that sets the number to 1."""

    def __init__(self, world: World, *, in_steps: bool) -> None:
        self.store = MemoryStore(world.clock, transactions=True, batch_rows=1 if in_steps else 1000)
        self.faulty = FaultyStore(self.store)
        self.old = Instance.open(self.faulty, TestRuntime(world, mac=1), wanted=SETTINGS, accepted=0)
        world.was_opened(self.store)
        self.new = open_instance(self.store, world, mac=2)
        commit(self.new, AddNode("/a", {"p": 1}), AddNode("/b", {"p": 1}))
        self.old.poll()
        self.branch = self.old.branches.begin(self.old.head())

    def change_number(self) -> None:
        schema_change.change(self.new, 1, 0)

    def shown(self, revision: int) -> object:
        self.new.poll()
        return self.new.reader.require(self.new.at(revision), "/b").properties["p"]

    def live_branches(self) -> list[int]:
        scan = Scan(None, None, 1000, columns=(schema.BRANCH_HEAD,))
        rows = [JournalRow(row) for row in scan_all(self.store, schema.JOURNAL, scan)]
        return [row.revision for row in rows if row.branch_head is not None and not row.branch_head.how]


def begin(place: Place) -> int:
    return place.old.branches.begin(place.old.head())


def commit_mine(place: Place) -> int:
    return commit_on_branch(place.old, place.branch, MINE)


def commit_and_rebase(place: Place) -> int:
    place.branch = commit_on_branch(place.old, place.branch, MINE)
    commit(place.old, SetProperty("/", "other", 1))
    return rebase(place.old.branches, place.branch, place.old.head(), "")


@pytest.mark.parametrize("in_steps", [False, True])
@pytest.mark.parametrize("act", [begin, commit_mine, commit_and_rebase])
def test_a_process_that_pauses_before_a_transaction_changes_no_branch(
    act: Callable[[Place], int], in_steps: bool
) -> None:
    refused = number = 0
    while refused == number:
        place = Place(World(), in_steps=in_steps)
        calls: list[Call] = []

        def pause(call: Call, place: Place = place, calls: list[Call] = calls, number: int = number) -> None:
            if call.method == "write_if":
                calls.append(call)
                if len(calls) == number + 1:
                    place.change_number()

        place.faulty.before = pause
        branches = place.live_branches()
        try:
            head = act(place)
        except SchemaVersionError as error:
            assert (error.found, error.expected) == (1, 0)
            # A commit before the pause stays; that of the rebase is one.
            assert place.live_branches() == branches
            refused += 1
        else:
            assert len(calls) == number
            assert head in place.live_branches() or place.shown(head) == "mine"
        number += 1
    # A commit in steps writes two rows of cells, and the head in a transaction.
    assert refused == len(calls) > 0


@pytest.mark.parametrize("in_steps", [False, True])
@pytest.mark.parametrize("applied", [False, True])
def test_a_commit_whose_reply_was_lost_counts_if_it_came_before_the_change(applied: bool, in_steps: bool) -> None:
    place = Place(World(), in_steps=in_steps)

    def lose(call: Call) -> None:
        if call.method == "write_if":
            place.faulty.before = place.faulty.after = None
            # Without its wait, after which the request would not be repeated.
            put = Put(schema.SETTINGS_ROW, [NewCell(*schema.SCHEMA_VERSION, schema_version.encode(1, b"n" * 16))])
            place.store.write(schema.CLUSTER, [put])
            raise lost_reply(call)

    if applied:
        place.faulty.after = lose
        assert place.shown(commit_mine(place)) == "mine"
        return
    place.faulty.before = lose
    with pytest.raises(SchemaVersionError, match="Nothing was committed"):
        commit_mine(place)
    place.old.branches.require_head(place.branch)
    assert place.shown(place.branch) == 1


def test_the_number_takes_no_further_call(world: World) -> None:
    calls: list[Iterable[object]] = []
    for accepted in (None, 0):
        store = CountingStore(MemoryStore(world.clock, transactions=True))
        instance = Instance.open(store, TestRuntime(world, mac=1), accepted=accepted)
        commit(instance, AddNode(f"/{accepted}", {}))
        branch = instance.branches.begin(instance.head())
        store.take()
        head = commit_on_branch(instance, branch, [SetProperty("/", "p", 1)])
        calls.append(store.take())
        assert instance.branches.merge(head, "")
    assert calls[0] == calls[1]

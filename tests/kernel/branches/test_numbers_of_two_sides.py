"""Random changes of one number on trunk and on a branch: a merge and a rebase give what a simple model gives."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from hbasemk import ConflictError, InvalidChangeError, Repository, Transaction
from hbasemk.repository import instance_of
from hbasemk.snapshot import Snapshot
from hbasemk.store.memory import MemoryStore
from tests.support.folding import fold
from tests.support.repositories import problems
from tests.support.seeds import random_of_test

CASES: Final = 60
FOLD: Final = "fold"
BEFORE: Final[Sequence[Sequence[str]]] = (
    *((), ("set 1",), ("set 1", "adjust 5", "adjust 5"), ("set 15", "adjust -3"), ("adjust 5",), ("text",)),
    *(("set 1", "adjust 5", "unset"), ("set 1", "adjust 5", "text"), ("set 1", "adjust 5", "set 15")),
)
ON_BRANCH: Final[dict[str, Callable[[Transaction], object]]] = {
    **{f"set {one}": lambda tx, one=one: tx.set("/a", "n", one) for one in (0, 1, 15)},
    **{f"adjust {one}": lambda tx, one=one: tx.adjust("/a", "n", one) for one in (-3, 0, 3, 5)},
    **{f"increment {one}": lambda tx, one=one: tx.increment("/a", "n", one) for one in (0, 5)},
    "text": lambda tx: tx.set("/a", "n", "x"),
    "unset": lambda tx: tx.unset("/a", "n"),
}
ON_TRUNK: Final[dict[str, Callable[[Transaction], object]]] = {
    **ON_BRANCH,
    **{f"replace {one}": lambda tx, one=one: (tx.remove("/a"), tx.add("/a", {"n": one})) for one in (10, 15)},
}


class Done(NamedTuple):
    """A change that took place; ``wrote``: a commit on trunk wrote the own column of the property, and not only a slot."""

    name: str
    wrote: bool

    @property
    def amount(self) -> int | None:
        """The amount of an adjust; None for other changes."""
        kind, _, amount = self.name.partition(" ")
        return int(amount) if kind == "adjust" else None


class Outcome(NamedTuple):
    """The values before, on the branch, on trunk, and after a rebase (``after``) or a direct merge (``merged``)."""

    base: Any
    mine: Any
    theirs: Any
    merged: Any
    after: Any
    has_conflict: bool
    has_marker: bool
    has_fold: bool
    on_branch: list[Done]
    on_trunk: list[Done]


def value(snapshot: Snapshot) -> Any:
    return snapshot["/a"].get("n")


def change(
    run: Callable[[Callable[[Transaction], object]], object], head: Callable[[], Snapshot], names: Sequence[str]
) -> list[Done]:
    done: list[Done] = []
    for name in names:
        before = value(head())
        try:
            run(ON_TRUNK[name])
        except InvalidChangeError:
            continue
        has_set = value(head()) != before and (before is None or not name.startswith("adjust"))
        done.append(Done(name, has_set or name.startswith("replace")))
    return done


def outcome_of(before: Sequence[str], on_branch: Sequence[str], on_trunk: Sequence[str]) -> Outcome:
    """Make both histories: one with a direct merge, one with a rebase."""
    merged, has_conflict = None, False
    for rebases in (False, True):
        with Repository(MemoryStore(), poll_interval=0) as repo:
            repo.run(lambda tx: tx.add("/a"))
            change(repo.run, repo.refresh, before)
            base, branch = value(repo.head), repo.branch()
            mine_done = change(branch.run, lambda branch=branch: branch.head, on_branch)  # type: ignore[misc]
            mine, theirs_done = value(branch.head), []
            for name in on_trunk:
                if name != FOLD:
                    theirs_done += change(repo.run, repo.refresh, [name])
                elif isinstance(value(repo.head), int):
                    fold(instance_of(repo), "/a", "n")
            theirs = value(repo.refresh())
            markers = branch.rebase() if rebases else []
            after = value(branch.head)
            if not markers:
                try:
                    branch.merge()
                except ConflictError:
                    has_conflict = True
                    assert not rebases
                if rebases:
                    assert value(repo.refresh()) == after
                else:
                    merged = value(repo.refresh())
            assert problems(repo) == []
    return Outcome(
        base, mine, theirs, merged, after, has_conflict, bool(markers), FOLD in on_trunk, mine_done, theirs_done
    )


def judge(found: Outcome) -> None:
    """Compare an outcome with the model."""
    base, mine, theirs = found[:3]
    sets = [at for at, done in enumerate(found.on_branch) if done.amount is None]
    amount = sum(done.amount or 0 for done in found.on_branch[sets[-1] + 1 if sets else 0 :])
    on_trunk = sum(done.amount or 0 for done in found.on_trunk)
    trunk_has_set = any(done.wrote for done in found.on_trunk)
    is_number = isinstance(theirs, int)
    expected = [theirs]
    if sets:
        expected = [mine if trunk_has_set or not isinstance(mine, int) else mine + on_trunk]
        if found.has_fold and mine == theirs:
            # A fold looks like a set of the value that it leaves, so both sides seem to have set the same.
            expected.append(theirs)
        if base is None and found.on_branch[sets[-1]].name == "unset":
            # What an adjust creates after an unset counts as a first adjust, or as a set.
            expected.append((theirs if is_number else 0) + amount)
    elif is_number or (base is None and theirs is None and any(done.amount for done in found.on_branch)):
        expected = [(theirs or 0) + amount]
    if not sets and all(done.amount is not None for done in found.on_trunk) and not found.has_fold:
        # Adjusts never conflict with adjusts, also if those of one side add up to 0.
        assert not found.has_conflict
        assert not found.has_marker
    if not found.has_conflict:
        assert found.merged in expected
        # Only an adjust of what trunk has unset, or set to another type, is marked although a merge accepts it.
        assert not found.has_marker or (not sets and isinstance(base, int) and not is_number)
    if found.has_marker:
        assert found.after == theirs
    else:
        assert found.after in expected
        assert len(expected) > 1 or not sets or not trunk_has_set or theirs in (base, mine)


def random_names(chance: random.Random, names: Sequence[str]) -> list[str]:
    return [chance.choice(names) for _ in range(chance.choice((1, 1, 2, 3)))]


def test_a_merge_and_a_rebase_give_the_number_of_the_model() -> None:
    chance = random_of_test()
    for _ in range(CASES):
        history = chance.choice(BEFORE), random_names(chance, [*ON_BRANCH]), random_names(chance, [*ON_TRUNK, FOLD])
        found = outcome_of(*history)
        try:
            judge(found)
        except AssertionError:
            print(history, found)
            raise

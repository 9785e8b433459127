"""Random transactions of two instances give on each store what a simple model gives: results, errors, trees and histories."""

from __future__ import annotations

import copy
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hbasemk import HbasemkError, Repository, Transaction
from hbasemk.format import limits
from hbasemk.store.abc import Store
from hbasemk.store.hbase import Address, HBaseStore
from hbasemk.store.memory import MemoryStore
from hbasemk.store.sqlite import SqliteStore
from tests.support.hbase import HBase
from tests.support.microkernel_model import Conflict, Refused, name, parent
from tests.support.proof import SHARES
from tests.support.random_transactions import ODD_NAMES, PLAIN_NAMES, RandomOperations
from tests.support.repositories import Instances, instances
from tests.support.staged_model import shown
from tests.support.transaction_model import Operation, TransactionModel, join, key
from tests.support.typed_values import all_typed, typed

WALKS = {"memory": 100, "unordered": 100, "sqlite": 50, "hbase": 5}
LENGTH = 60
"""Steps on one repository; then a new one begins."""


@pytest.fixture(params=["memory", "unordered", "sqlite", pytest.param("hbase", marks=pytest.mark.integration)])
def new_repository(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Callable[[], Store]]:
    """Returns a function that opens handles on a new repository; ``unordered`` is a store in memory that works as HBase."""

    def memory() -> Callable[[], Store]:
        shared = MemoryStore(transactions=request.param == "memory", parallel=request.param == "unordered")
        return lambda: copy.copy(shared)

    def sqlite() -> Callable[[], Store]:
        file = tmp_path / f"{len(list(tmp_path.iterdir()))}.db"
        return lambda: SqliteStore(str(file), durable=False)

    def hbase() -> Callable[[], Store]:
        server: HBase = request.getfixturevalue("hbase")
        prefix = server.prefix_with_tables()
        return lambda: HBaseStore([Address(server.host, server.thrift2)], prefix=prefix)

    return {"sqlite": sqlite, "hbase": hbase}.get(request.param, memory)


class Walk:
    """One repository under random transactions, and its model. ``ids`` holds the revisions of the model."""

    def __init__(self, chance: random.Random, opened: Instances) -> None:
        self.chance = chance
        self.names = chance.choice((PLAIN_NAMES, ODD_NAMES))
        self.operations = RandomOperations(chance, self.names)
        self.model = TransactionModel()
        self.opened = opened
        self.repositories = [opened(), opened(cache_bytes=3000)]
        self.repositories[0].blobs.write(b"")
        self.ids = [self.repositories[0].refresh().revision]
        self.versions: dict[Any, Any] = {}
        self.counts = {"committed": 0, "refused": 0, "conflict": 0}

    def step(self) -> None:
        kind = self.chance.choices((self.commit, self.check, self.restart), (60, 30, 3))[0]
        kind()

    def commit(self) -> None:
        """Run one transaction, often on an older base."""
        back = 0 if self.chance.random() < 0.5 else self.chance.randrange(6)
        base = max(0, self.model.head - back)
        tree = self.model.trees[base]
        operations = self.operations.of_one_transaction(tree)
        if len(tree) > 40:
            operations = [("remove", path) for path in sorted(tree) if path != "/" and parent(path) == "/"]
        serializable = self.chance.random() < 0.3
        repository = self.chance.choice(self.repositories)
        what = ", ".join(limits.shown(one) for one in operations)
        print(f"commit on {base}{' serializable' * serializable} of {self.repositories.index(repository)}: {what}")
        result = self._result(repository, base, operations, serializable=serializable)
        try:
            revision, expected = self.model.commit(
                base, self._with_versions(base, operations), serializable=serializable
            )
        except Refused as error:
            self.counts["refused"] += 1
            assert result == str(error)
        except Conflict as error:
            self.counts["conflict"] += 1
            has_name_conflict = error.args[0]
            assert result in ("ConflictError", "VersionMismatchError", *["InvalidChangeError"] * has_name_conflict)
        else:
            self.counts["committed"] += 1
            assert isinstance(result, tuple), result
            if revision == len(self.ids):
                assert result[0] not in self.ids
                self.ids.append(result[0])
            assert result == (self.ids[revision], expected)

    def _result(self, repository: Repository, base: int, operations: list[Operation], *, serializable: bool) -> Any:
        """Return the revision and the results of the reads, or the name of the error."""
        repository.refresh()
        snapshot = repository.at(self.ids[base])
        try:
            tx = repository.transaction("random", snapshot, "serializable" if serializable else "snapshot")
            reads = [found for one in operations if (found := self._apply(repository, tx, base, *one)) is not ...]
            return tx.commit(), reads
        except HbasemkError as error:
            return type(error).__name__

    def _apply(self, repository: Repository, tx: Transaction, base: int, kind: str, *arguments: Any) -> Any:
        """Apply one operation; return the result of a read, typed, or ``...``."""
        if kind == "expect":
            path, which = arguments
            node = None
            if isinstance(which, int):
                node = repository.at(self.ids[max(0, base - which)]).get(path)
            tx.expect(path, "0" * 24 if which == "wrong" else None if node is None else node.version)
            return ...
        found = getattr(tx, kind)(*arguments)
        if kind == "children":
            for size in range(1, len(found) + 2):
                assert list(_pages(lambda after: tx.children(*arguments, after, size), size)) == found  # noqa: B023
            after = self.chance.choice(ODD_NAMES)
            assert tx.children(*arguments, after=after) == [one for one in found if key(one) > key(after)]
        if kind in ("exists", "children"):
            return found
        if kind == "get":
            return None if found is None else typed(found)
        if kind == "properties":
            return all_typed(found)
        if kind == "subtree":
            return {path: all_typed(properties) for path, properties in found}
        if kind == "load":
            return {path: properties and all_typed(properties) for path, properties in found.items()}
        return ...

    def _with_versions(self, base: int, operations: list[Operation]) -> list[Operation]:
        """Return the operations with the versions of the model in place of how many revisions to go back."""
        return [
            (
                "expect",
                one[1],
                self._version(max(0, base - one[2]), one[1]) if isinstance(one[2], int) else _fixed(one[2]),
            )
            if one[0] == "expect"
            else one
            for one in operations
        ]

    def _version(self, revision: int, path: str) -> tuple[int, int] | None:
        node = self.model.trees[revision].get(path)
        return None if node is None else (node.life, node.version)

    def restart(self) -> None:
        """Replace one instance by a new one."""
        number = self.chance.randrange(2)
        self.repositories[number].close()
        self.repositories[number] = self.opened()

    # --- reading -----------------------------------------------------------------------------------------

    def check(self) -> None:
        """Compare a snapshot, a difference and a log with the model."""
        revision, other = self.chance.choice((self.model.head, self._any())), self._any()
        repository = self.chance.choice(self.repositories)
        assert repository.refresh().revision == self.ids[-1]
        snapshot, tree = repository.at(self.ids[revision]), self.model.trees[revision]
        before, after = shown(self.model.trees[other]), shown(tree)
        found = {node.path: all_typed(node) for node in snapshot.walk()}
        assert found == after
        for node in snapshot.walk():
            life = node.path, tree[node.path].life, tree[node.path].version
            assert self.versions.setdefault(life, node.version) == node.version
            assert self.versions.setdefault((node.path, node.version), life) == life
        differences = {
            one.path: (one.before and all_typed(one.before), one.after and all_typed(one.after))
            for one in repository.diff(repository.at(self.ids[other]), snapshot)
        }
        paths = before.keys() | after.keys()
        assert differences == {
            path: (before.get(path), after.get(path)) for path in paths if before.get(path) != after.get(path)
        }
        path = self.chance.choice(sorted(tree))
        self._check_children(repository, revision, path)
        self._check_history(repository, revision, self.chance.choice((path, join("/", self.chance.choice(self.names)))))

    def _any(self) -> int:
        return self.chance.randrange(len(self.ids))

    def _check_children(self, repository: Repository, revision: int, path: str) -> None:
        """Compare the pages of a list of children, in every size."""
        snapshot = repository.at(self.ids[revision])
        names = sorted((name(one) for one in self.model.trees[revision] if one != "/" and parent(one) == path), key=key)
        assert snapshot.child_count(path) == len(names)
        for size in range(1, len(names) + 2):
            pages = list(_pages(lambda after, size=size: snapshot.children(path, after, size), size))  # type: ignore[misc]
            assert pages == names
        after = self.chance.choice(ODD_NAMES)
        assert snapshot.children(path, after) == [one for one in names if key(one) > key(after)]

    def _check_history(self, repository: Repository, revision: int, path: str) -> None:
        """Compare the status and the log of a path."""
        tree, deleted = self.model.trees[revision], self.model.deleted[revision]
        found = repository.at(self.ids[revision]).status([path])[path]
        assert found.status == ("present" if path in tree else "deleted" if path in deleted else "absent")
        if path in deleted:
            assert found.revision == self.ids[deleted[path]]
        elif path in tree:
            last = next((at for at in range(revision, 0, -1) if path in self.model.changes[at].changed), 0)
            assert found.revision == self.ids[last]
        touching = [self.ids[at] for at in self.model.touching(path, revision)]
        logged = [entry.revision for entry in repository.log(path, self.ids[revision]) if entry.base is not None]
        if repository.store.supports_parallel_calls:
            # The journal may name nodes of which the commit changed nothing.
            logged = [one for one in logged if one in touching]
        assert logged == touching


def _fixed(which: str) -> str | None:
    return None if which == "none" else which


def _pages(read: Callable[[str | None], list[str]], size: int) -> Iterator[str]:
    after = None
    while True:
        page = read(after)
        yield from page
        if len(page) < size:
            return
        after = page[-1]


@pytest.mark.parametrize("share", SHARES)
def test_random_transactions_agree_with_the_model(
    request: pytest.FixtureRequest, new_repository: Callable[[], Callable[[], Store]], share: float
) -> None:
    walks = round(WALKS[request.node.callspec.params["new_repository"]] * share)
    first = int(os.environ.get("HBASEMK_TEST_SEED", "20261126"))
    counts = {"committed": 0, "refused": 0, "conflict": 0}
    for seed in range(first, first + walks):
        print(f"repeat with HBASEMK_TEST_SEED={seed}")
        with instances(new_repository()) as opened:
            walk = Walk(random.Random(seed), opened)
            for _ in range(LENGTH):
                walk.step()
        for kind, count in walk.counts.items():
            counts[kind] += count
    print(counts)
    assert min(counts.values()) > walks

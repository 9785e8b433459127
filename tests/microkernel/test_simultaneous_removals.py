"""Two processes remove the same thing on the same base. The second commit meets the first one before it is decided."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from hbasemk import ConflictError, MicroKernel
from hbasemk.format import schema
from hbasemk.repository import instance_of
from hbasemk.store.abc import Column, Put, Store
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import Call, FaultyStore
from tests.support.repositories import Instances, instances

TREE = '+"/x":{"p":1,"q":1,"c":{}} +"/y":{"p":1}'
REMOVALS = {"a property": '-"/x/p"', "a node": '-"/x/c"', "a node with content": '-"/x"', "both": '-"/x/p" -"/x/c"'}
removals = pytest.mark.parametrize("removal", REMOVALS.values(), ids=REMOVALS)


class Steps(FaultyStore):
    """A store that calls a function before a commit writes its cells, and one before it is decided."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.before_cells: Callable[[], object] = lambda: None
        self.before_decision: Callable[[], object] = lambda: None
        self.before = self._before

    def _before(self, call: Call) -> None:
        if call[:2] == ("write", schema.NODES):
            self.before_cells()

    def check_and_write(
        self, table: str, column: Column, expected: bytes | None, put: Put, *, durable: bool = True
    ) -> bool:
        if table == schema.JOURNAL and column == schema.ABORT:
            self.before_decision()
        return super().check_and_write(table, column, expected, put, durable=durable)


class Stop:
    """A place at which a thread waits, and then fails once if it has an error."""

    def __init__(self) -> None:
        self.reached, self.may_pass = Event(), Event()
        self.error: Exception | None = None

    def __call__(self) -> None:
        self.reached.set()
        self.may_pass.wait()
        error, self.error = self.error, None
        if error is not None:
            raise error


class Two:
    """Two MicroKernels on a store without transactions; ``first`` commits in a thread, step by step."""

    def __init__(self, opened: Instances) -> None:
        self.store = Steps(opened.new_store())
        self.second_store = Steps(opened.new_store())
        self.first, self.second = MicroKernel(opened(self.store)), MicroKernel(opened(self.second_store))
        self.base = self.first.commit("", TREE)
        self.second.repository.refresh()
        self._thread = ThreadPoolExecutor(1)
        self._cells, self.decision = Stop(), Stop()

    def begin(self, text: str) -> None:
        """Let ``first`` begin to commit a text; it stops before its cells, when its journal row exists."""
        self.store.before_cells, self.store.before_decision = self._cells, self.decision
        self.revision = self._thread.submit(self.first.commit, "", text, self.base)
        self._cells.reached.wait()
        # Within a millisecond, the other MicroKernel could get a lower id.
        time.sleep(0.01)

    def write(self) -> None:
        """Let ``first`` write its cells and read back; it stops before its decision."""
        self._cells.may_pass.set()
        self.decision.reached.wait()

    def end(self) -> None:
        """Let ``first`` end its commit."""
        self._cells.may_pass.set()
        self.decision.may_pass.set()
        self._thread.shutdown()

    def commit_until_it_waits(self, text: str, then: Callable[[], object]) -> str:
        """Commit a text with ``second``; call ``then`` when it waits, and let it wait no more."""
        runtime = instance_of(self.second.repository).runtime
        calls = [then]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(runtime, "sleep", lambda _: calls.pop()())
            return self.second.commit("", text, self.base)


@pytest.fixture
def two() -> Iterator[Two]:
    shared = MemoryStore(transactions=False)
    with instances(lambda: copy.copy(shared)) as opened:
        made = Two(opened)
        try:
            yield made
        finally:
            made.end()


@removals
def test_a_removal_that_another_process_is_just_committing_succeeds(two: Two, removal: str) -> None:
    two.begin(removal)
    two.write()
    revision = two.commit_until_it_waits(removal, two.end)
    assert revision == two.revision.result() == two.second.get_head_revision()


@removals
def test_a_removal_that_the_other_process_aborts_succeeds(two: Two, removal: str) -> None:
    """Its id is higher, and its read-back was too early to find the cells of the other one."""
    two.begin(removal)
    two.second_store.before_decision = two.write
    revision = two.commit_until_it_waits(removal, two.end)
    assert revision == two.revision.result() == two.second.get_head_revision()


def test_the_rest_of_the_text_is_committed(two: Two) -> None:
    two.begin('-"/x/p"')
    two.write()
    revision = two.commit_until_it_waits('-"/x/p" ^"/y/p":2', two.end)
    assert revision > two.revision.result()
    assert json.loads(str(two.second.get_nodes("/y", revision)))["p"] == 2


def test_a_removal_succeeds_if_the_other_commit_fails(two: Two) -> None:
    two.begin('-"/x/p"')
    two.write()

    def fail() -> None:
        two.decision.error = RuntimeError("failed on purpose")
        two.end()
        # A commit first aborts the one that has failed.
        two.first.commit("", '^"/y/p":2')

    revision = two.commit_until_it_waits('-"/x/p"', fail)
    with pytest.raises(RuntimeError, match="on purpose"):
        two.revision.result()
    assert two.second.get_head_revision() == revision > two.base
    assert "p" not in json.loads(str(two.second.get_nodes("/x")))


@pytest.mark.parametrize("text", ['-"/x/p" ^"/x/p":2', '-"/x" +"/x":{}'])
def test_a_text_that_needs_the_removed_thing_conflicts(two: Two, text: str) -> None:
    two.begin('-"/x"')
    two.write()
    with pytest.raises(ConflictError):
        two.commit_until_it_waits(text, two.end)


def test_a_text_without_a_removal_conflicts_at_once(two: Two) -> None:
    two.begin('-"/x/p"')
    two.write()
    waited: list[bool] = []
    with pytest.raises(ConflictError):
        two.commit_until_it_waits('^"/x/p":2', lambda: waited.append(True))
    assert waited == []

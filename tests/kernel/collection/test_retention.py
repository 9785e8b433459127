"""A retention that was acknowledged stays, although clocks of servers go back and requests arrive late."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hbasemk.kernel.collection import retention
from hbasemk.store.abc import Store
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import Call, WrappedStore, lost_reply
from tests.support.runtime import World, open_instance


@pytest.mark.parametrize("back_ms", [1, 4000])
def test_it_changes_although_a_servers_clock_goes_back(world: World, back_ms: int) -> None:
    behind = [0]
    one = open_instance(MemoryStore(lambda: world.clock() - behind[0]), world)
    retention.write(one, 60_000)
    behind[0] = back_ms
    retention.write(one, None)
    assert retention.read(one) is None


class Died(BaseException):
    """The process died."""


class LateStore(WrappedStore):
    """A store that holds back the next write, whose sender gets an error instead of an answer."""

    held: Callable[[], object]

    def __init__(self, inner: Store, error: Callable[[Call], BaseException] = lost_reply) -> None:
        super().__init__(inner)
        self.is_next_late = False
        self._error = error

    def around(self, call: Call, do: Callable[[], Any]) -> Any:
        """Make the call, or hold it back."""
        if not self.is_next_late or call.method not in ("write", "check_and_write"):
            return do()
        self.is_next_late, self.held = False, do
        raise self._error(call)


def test_a_request_that_comes_late_changes_no_later_one(store: MemoryStore, world: World) -> None:
    slow = LateStore(store)
    one = open_instance(slow, world)
    retention.write(one, None)
    slow.is_next_late = True
    retention.write(one, 60_000)
    assert retention.read(one) == 60_000
    retention.write(one, None)
    slow.held()
    assert retention.read(one) is None


def test_two_changes_at_the_same_time_leave_one_of_both(store: MemoryStore, world: World) -> None:
    slow, other = LateStore(store), open_instance(store, world, mac=2)
    one = open_instance(slow, world)
    slow.is_next_late = True
    retention.write(one, 60_000)
    retention.write(other, 70_000)
    slow.held()
    assert retention.read(one) == retention.read(other) == 70_000


def test_a_request_of_a_dead_process_does_not_replace_a_retention_that_was_set_again(
    store: MemoryStore, world: World
) -> None:
    slow, other = LateStore(store, Died), open_instance(store, world, mac=2)
    retention.write(other, None)
    dying = open_instance(slow, world)
    slow.is_next_late = True
    with pytest.raises(Died):
        retention.write(dying, 60_000)
    retention.write(other, None)
    slow.held()
    assert retention.read(other) is None

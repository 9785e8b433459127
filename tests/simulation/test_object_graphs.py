"""Images of objects: equal exactly if nothing that the objects refer to differs."""

from __future__ import annotations

import random
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from hbasemk.store.abc import NewCell, Put, Table
from hbasemk.store.memory import MemoryStore
from tests.support.simulation.object_graphs import image_of


class Thing:
    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)

    def method(self) -> None:
        """Do nothing."""


def closure(value: object) -> Callable[[], object]:
    return lambda: value


def locked(times: int) -> Any:
    lock = threading.RLock()
    for _ in range(times):
        lock.acquire()
    return lock


def drawn(count: int) -> random.Random:
    chance = random.Random(7)
    for _ in range(count):
        chance.random()
    return chance


def stored(value: bytes) -> MemoryStore:
    store = MemoryStore(lambda: 5)
    store.create_tables([Table("t", (b"f",), 1)])
    store.write("t", [Put(b"row", [NewCell(b"f", b"q", value)])])
    return store


def shared(first: list[int], second: list[int]) -> list[list[int]]:
    return [first, second, first]


def cyclic(value: object) -> Thing:
    thing = Thing(value=value)
    thing.code, thing.me = closure(thing), weakref.ref(thing)
    return thing


@pytest.mark.parametrize(
    ("make", "value", "other"),
    [
        (lambda value: Thing(value=value), 1, 2),
        (lambda value: Thing(value=value), 1, 1.0),
        (lambda names: Thing(**dict.fromkeys(names)), "ab", "ba"),
        (lambda value: Thing(value=value).method, 1, 2),
        (closure, 1, 2),
        (cyclic, 1, 2),
        (locked, 0, 1),
        (drawn, 0, 1),
        (stored, b"1", b"2"),
        (lambda same: shared(one := [1], one if same else [1]), True, False),
        (lambda alive: (kept := Thing(), weakref.ref(kept if alive else Thing())), True, False),
    ],
)
def test_images_differ_if_and_only_if_the_objects_do(
    make: Callable[[Any], object], value: object, other: object
) -> None:
    assert image_of(make(value)) == image_of(make(value))
    assert image_of(make(value)) != image_of(make(other))


def test_a_shared_object_is_only_named() -> None:
    one, two = Thing(value=1), Thing(value=2)
    assert image_of([one], shared=[one, two]) == image_of([one], shared=[one])
    assert image_of([one], shared=[one, two]) != image_of([two], shared=[one, two])
    two.value = 3
    assert image_of([one, two], shared=[one, two]) == image_of([one, two], shared=[one, two])


def test_an_object_of_unknown_state_is_rejected() -> None:
    with pytest.raises(TypeError, match="generator"):
        image_of(one for one in ())

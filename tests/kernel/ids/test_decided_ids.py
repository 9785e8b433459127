"""Decided ids keep their order and their bytes."""

from __future__ import annotations

import random

import pytest

from hbasemk.format import revisions
from hbasemk.kernel.ids.decided_ids import DecidedIds


def encoded(ids: list[int]) -> bytes:
    return revisions.to_bytes(sorted(ids))


@pytest.mark.parametrize("seed", range(20))
def test_the_bytes_are_those_of_all_ids_in_their_order(seed: int) -> None:
    chance = random.Random(seed)
    decided, model = DecidedIds(), list[int]()
    for one in chance.sample(range(1, 10**6), 60):
        decided.add(one)
        model.append(one)
        if chance.random() < 0.2:
            count = chance.randrange(len(model) + 1)
            dropped = sorted(model)[:count]
            assert decided.highest_of(count) == max(dropped, default=0)
            decided.drop(count)
            model = sorted(model)[count:]
        others = chance.sample(range(10**6, 2 * 10**6), chance.randrange(3))
        if chance.random() < 0.3:
            others.append(0)
        assert decided.encoded_with(others) == encoded([*model, *others])
        assert len(decided) == len(model)

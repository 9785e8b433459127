"""The random choices of a simulated run, as one list of numbers that can be replayed and shrunk.

A run requests numbers below a bound from :class:`Choices`. With a seed, it draws and records random numbers. With a
list, it replays them; where the list ends or holds an impossible number, it returns 0. Zero is always the simplest
answer: continue the same process, no delay, no fault. So a failing run is shrunk by deleting parts of its list and by
replacing parts by zeros, as the reducers of property testing do with choice sequences (MacIver and Donaldson, ECOOP
2020).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

T = TypeVar("T")

_SCALE: Final = 1_000_000


class Choices:
    """A source of numbers, drawn from ``seed`` or from the list ``replayed``; ``drawn`` holds the numbers so far."""

    def __init__(self, seed: int = 0, replayed: Sequence[int] | None = None) -> None:
        self._draw = random.Random(seed).random if replayed is None else None
        self._replayed = () if replayed is None else replayed
        self.drawn: list[int] = []

    def below(self, bound: int) -> int:
        """Return a number from 0 (inclusive) to ``bound`` (exclusive)."""
        drawn = self.drawn
        if self._draw is not None:
            number = int(self._draw() * bound)
        else:
            at = len(drawn)
            number = self._replayed[at] if at < len(self._replayed) else 0
            if number >= bound:
                number = 0
        drawn.append(number)
        return number

    def choice(self, things: Sequence[T]) -> T:
        """Return one of the things, the first being the simplest; draws no number for a single thing."""
        return things[self.below(len(things))] if len(things) > 1 else things[0]

    def happens(self, probability: float) -> bool:
        """Return whether an event of this probability happens; draws no number if it cannot."""
        return probability > 0 and self.below(_SCALE) >= _SCALE * (1 - probability)

    def random(self) -> float:
        """Return a number from 0 (inclusive) to 1 (exclusive)."""
        return 1 - 1 / _SCALE - self.below(_SCALE) / _SCALE

    def shuffle(self, things: list[T]) -> None:
        """Reorder a list in place; zeros keep its order."""
        for at in range(len(things) - 1):
            other = at + self.below(len(things) - at)
            things[at], things[other] = things[other], things[at]


def shrink(choices: Sequence[int], fails: Callable[[list[int]], bool], attempts: int = 2000) -> list[int]:
    """Return a shorter and simpler list of choices that still fails; ``fails`` runs a list.

    Makes at most ``attempts`` runs. It first drops the end, then deletes parts, then replaces parts by zeros, each with
    halved sizes. It repeats this as long as the list gets simpler.
    """
    best = _trimmed(choices)
    left = attempts

    def better(candidate: list[int]) -> bool:
        nonlocal best, left
        candidate = _trimmed(candidate)
        if left <= 0 or (len(candidate), candidate.count(0)) == (len(best), best.count(0)) or candidate == best:
            return False
        left -= 1
        if fails(candidate):
            best = candidate
            return True
        return False

    while left > 0:
        before = best
        low, high = 0, len(best)
        while low < high:
            middle = (low + high) // 2
            if better(best[:middle]):
                high = len(best)
            else:
                low = middle + 1
        for put in ([], [0]):
            size = max(1, len(best) // 2)
            while size:
                at = len(best) - size
                while at >= 0:
                    part = best[at : at + size]
                    if any(part) or not put:
                        better(best[:at] + put * (size if put else 0) + best[at + size :])
                    at -= size
                size //= 2
        if best == before:
            break
    return best


def _trimmed(choices: Sequence[int]) -> list[int]:
    """Return the choices without the zeros at the end, which are the default."""
    end = len(choices)
    while end and not choices[end - 1]:
        end -= 1
    return list(choices[:end])

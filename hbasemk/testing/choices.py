"""Everything a simulated run leaves to chance, as one list of numbers that can be repeated and made smaller.

A run asks :class:`Choices` again and again for a number below a bound. From a seed they are drawn at random and noted
down; from a list they are repeated, and where the list ends, or holds what is not possible, the answer is 0. Zero is
always the dullest answer: go on with the same process, no delay, no fault. So a run that fails is made short by deleting
parts of its list and by putting zeros into it, the way the reducers of property testing work on choice sequences
(MacIver and Donaldson, ECOOP 2020).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

T = TypeVar("T")

_SCALE: Final = 1_000_000


class Choices:
    """A source of numbers: drawn from ``seed``, or repeated from ``told``; ``made`` holds those given so far."""

    def __init__(self, seed: int = 0, told: Sequence[int] | None = None) -> None:
        self._draw = random.Random(seed).random if told is None else None
        self._told = () if told is None else told
        self.made: list[int] = []

    def below(self, bound: int) -> int:
        """A number from 0 up to, and without, ``bound``."""
        made = self.made
        if self._draw is not None:
            given = int(self._draw() * bound)
        else:
            at = len(made)
            given = self._told[at] if at < len(self._told) else 0
            if given >= bound:
                given = 0
        made.append(given)
        return given

    def choice(self, things: Sequence[T]) -> T:
        """One of the things, the first being the dullest; no number is used up for a single one."""
        return things[self.below(len(things))] if len(things) > 1 else things[0]

    def happens(self, probability: float) -> bool:
        """Whether something of this probability happens; no number is used up where it cannot."""
        return probability > 0 and self.below(_SCALE) >= _SCALE * (1 - probability)

    def random(self) -> float:
        """A number from 0 up to, and without, 1."""
        return 1 - 1 / _SCALE - self.below(_SCALE) / _SCALE

    def shuffle(self, things: list[T]) -> None:
        """Reorder a list in place; zeros leave it as it is."""
        for at in range(len(things) - 1):
            other = at + self.below(len(things) - at)
            things[at], things[other] = things[other], things[at]


def shrink(choices: Sequence[int], fails: Callable[[list[int]], bool], attempts: int = 2000) -> list[int]:
    """A shorter and duller list of choices that still fails; ``fails`` runs one.

    Makes at most ``attempts`` runs. First drops the end, then deletes parts, then puts zeros in place of parts, each with
    halved sizes, and begins anew as long as that helps.
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
    """Without the zeros at the end, which are given anyway."""
    end = len(choices)
    while end and not choices[end - 1]:
        end -= 1
    return list(choices[:end])

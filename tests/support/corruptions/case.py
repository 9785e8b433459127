"""A way to damage a repository, and the registry of all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from hbasemk.format import revisions
from tests.support.tables import Tables

Where = tuple[str, str]
Damage = Callable[[Tables, str], Where]
text = revisions.to_text


@dataclass(frozen=True)
class Case:
    """One way to damage a repository: the kind that the check reports, and whether a repair removes all of it.

    ``alone``: it hides other damage. ``moves_watermark``: it moves the watermark, below which the check reports other kinds.
    """

    kind: str
    damage: Damage
    repaired: bool
    alone: bool
    moves_watermark: bool


CASES: Final[dict[str, Case]] = {}


def case(
    kind: str, *, repaired: bool = False, alone: bool = False, moves_watermark: bool = False
) -> Callable[[Damage], Damage]:
    def add(damage: Damage) -> Damage:
        CASES[damage.__name__] = Case(kind, damage, repaired, alone, moves_watermark)
        return damage

    return add

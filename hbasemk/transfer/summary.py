"""A summary of many findings: their number, and the first of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

SHOWN: Final = 20
"""So many findings are listed one by one."""


@dataclass(slots=True)
class Sample:
    """How many there were of something, and the first of them."""

    count: int = 0
    first: list[str] = field(default_factory=list)

    def add(self, what: str) -> None:
        """One more."""
        self.count += 1
        if len(self.first) < SHOWN:
            self.first.append(what)

"""A summary of many findings: their number, and the first of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

SHOWN: Final = 20
"""The number of findings to list one by one."""


@dataclass(slots=True)
class Sample:
    """The number of findings, and the first of them."""

    count: int = 0
    first: list[str] = field(default_factory=list)

    def add(self, what: str) -> None:
        """Add a finding."""
        self.count += 1
        if len(self.first) < SHOWN:
            self.first.append(what)

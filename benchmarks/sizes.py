"""The sizes of a run: full, quick, and tiny for tests."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Final

from hbasemk.errors import InvalidValueError

DIGITS: Final = 12
CHANGES: Final = 10
"""Changes that the diff finds among the nodes of the bulk load."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Counts, or seconds where the text says so. The defaults are the full sizes."""

    turns: int = 500
    """Repetitions of a short operation."""
    long_turns: int = 15
    """Repetitions of an operation that takes tens of milliseconds or more."""
    large_commit: int = 10_000
    """Nodes in the large commit."""
    large_turns: int = 4
    folder: int = 10_000
    """Children of the listed folder, and nodes among which random reads choose."""
    subtree: int = 1000
    history: int = 10_000
    """Commits between the oldest revision that a scenario reads and the head."""
    revisions: int = 100_000
    """Revisions of the old repository that a scenario opens."""
    bulk: int = 100_000
    """Nodes of the bulk load; the diff looks for changes among them."""
    chunk: int = 5000
    """Nodes in each commit of the bulk load."""
    branch: int = 1000
    """Changes on the branch."""
    branch_commits: int = 10
    processes: int = 8
    """The largest number of processes; scenarios compare 1, 2, 4 … up to it."""
    commits: int = 2000
    """Commits of all processes together in one round: several turns of each process, so that the start matters little."""
    rounds: int = 3
    memory: int = 1_000_000
    """Nodes of the larger tree in the memory scenario."""
    memory_small: int = 10_000
    idle_seconds: int = 20
    skew_wait_seconds: int = 7
    """Seconds to wait before an idle measurement. The watermark moves past the last commits before."""
    time_limit: int = 20
    """Seconds that one system may spend on one measurement, or on its preparation, before the harness cuts it short."""

    def with_changes(self, given: dict[str, str]) -> Sizes:
        """Return a copy with some sizes replaced.

        Raises InvalidValueError for an unknown name, an invalid number, or sizes that do not fit each other.
        """
        known = {field.name for field in fields(self)}
        changes: dict[str, int] = {}
        for name, text in given.items():
            if name not in known or not text.isdecimal() or len(text) > DIGITS or int(text) < 1:
                raise InvalidValueError(
                    f"a size must be NAME=NUMBER with an integer above 0 of at most {DIGITS} digits, got {name}={text}; "
                    f"the names are {', '.join(sorted(known))}"
                )
            changes[name] = int(text)
        changed = replace(self, **changes)
        if changed.bulk % changed.chunk or changed.bulk < CHANGES:
            raise InvalidValueError(
                f"bulk must be a multiple of chunk and at least {CHANGES}, got bulk={changed.bulk} and "
                f"chunk={changed.chunk}; change one of them"
            )
        if changed.folder < 2:
            raise InvalidValueError(f"folder must be at least 2, got {changed.folder}; choose a larger one")
        return changed


FULL = Sizes()
QUICK = Sizes(
    turns=60,
    long_turns=4,
    large_commit=1000,
    large_turns=2,
    folder=1000,
    subtree=200,
    history=1000,
    revisions=5000,
    bulk=5000,
    chunk=1000,
    branch=200,
    branch_commits=4,
    processes=4,
    commits=80,
    rounds=2,
    memory=20_000,
    memory_small=1000,
    idle_seconds=8,
    time_limit=10,
)
TINY = Sizes(
    turns=3,
    long_turns=1,
    large_commit=30,
    large_turns=1,
    folder=30,
    subtree=12,
    history=12,
    revisions=30,
    bulk=30,
    chunk=10,
    branch=8,
    branch_commits=2,
    processes=2,
    commits=4,
    rounds=1,
    memory=60,
    memory_small=20,
    idle_seconds=1,
    skew_wait_seconds=1,
    time_limit=10,
)

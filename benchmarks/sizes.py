"""How much of everything a run does: the full size, a quick one, and a tiny one for tests."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from hbasemk.errors import InvalidValueError


@dataclass(frozen=True, slots=True)
class Sizes:
    """Counts, and seconds where it says so. The defaults are the full size."""

    turns: int = 500
    """Repetitions of a short operation."""
    long_turns: int = 15
    """Repetitions of one that takes tens of milliseconds or more."""
    large_commit: int = 10_000
    """Nodes in the large commit."""
    large_turns: int = 4
    folder: int = 10_000
    """Children of the folder that is listed, and nodes that random reads choose from."""
    subtree: int = 1000
    history: int = 10_000
    """Commits between the oldest revision that is read and the head."""
    revisions: int = 100_000
    """Revisions of the old repository that is opened."""
    bulk: int = 100_000
    """Nodes of the bulk load, among which the differences are looked for."""
    chunk: int = 5000
    """Nodes a commit of the bulk load."""
    branch: int = 1000
    """Changes on the branch."""
    branch_commits: int = 10
    processes: int = 8
    """The most processes; 1, 2, 4 … up to it are compared."""
    commits: int = 400
    """Commits of all processes together, in one round."""
    rounds: int = 3
    memory: int = 1_000_000
    """Nodes of the larger tree whose memory is measured."""
    memory_small: int = 10_000
    idle_seconds: int = 20
    settle_seconds: int = 7
    """Waited before idleness is measured: for so long polls look at what was committed (the allowed clock skew), and more."""
    patience: int = 20
    """Seconds that one system may take for one measurement, or for its preparation, before it is cut short."""

    def with_changes(self, given: dict[str, str]) -> Sizes:
        """Some sizes replaced; raises InvalidValueError for a name or number that cannot be."""
        known = {field.name for field in fields(self)}
        changes: dict[str, int] = {}
        for name, text in given.items():
            if name not in known or not text.isdecimal() or int(text) < 1:
                raise InvalidValueError(
                    f"{name}={text} is no size; sizes are whole numbers above 0: {', '.join(sorted(known))}"
                )
            changes[name] = int(text)
        return replace(self, **changes)


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
    patience=10,
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
    settle_seconds=1,
    patience=10,
)

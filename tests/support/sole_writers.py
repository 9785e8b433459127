"""What an instance knows of the rows that it has written last (decision 62)."""

from __future__ import annotations

from hbasemk.format import paths
from hbasemk.kernel.commit.sole_rows import Known
from hbasemk.kernel.commit.stage import Stage
from hbasemk.kernel.instance import Instance


def known_rows(instance: Instance) -> dict[bytes, Known]:
    """Return the entries of an instance, by row key; a test may change them."""
    return instance._committer.attempts._sole_rows._rows


def let_know(instance: Instance, path: str, revision: int, stage: Stage) -> None:
    """Let an instance know that this revision was its last one to a node, and the stage of the next one."""
    known_rows(instance)[paths.key(path)] = Known(revision, stage)

"""Removals on an older base of what trunk has lost since then: both sides agree, so they need not conflict.

Only a removal that nothing else in its text leans on may be left out. Otherwise what it took away would come back in a
copy or move of what is around it, or the operations after it would no longer make sense on the base.
"""

from __future__ import annotations

from collections.abc import Sequence

from hbasemk import jsop
from hbasemk.format import paths
from hbasemk.format.node import NodeState
from hbasemk.kernel.journal.view import View
from hbasemk.kernel.reading.reader import Reader


def without_gone(reader: Reader, base: View, head: View, told: Sequence[jsop.Operation]) -> list[jsop.Operation]:
    """The operations less the removals of nodes and properties that were there at the base and are gone by now."""
    removed = [one.path for one in told if isinstance(one, jsop.Remove) and one.path != paths.ROOT]
    asked = list(dict.fromkeys([*removed, *(paths.parent(path) for path in removed)]))
    before, now = reader.nodes(base, asked), reader.nodes(head, asked)
    gone = {path for path in removed if _gone(path, before, now) and not any(_leans(one, path) for one in told)}
    return [one for one in told if not (isinstance(one, jsop.Remove) and one.path in gone)]


def _gone(path: str, before: dict[str, NodeState | None], now: dict[str, NodeState | None]) -> bool:
    if before[path] is not None:
        return now[path] is None
    return now[path] is None and _has(before, path) and not _has(now, path)


def _has(states: dict[str, NodeState | None], path: str) -> bool:
    owner = states[paths.parent(path)]
    return owner is not None and paths.name(path) in owner.encoded


def _leans(operation: jsop.Operation, path: str) -> bool:
    """Whether an operation names what a removal takes, or makes or copies a tree around it."""
    if isinstance(operation, jsop.Remove):
        return False
    if isinstance(operation, jsop.SetProperty):
        return paths.is_at_or_below(paths.join(operation.path, operation.name), path)
    whole = (operation.source, operation.target) if isinstance(operation, (jsop.Move, jsop.Copy)) else (operation.path,)
    return any(paths.is_at_or_below(one, path) or paths.is_at_or_below(path, one) for one in whole)

"""The operations of JSOP, one type each; all paths are absolute.

``offset`` is the operation's position in the parsed text, in characters. Comparisons ignore it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias, Union

from hbasemk.jsop.model import JsonNode, Value


@dataclass(frozen=True, slots=True)
class AddNode:
    """``+"path":{…}``: add a node with its whole subtree."""

    path: str
    node: JsonNode
    offset: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class SetProperty:
    """``^"path/name":value``: set a property of the node at ``path``; the ``value`` None (``null``) removes it."""

    path: str
    name: str
    value: Value | None
    offset: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Remove:
    """``-"path"``: remove the node with its subtree, or the property; the text does not distinguish them."""

    path: str
    offset: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Move:
    """``>"source":"target"``: move a subtree."""

    source: str
    target: str
    offset: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Copy:
    """``*"source":"target"``: copy a subtree."""

    source: str
    target: str
    offset: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class ChangedSubtree:
    """``^"path":{}``: something at or below ``path`` changed. Only diffs of limited depth contain it; a commit rejects it."""

    path: str
    offset: int = field(default=0, compare=False)


Operation: TypeAlias = Union[AddNode, SetProperty, Remove, Move, Copy, ChangedSubtree]  # noqa: UP007

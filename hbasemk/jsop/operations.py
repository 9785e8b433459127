"""The operations of a JSOP text, one type each; all paths are absolute.

``offset`` is where the operation begins in the text that it was read from, in characters; it does not count when
operations are compared.
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
    """``^"path/name":value``: set a property of the node at ``path``; ``value`` None (``null``) removes it."""

    path: str
    name: str
    value: Value | None
    offset: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Remove:
    """``-"path"``: remove the node with its subtree, or the property; the text does not tell which."""

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
    """``^"path":{}``: something at or below ``path`` changed. Only diffs that are cut off at a depth say this; it
    cannot be committed."""

    path: str
    offset: int = field(default=0, compare=False)


Operation: TypeAlias = Union[AddNode, SetProperty, Remove, Move, Copy, ChangedSubtree]  # noqa: UP007

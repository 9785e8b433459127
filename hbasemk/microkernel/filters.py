"""Filters of ``get_nodes``: which properties and child nodes it returns."""

from __future__ import annotations

import re
from functools import lru_cache

from hbasemk import jsop
from hbasemk.errors import JsopError, LimitError
from hbasemk.format import limits


class Globs:
    """A list of globs. It accepts a name that at least one glob includes and none excludes.

    ``*`` is the only wildcard, a leading ``-`` excludes, and ``\\`` escapes a ``*`` or a leading ``-``.
    """

    def __init__(self, globs: tuple[str, ...]) -> None:
        self._included = _Patterns([glob for glob in globs if not glob.startswith("-")])
        self._excluded = _Patterns([glob[1:] for glob in globs if glob.startswith("-")])
        self._named = self._included.names
        self._takes_all = "*" in globs and not any(glob.startswith("-") for glob in globs)

    def takes(self, name: str) -> bool:
        """Return whether the globs accept a name."""
        return self._takes_all or (self._included.match(name) and not self._excluded.match(name))

    def names(self, name: str) -> bool:
        """Return whether a glob without wildcards names it, and no glob excludes it."""
        return name in self._named and self.takes(name)


class _Patterns:
    """Globs that all include or all exclude; those without a wildcard share one set lookup."""

    def __init__(self, globs: list[str]) -> None:
        pieces = [_pieces(glob) for glob in globs]
        self.names = {parts[0] for parts in pieces if len(parts) == 1}
        self._wildcards = [parts for parts in pieces if len(parts) > 1]

    def match(self, name: str) -> bool:
        """Return whether any of the globs matches a name."""
        return name in self.names or any(_matches(parts, name) for parts in self._wildcards)


class Filter:
    """A parsed filter ``{"nodes": [glob, …], "properties": [glob, …]}``, both members optional.

    Raises JsopError if the text is not a filter, and LimitError if it is too large.
    """

    def __init__(self, text: str | None) -> None:
        self.nodes: Globs | None = None
        self.properties = Globs(("*",))
        if text is None or not text.strip():
            return
        if len(text) > limits.MAX_FILTER:
            raise LimitError(
                f"the filter {limits.shown(text)} has {len(text)} characters; at most {limits.MAX_FILTER} are possible. "
                "Use wildcards, or several calls."
            )
        parsed = jsop.parse_node(text)
        members: dict[str, object] = {**parsed.properties, **parsed.children}
        unknown = sorted(members.keys() - {"nodes", "properties"})
        if unknown:
            raise JsopError(
                f"a filter has no member {unknown[0]!r}, only 'nodes' and 'properties'", offset=0, context=text[:40]
            )
        for name, globs in members.items():
            if not isinstance(globs, tuple) or not all(isinstance(glob, str) for glob in globs):
                raise JsopError(
                    f'{name!r} of a filter must be an array of strings, such as ["a*"]', offset=0, context=text[:40]
                )
            if len(globs) > limits.MAX_GLOBS:
                raise LimitError(
                    f"{name!r} of a filter has {len(globs)} globs; at most {limits.MAX_GLOBS} are possible. "
                    "Use wildcards, or several calls."
                )
            checked = Globs(tuple(str(glob) for glob in globs))
            if name == "nodes":
                self.nodes = checked
            else:
                self.properties = checked

    def takes_node(self, name: str) -> bool:
        """Return whether the filter accepts a child node of this name."""
        return self.nodes is None or self.nodes.takes(name)


@lru_cache(maxsize=16)
def filter_of(text: str | None) -> Filter:
    """Return the filter of a text; clients use few different ones."""
    return Filter(text)


def _pieces(glob: str) -> list[str]:
    """Split a glob at its wildcards; a glob without wildcards gives one piece."""
    if glob.startswith("\\-"):
        glob = glob[1:]
    pieces = [""]
    for part in re.split(r"(\\?\*)", glob):
        if part == "*":
            pieces.append("")
        else:
            pieces[-1] += "*" if part == "\\*" else part
    return pieces


def _matches(pieces: list[str], name: str) -> bool:
    """Return whether a name consists of the pieces in order with any text in between, without backtracking."""
    first, *middle, last = pieces
    end = len(name) - len(last)
    at = len(first)
    if at > end or not name.startswith(first) or not name.endswith(last):
        return False
    for piece in middle:
        found = name.find(piece, at, end)
        if found < 0:
            return False
        at = found + len(piece)
    return True

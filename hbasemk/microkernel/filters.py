"""Filters of ``get_nodes``: which properties and child nodes come back."""

from __future__ import annotations

import re

from hbasemk import jsop
from hbasemk.errors import JsopError


class Globs:
    """A list of globs: a name passes that one of them includes and none excludes.

    ``*`` is the only wildcard, a leading ``-`` excludes, ``\\`` before ``*`` or a leading ``-`` takes away its meaning.
    """

    def __init__(self, globs: tuple[str, ...]) -> None:
        self._included = [_pieces(glob) for glob in globs if not glob.startswith("-")]
        self._excluded = [_pieces(glob[1:]) for glob in globs if glob.startswith("-")]
        self._named = {pieces[0] for pieces in self._included if len(pieces) == 1}

    def takes(self, name: str) -> bool:
        """Whether a name passes."""
        return any(_matches(one, name) for one in self._included) and not any(
            _matches(one, name) for one in self._excluded
        )

    def names(self, name: str) -> bool:
        """Whether a name is asked for by itself, not by a wildcard."""
        return name in self._named and self.takes(name)


class Filter:
    """What a filter text says: ``{"nodes": [glob, …], "properties": [glob, …]}``, both optional.

    Raises JsopError when the text is none.
    """

    def __init__(self, text: str | None) -> None:
        self.nodes: Globs | None = None
        self.properties = Globs(("*",))
        if text is None or not text.strip():
            return
        told = jsop.parse_node(text)
        unknown = sorted({*told.children, *(told.properties.keys() - {"nodes", "properties"})})
        if unknown:
            raise JsopError(
                f"a filter has no member {unknown[0]!r}, only 'nodes' and 'properties'", offset=0, context=text[:40]
            )
        for name, globs in told.properties.items():
            if not isinstance(globs, tuple) or not all(isinstance(glob, str) for glob in globs):
                raise JsopError(f"{name!r} of a filter must be an array of strings", offset=0, context=text[:40])
            made = Globs(tuple(str(glob) for glob in globs))
            if name == "nodes":
                self.nodes = made
            else:
                self.properties = made

    def takes_node(self, name: str) -> bool:
        """Whether a child node of this name comes back."""
        return self.nodes is None or self.nodes.takes(name)


def _pieces(glob: str) -> list[str]:
    """The texts between a glob's wildcards; a single one for a glob without."""
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
    """Whether a name is the pieces in their order with anything in between; never looks back."""
    first, *middle = pieces
    if not middle:
        return name == first
    last = middle.pop()
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

"""Filters of ``get_nodes``: which properties and child nodes come back."""

from __future__ import annotations

import re

from hbasemk import jsop
from hbasemk.errors import JsopError, LimitError
from hbasemk.format import limits


class Globs:
    """A list of globs: a name passes that one of them includes and none excludes.

    ``*`` is the only wildcard, a leading ``-`` excludes, ``\\`` before ``*`` or a leading ``-`` takes away its meaning.
    """

    def __init__(self, globs: tuple[str, ...]) -> None:
        self._included = _Patterns([glob for glob in globs if not glob.startswith("-")])
        self._excluded = _Patterns([glob[1:] for glob in globs if glob.startswith("-")])
        self._named = self._included.names

    def takes(self, name: str) -> bool:
        """Whether a name passes."""
        return self._included.match(name) and not self._excluded.match(name)

    def names(self, name: str) -> bool:
        """Whether a name is asked for by itself, not by a wildcard."""
        return name in self._named and self.takes(name)


class _Patterns:
    """Globs of one kind; those without a wildcard cost one look-up together."""

    def __init__(self, globs: list[str]) -> None:
        pieces = [_pieces(glob) for glob in globs]
        self.names = {one[0] for one in pieces if len(one) == 1}
        self._wild = [one for one in pieces if len(one) > 1]

    def match(self, name: str) -> bool:
        """Whether one of them is the name, or stands for it."""
        return name in self.names or any(_matches(one, name) for one in self._wild)


class Filter:
    """What a filter text says: ``{"nodes": [glob, …], "properties": [glob, …]}``, both optional.

    Raises JsopError when the text is none, and LimitError when it is too large.
    """

    def __init__(self, text: str | None) -> None:
        self.nodes: Globs | None = None
        self.properties = Globs(("*",))
        if text is None or not text.strip():
            return
        if len(text) > limits.MAX_FILTER:
            raise LimitError(
                f"the filter {limits.shown(text)} has {len(text)} characters; at most {limits.MAX_FILTER} are possible"
            )
        told = jsop.parse_node(text)
        unknown = sorted({*told.children, *(told.properties.keys() - {"nodes", "properties"})})
        if unknown:
            raise JsopError(
                f"a filter has no member {unknown[0]!r}, only 'nodes' and 'properties'", offset=0, context=text[:40]
            )
        for name, globs in told.properties.items():
            if not isinstance(globs, tuple) or not all(isinstance(glob, str) for glob in globs):
                raise JsopError(f"{name!r} of a filter must be an array of strings", offset=0, context=text[:40])
            if len(globs) > limits.MAX_GLOBS:
                raise LimitError(
                    f"{name!r} of a filter has {len(globs)} globs; at most {limits.MAX_GLOBS} are possible. Use "
                    "wildcards, or several "
                    "calls."
                )
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

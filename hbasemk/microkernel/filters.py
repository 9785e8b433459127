"""Filters of ``get_nodes``: which properties and child nodes come back."""

from __future__ import annotations

import re
from typing import Final

from hbasemk import jsop
from hbasemk.errors import JsopError

CHILD_NODE_COUNT: Final = ":childNodeCount"
HASH: Final = ":hash"
ID: Final = ":id"


class Globs:
    """A list of globs: ``*`` is the only wildcard, a leading ``-`` excludes, ``\\`` takes away what follows its meaning."""

    def __init__(self, globs: tuple[str, ...]) -> None:
        included = [glob for glob in globs if not glob.startswith("-")]
        excluded = [glob[1:] for glob in globs if glob.startswith("-")]
        self._included = [_pattern(glob) for glob in included or ["*"]]
        self._excluded = [_pattern(glob) for glob in excluded]
        self._named = {_plain(glob) for glob in included}

    def takes(self, name: str) -> bool:
        """Whether a name passes."""
        return any(one.fullmatch(name) for one in self._included) and not any(
            one.fullmatch(name) for one in self._excluded
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


def _pattern(glob: str) -> re.Pattern[str]:
    parts: list[str] = []
    at = 0
    while at < len(glob):
        letter = glob[at]
        if letter == "\\" and at + 1 < len(glob):
            at += 1
            parts.append(re.escape(glob[at]))
        else:
            parts.append(".*" if letter == "*" else re.escape(letter))
        at += 1
    return re.compile("".join(parts), re.DOTALL)


def _plain(glob: str) -> str:
    return re.sub(r"\\(.)", r"\1", glob, flags=re.DOTALL)

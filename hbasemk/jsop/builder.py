"""Builds JSON texts piece by piece, in the order of the calls, to any depth without recursion."""

from __future__ import annotations

from hbasemk.jsop.model import JsonNode
from hbasemk.jsop.strings import quote
from hbasemk.jsop.writer import Writable, write_node, write_value


class JsonBuilder:
    """A JSON text in the making: objects and arrays are begun, filled and ended.

    In an object every piece is given with its name, in an array and at the top without. A call that does not fit raises
    ValueError, as does an unfinished text. Names are not compared, so giving one twice is up to the caller.
    """

    __slots__ = ("_open", "_parts", "_separate")

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._open: list[str] = []
        self._separate = False

    def begin_object(self, name: str | None = None) -> None:
        """Begin an object; what follows, up to its ``end``, are its members."""
        self._place(name, "{")
        self._open.append("}")
        self._separate = False

    def begin_array(self, name: str | None = None) -> None:
        """Begin an array; what follows, up to its ``end``, are its elements."""
        self._place(name, "[")
        self._open.append("]")
        self._separate = False

    def end(self) -> None:
        """End the innermost object or array."""
        if not self._open:
            raise ValueError("there is no open object or array to end")
        self._parts.append(self._open.pop())
        self._separate = True

    def value(self, value: Writable | None, name: str | None = None) -> None:
        """Add a property value, an array of scalars, or null; raises InvalidValueError for anything else."""
        self._place(name, "null" if value is None else write_value(value))

    def node(self, node: JsonNode, name: str | None = None) -> None:
        """Add a node with everything below it."""
        self._place(name, write_node(node))

    def json(self, text: str, name: str | None = None) -> None:
        """Add a piece that is JSON already; it is not checked."""
        self._place(name, text)

    def text(self) -> str:
        """The whole text; raises ValueError while something is open or nothing was added."""
        if self._open or not self._parts:
            raise ValueError(f"the text is unfinished: {len(self._open)} objects and arrays are open")
        return "".join(self._parts)

    def _place(self, name: str | None, piece: str) -> None:
        if not self._open:
            if name is not None or self._parts:
                raise ValueError("a text is one piece without a name")
        elif (self._open[-1] == "}") != (name is not None):
            raise ValueError("members of objects have names, elements of arrays have none")
        if self._separate:
            self._parts.append(",")
        if name is not None:
            self._parts.append(quote(name) + ":")
        self._parts.append(piece)
        self._separate = True

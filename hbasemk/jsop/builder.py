"""A builder that writes JSON text piece by piece, in the order of the calls, to any depth without recursion."""

from __future__ import annotations

from collections.abc import Sequence

from hbasemk.errors import InvalidValueError
from hbasemk.jsop.model import JsonNode
from hbasemk.jsop.strings import quote
from hbasemk.jsop.writer import Writable, write_node, write_value


class JsonBuilder:
    """An incremental JSON text: the caller begins, fills and ends objects and arrays.

    In an object every piece needs a name; in an array and at the top it must not have one. A call that does not fit raises
    InvalidValueError, as does an unfinished text. The builder does not detect duplicate names.
    """

    __slots__ = ("_open", "_parts", "_separate")

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._open: list[str] = []
        self._separate = False

    def begin_object(self, name: str | None = None) -> None:
        """Begin an object, the member ``name`` of an object (None: elsewhere); calls up to its ``end`` add members."""
        self._place(name, "{")
        self._open.append("}")
        self._separate = False

    def begin_array(self, name: str | None = None) -> None:
        """Begin an array, the member ``name`` of an object (None: elsewhere); calls up to its ``end`` add elements."""
        self._place(name, "[")
        self._open.append("]")
        self._separate = False

    def end(self) -> None:
        """End the innermost object or array."""
        if not self._open:
            raise InvalidValueError("no object or array is open; call begin_object() or begin_array() first")
        self._parts.append(self._open.pop())
        self._separate = True

    def value(self, value: Writable | None, name: str | None = None) -> None:
        """Add ``value``: a property value, an array of scalars, or null. ``name`` as in :meth:`begin_object`.

        Raises InvalidValueError for another value.
        """
        self._place(name, "null" if value is None else write_value(value))

    def node(self, node: JsonNode, name: str | None = None) -> None:
        """Add ``node`` with its subtree. ``name`` as in :meth:`begin_object`."""
        self._place(name, write_node(node))

    def json(self, text: str, name: str | None = None) -> None:
        """Add ``text``, a piece of JSON, without a check. ``name`` as in :meth:`begin_object`."""
        self._place(name, text)

    def empty_objects(self, names: Sequence[str]) -> None:
        """Add an empty object for each of ``names`` to the open object."""
        if names:
            self._place(names[0], ",".join(["{}", *(f"{quote(name)}:{{}}" for name in names[1:])]))

    def text(self) -> str:
        """Return the whole text; raise InvalidValueError if an object or array is open, or the text is empty."""
        if self._open or not self._parts:
            still = "1 object or array is" if len(self._open) == 1 else f"{len(self._open)} objects and arrays are"
            raise InvalidValueError(f"the text is unfinished: {still} open")
        return "".join(self._parts)

    def _place(self, name: str | None, piece: str) -> None:
        if not self._open:
            if name is not None or self._parts:
                raise InvalidValueError("a text must be one piece without a name")
        elif (self._open[-1] == "}") != (name is not None):
            raise InvalidValueError("a member of an object needs a name; an element of an array must not have one")
        if self._separate:
            self._parts.append(",")
        if name is not None:
            self._parts.append(quote(name) + ":")
        self._parts.append(piece)
        self._separate = True

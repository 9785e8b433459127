"""What JSON values become: numbers that keep their spelling, and nodes.

A node may be nested as deeply as memory allows: comparing, copying and pickling one does not recurse, and neither does
freeing it (CPython frees nested containers in a loop of its own).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final, TypeAlias, Union

from hbasemk.errors import InvalidValueError, LimitError
from hbasemk.kernel import limits

NUMBER: Final = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?"
"""A number in the grammar of JSON (RFC 8259), as a regular expression."""

_is_number: Final = re.compile(NUMBER).fullmatch
_ALWAYS: Final = 640
"""Python converts texts of so many digits to ``int`` whatever ``sys.set_int_max_str_digits`` says."""


@dataclass(frozen=True, slots=True)
class Number:
    """A JSON number as it was spelled: ``Number("1.10")`` and ``Number("1.1")`` are different.

    ``int()`` and ``float()`` work on it as they do on the number: ``int`` cuts off a fraction, and raises OverflowError
    beyond the range of a float unless the spelling has digits only; ``float`` rounds, and is infinite beyond its range.
    Raises InvalidValueError for a text that is no JSON number, and LimitError for one of more than 4300 characters.
    """

    text: str

    def __post_init__(self) -> None:
        if not isinstance(self.text, str) or _is_number(self.text) is None:
            raise InvalidValueError(f"{limits.shown(self.text)} is no JSON number")
        if limits.is_long_number(self.text):
            raise LimitError(long_number(self.text))

    def __int__(self) -> int:
        return _to_int(self.text) if self.text.lstrip("-").isdigit() else int(float(self.text))

    def __float__(self) -> float:
        return float(self.text)

    @property
    def exact(self) -> int | float | None:
        """The ``int`` or ``float`` that is written with exactly this spelling; None if none is (``1.10``, ``1e3``)."""
        if self.text.lstrip("-").isdigit():
            # Of the spellings that the grammar has for an integer, only this one is not how Python writes it.
            return None if self.text == "-0" else _to_int(self.text)
        real = float(self.text)
        return real if math.isfinite(real) and repr(real) == self.text else None


def _to_int(text: str) -> int:
    return int(text) if len(text) <= _ALWAYS else int(Decimal(text))


def long_number(text: str) -> str:
    """What is wrong with the text of a number beyond the limit."""
    return (
        f"the number {text[:20]}… has {len(text)} characters; at most {limits.MAX_DIGITS} are possible. Keep longer ones as "
        "strings."
    )


Scalar: TypeAlias = Union[str, bool, Number]  # noqa: UP007 - evaluated at run time on 3.10
Value: TypeAlias = Union[Scalar, tuple[Scalar, ...]]  # noqa: UP007
"""A property's value as it is read: a string, boolean or number, or an array of these."""


def _rebuild(flat: list[tuple[str, dict[str, Value], int]]) -> JsonNode:
    """The inverse of ``JsonNode.__reduce__``."""
    _, properties, count = flat[0]
    top = JsonNode(properties)
    pending = [(top, count)]
    for name, properties, count in flat[1:]:
        while not pending[-1][1]:
            pending.pop()
        parent, missing = pending[-1]
        pending[-1] = (parent, missing - 1)
        node = parent.children[name] = JsonNode(properties)
        pending.append((node, count))
    return top


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class JsonNode:
    """A node with everything below it: ``properties`` and ``children`` by name, and no name in both.

    Two nodes are equal when the same names have the same values, whatever the order. Not hashable.
    """

    properties: dict[str, Value] = field(default_factory=dict)
    children: dict[str, JsonNode] = field(default_factory=dict)

    def walk(self, path: str) -> Iterator[tuple[str, JsonNode]]:
        """This node, which is at ``path``, and all below it with their paths: parents first, siblings in order."""
        pending = [(path, self)]
        while pending:
            at, node = pending.pop()
            yield at, node
            prefix = at if at.endswith("/") else at + "/"
            pending.extend((prefix + name, node.children[name]) for name in reversed(node.children))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, JsonNode):
            return NotImplemented
        pending = [(self, other)]
        while pending:
            one, two = pending.pop()
            if one is two:
                continue
            if one.properties != two.properties or one.children.keys() != two.children.keys():
                return False
            pending.extend((child, two.children[name]) for name, child in one.children.items())
        return True

    def __repr__(self) -> str:
        return f"JsonNode(properties={self.properties!r}, children of names {list(self.children)!r})"

    def __reduce__(self) -> tuple[object, ...]:
        flat: list[tuple[str, dict[str, Value], int]] = []
        pending = [("", self)]
        while pending:
            name, node = pending.pop()
            flat.append((name, node.properties, len(node.children)))
            pending.extend((below, node.children[below]) for below in reversed(node.children))
        return _rebuild, (flat,)

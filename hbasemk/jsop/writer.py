"""A writer for operations, nodes and values; parsing its output gives equal objects.

It writes properties before children, each in their order, and no white space but a line feed between operations. It raises an
error for each path, name and value that the parser would reject. It does not check the depth of nodes, nor the paths of the
nodes in an object: trees that an earlier version stored beyond these limits are written, and the parser rejects them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from typing import TypeAlias, Union

from hbasemk.errors import InvalidValueError
from hbasemk.format import limits, paths
from hbasemk.format.json_number import Number
from hbasemk.jsop.model import JsonNode, Scalar
from hbasemk.jsop.operations import AddNode, ChangedSubtree, Copy, Move, Operation, Remove, SetProperty
from hbasemk.jsop.strings import quote

Writable: TypeAlias = Union[Scalar, int, float, Sequence[Union[Scalar, int, float]]]  # noqa: UP007
"""A value that can be written as a property."""

_LONGEST_PLAIN = 2_000
"""Bits of an ``int`` that Python converts to text at any setting of ``sys.set_int_max_str_digits``."""


def write(operations: Iterable[Operation]) -> str:
    """Write ``operations`` as JSOP, one per line.

    Raises InvalidPathError and InvalidValueError for paths, names and values that the parser would reject, and TypeError for
    an operation or node of a wrong type.
    """
    return "".join(pieces(operations))


def pieces(operations: Iterable[Operation]) -> Iterator[str]:
    """Yield the text of :func:`write` in pieces, each with the names and properties of at most one node."""
    line_end = ""
    for operation in operations:
        if isinstance(operation, AddNode):
            paths.parent(paths.check_path(operation.path))
            yield f"{line_end}+{_path(operation.path)}:"
            yield from _node_pieces(operation.node)
        else:
            yield line_end + _operation(operation)
        line_end = "\n"


def write_value(value: Writable) -> str:
    """Write ``value``, a property value, as JSON; arrays are lists or tuples. Raise InvalidValueError for other values."""
    if isinstance(value, (list, tuple)):
        return f"[{','.join([_scalar(item) for item in value])}]"
    return _scalar(value)


def write_node(node: JsonNode) -> str:
    """Write ``node`` with its subtree as JSON.

    Raises InvalidPathError and InvalidValueError for invalid names and values, and TypeError for a node that is no JsonNode.
    """
    return "".join(_node_pieces(node))


def _node_pieces(node: JsonNode) -> Iterator[str]:
    last = _begin(node)
    yield last
    pending = [iter(node.children.items())]
    while pending:
        for name, child in pending[-1]:
            yield f"{'' if last == '{' else ','}{quote(paths.check_name(name))}:"
            last = _begin(child)
            yield last
            pending.append(iter(child.children.items()))
            break
        else:
            pending.pop()
            last = "}"
            yield last


def _begin(node: JsonNode) -> str:
    """Return a node's opening brace and properties."""
    if not isinstance(node, JsonNode):
        raise TypeError(f"a node must be a JsonNode, not {type(node).__name__} {limits.shown(node)}")
    if not node.properties.keys().isdisjoint(node.children):
        duplicates = sorted(node.properties.keys() & node.children.keys())
        raise InvalidValueError(
            f"{duplicates[0]!r} is the name of a property and of a child; it can only be one of them"
        )
    properties = [f"{quote(paths.check_name(name))}:{write_value(value)}" for name, value in node.properties.items()]
    return "{" + ",".join(properties)


def _operation(operation: Operation) -> str:
    """Return the text of an operation that adds no node."""
    if isinstance(operation, SetProperty):
        path = paths.join(paths.check_path(operation.path), paths.check_name(operation.name))
        return f"^{quote(path)}:{'null' if operation.value is None else write_value(operation.value)}"
    if isinstance(operation, Remove):
        return f"-{quote(paths.check_property(operation.path))}"
    if isinstance(operation, Move):
        return f">{_path(operation.source)}:{_path(operation.target)}"
    if isinstance(operation, Copy):
        return f"*{_path(operation.source)}:{_path(operation.target)}"
    if isinstance(operation, ChangedSubtree):
        return f"^{_path(operation.path)}:{{}}"
    raise TypeError(
        f"{limits.shown(operation)} is not a JSOP operation; expected AddNode, SetProperty, Remove, Move, Copy or ChangedSubtree"
    )


def _path(path: str) -> str:
    return quote(paths.check_path(path))


def _scalar(value: object) -> str:
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, Number):
        return value.text
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        if limits.is_long_int(value):
            raise InvalidValueError(
                f"an int of {value.bit_length()} bits cannot be written as a property; expected at most "
                f"{limits.MAX_DIGITS} digits"
            )
        return str(value) if value.bit_length() < _LONGEST_PLAIN else format(Decimal(value), "f")
    if isinstance(value, float) and math.isfinite(value):
        return repr(value)
    raise InvalidValueError(
        f"{limits.shown(value)} cannot be written as a property; expected a string, a finite number, a boolean or an "
        "array of these"
    )

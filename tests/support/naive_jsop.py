"""A second reader of JSOP, short and slow, to compare the real one with: the standard library's JSON and recursion."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from hbasemk.format import limits
from hbasemk.jsop import AddNode, ChangedSubtree, Copy, JsonNode, Move, Operation, Remove, SetProperty, Value
from hbasemk.jsop import Number as RealNumber


class RefusedError(Exception):
    """The text is not JSOP."""


class Number(NamedTuple):
    spelling: str


class Node(NamedTuple):
    properties: dict[str, Any]
    children: dict[str, Any]


def _refuse(_: str) -> Any:
    raise RefusedError


def _joined(text: str) -> str:
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def _number(text: str) -> Number:
    if len(text.lstrip("-")) > limits.MAX_DIGITS:
        raise RefusedError
    return Number(text)


def _is_name(name: str) -> bool:
    return bool(name) and name not in {".", ".."} and "/" not in name and _size(name) <= limits.MAX_NAME


def _tidy(value: Any) -> Any:
    if isinstance(value, str):
        return _joined(value)
    if isinstance(value, list):
        if any(item is None or isinstance(item, (list, Node)) for item in value):
            raise RefusedError
        return [_tidy(item) for item in value]
    return value


def _node(pairs: list[tuple[str, Any]]) -> Node:
    names = [_joined(name) for name, _ in pairs]
    if len(set(names)) < len(names) or not all(map(_is_name, names)):
        raise RefusedError
    members = {name: _tidy(value) for name, (_, value) in zip(names, pairs, strict=True)}
    return Node(
        {name: value for name, value in members.items() if value is not None and not isinstance(value, Node)},
        {name: value for name, value in members.items() if isinstance(value, Node)},
    )


_decoder = json.JSONDecoder(object_pairs_hook=_node, parse_int=_number, parse_float=_number, parse_constant=_refuse)


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\n\r":
        at += 1
    return at


def _json(text: str, at: int) -> tuple[Any, int]:
    try:
        value, at = _decoder.raw_decode(text, at)
    except json.JSONDecodeError as error:
        raise RefusedError from error
    return _tidy(value), _skip(text, at)


def _path(text: str, at: int, root: str, lengths: list[int]) -> tuple[str, int]:
    path, at = _json(text, at)
    if not isinstance(path, str) or not path or (path[0] != "/" and not root):
        raise RefusedError
    if path[0] != "/":
        path = root.rstrip("/") + "/" + path
        lengths.append(_size(path))
    if path != "/" and not all(name and name not in {".", ".."} for name in path[1:].split("/")):
        raise RefusedError
    return path, at


def _check_node(path: str) -> None:
    if _size(path) > limits.MAX_PATH:
        raise RefusedError


def _check_node_or_property(path: str) -> None:
    owner, _, name = path.rpartition("/")
    if _size(path) > limits.MAX_PATH and (_size(owner) > limits.MAX_PATH or not _is_name(name)):
        raise RefusedError


def _added(path: str, node: Node) -> Iterator[str]:
    """Yield the paths of everything below a new node."""
    for name, child in node.children.items():
        below = path.rstrip("/") + "/" + name
        yield below
        yield from _added(below, child)


def _check_new(path: str) -> None:
    if path.count("/") > limits.MAX_DEPTH or _size(path) > limits.MAX_PATH:
        raise RefusedError


def read(text: str, root: str, changed_subtrees: bool) -> list[tuple[Any, ...]]:
    """Return each operation as a tuple that begins with its offset; raise RefusedError for invalid text."""
    found: list[tuple[Any, ...]] = []
    lengths: list[int] = []
    at = _skip(text, 0)
    while at < len(text):
        start, operator = at, text[at]
        if operator not in "+-^>*":
            raise RefusedError
        path, at = _path(text, _skip(text, at + 1), root, lengths)
        _check_node_or_property(path)
        if operator == "-":
            found.append((start, "-", path))
            continue
        if text[at : at + 1] != ":":
            raise RefusedError
        at = _skip(text, at + 1)
        if operator in ">*":
            target, at = _path(text, at, root, lengths)
            _check_node(path)
            _check_node(target)
            if target.count("/") > limits.MAX_DEPTH and target != "/":
                raise RefusedError
            found.append((start, operator, path, target))
            continue
        value, at = _json(text, at)
        if path == "/" and not (isinstance(value, Node) and operator == "^"):
            raise RefusedError
        if not isinstance(value, Node):
            found.append((start, "^", path, value))
            continue
        _check_node(path)
        if operator == "+":
            _check_new(path)
            for below in _added(path, value):
                _check_new(below)
                lengths.append(_size(below))
            found.append((start, "+", path, value))
        elif changed_subtrees and value == ({}, {}):
            found.append((start, "^", path, value))
        else:
            raise RefusedError
    if sum(lengths) > limits.MAX_PATHS:
        raise RefusedError
    return found


def _plain_value(value: Value | None) -> Any:
    if isinstance(value, tuple):
        return [_plain_value(item) for item in value]
    return Number(value.text) if isinstance(value, RealNumber) else value


def _plain_node(node: JsonNode) -> Node:
    return Node(
        {name: _plain_value(value) for name, value in node.properties.items()},
        {name: _plain_node(child) for name, child in node.children.items()},
    )


def plain(operations: list[Operation]) -> list[tuple[Any, ...]]:
    """Return the operations that the real reader found, in the form that :func:`read` returns."""
    found: list[tuple[Any, ...]] = []
    for one in operations:
        if isinstance(one, AddNode):
            found.append((one.offset, "+", one.path, _plain_node(one.node)))
        elif isinstance(one, SetProperty):
            path = one.path.rstrip("/") + "/" + one.name
            found.append((one.offset, "^", path, _plain_value(one.value)))
        elif isinstance(one, Remove):
            found.append((one.offset, "-", one.path))
        elif isinstance(one, ChangedSubtree):
            found.append((one.offset, "^", one.path, Node({}, {})))
        else:
            assert isinstance(one, (Move, Copy))
            found.append((one.offset, ">" if isinstance(one, Move) else "*", one.source, one.target))
    return found

"""The parser of JSOP: a list of operations whose values are JSON."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from hbasemk.errors import InvalidPathError
from hbasemk.format import limits, paths
from hbasemk.jsop.json_reader import PLAIN_STRING, WHITE_SPACE, JsonReader, match_colon
from hbasemk.jsop.model import JsonNode, Value
from hbasemk.jsop.operations import AddNode, ChangedSubtree, Copy, Move, Operation, Remove, SetProperty
from hbasemk.jsop.strings import join_surrogates

_match_operation: Final = re.compile(rf"{WHITE_SPACE}([-+^>*]){WHITE_SPACE}{PLAIN_STRING}").match
_LONGEST_PROBLEM: Final = 200


def parse(text: str, root: str = "", *, changed_subtrees: bool = False) -> list[Operation]:
    """Parse ``text``, JSOP, into a list of operations.

    Relative paths start at ``root``, an absolute path; if ``root`` is empty, every path must be absolute.
    ``changed_subtrees`` accepts ``^"path":{}``, which occurs in diffs of limited depth but not in commits. Omits the ``null``
    properties of new nodes. Raises JsopError with the offset of the error, and InvalidPathError for an invalid ``root``.
    """
    if root:
        paths.check_path(root)
    return _JsopReader(text).operations(root, changed_subtrees)


def parse_node(text: str) -> JsonNode:
    """Parse ``text``, a JSON object such as ``get_nodes`` returns, into a node; raise JsopError for any other text."""
    reader = JsonReader(text)
    at = reader.skip(0)
    if not text.startswith("{", at):
        reader.fail(at, "expected an object")
    node, at = reader.object(at + 1)
    reader.end(at)
    return node


def parse_value(text: str) -> Value:
    """Parse ``text``, JSON, into a property value: a string, number, boolean, or array of these.

    Raises JsopError for any other text.
    """
    reader = JsonReader(text)
    start = reader.skip(0)
    value, at = reader.value(start)
    if value is None or isinstance(value, JsonNode):
        reader.fail(start, "expected a property value: a string, a number, true, false, or an array of these")
    reader.end(at)
    return value


class _JsopReader(JsonReader):
    """The parser of one text of JSOP."""

    def operations(self, root: str, changed_subtrees: bool) -> list[Operation]:
        text = self.text
        result: list[Operation] = []
        at = 0
        while True:
            found = _match_operation(text, at)
            if found is not None:
                start, path_at, at = found.start(1), found.start(2) - 1, found.end()
                operator, path = found.groups()
                if self.surrogates:
                    path = join_surrogates(path)
            else:
                start = self.skip(at)
                if start == len(text):
                    return result
                operator = self.operator(start)
                path_at = self.skip(start + 1)
                if not text.startswith('"', path_at):
                    self.fail(path_at, f"expected a path in double quotes after {operator!r}")
                path, at = self.string(path_at)
            check = paths.check_property if operator in "-+^" else paths.check_path
            path = self.path(path, root, path_at, check)
            if operator == "-":
                result.append(Remove(path, start))
                continue
            colon = match_colon(text, at)
            if colon is None:
                self.fail(self.skip(at), f"expected ':' after the path of {operator!r}")
            value_at = colon.end()
            if operator in "+^":
                value, at = self.value(value_at, path)
                if not isinstance(value, JsonNode):
                    if path == paths.ROOT:
                        self.fail(path_at, "the root is not a property: the path must end with a property's name")
                    result.append(SetProperty(paths.parent(path), paths.name(path), value, start))
                    continue
                path = self.path(path, root, path_at, paths.check_path)
                if operator == "+":
                    if path == paths.ROOT:
                        self.fail(path_at, "the root cannot be added: the path must end with the new node's name")
                    self.check_depth(path, path_at)
                    result.append(AddNode(path, value, start))
                elif not changed_subtrees:
                    self.fail(value_at, "an object is not a property value; to add a node, use '+'")
                elif value.properties or value.children:
                    self.fail(value_at, "expected an empty object, which means a changed subtree")
                else:
                    result.append(ChangedSubtree(path, start))
                continue
            if not text.startswith('"', value_at):
                ordering = text.startswith("{", value_at)
                reason = '; positions such as {"before":…} are not supported, children have no order' * ordering
                self.fail(value_at, f"expected the target path of {operator!r} in double quotes{reason}")
            target, at = self.string(value_at)
            target = self.path(target, root, value_at)
            self.check_depth(target, value_at)
            result.append(Move(path, target, start) if operator == ">" else Copy(path, target, start))

    def operator(self, at: int) -> str:
        operator = self.text[at]
        if operator == "=":
            self.fail(at, "test operations ('=') are not supported")
        if operator not in "+-^>*":
            self.fail(at, f"expected an operation ('+', '-', '^', '>' or '*'), found {operator!r}")
        return operator

    def path(self, path: str, root: str, at: int, check: Callable[[str], str] = paths.check_path) -> str:
        """Return the absolute form of a path in the text; ``check`` raises InvalidPathError if it is not valid."""
        if not path:
            self.fail(at, "the path is empty: the name is missing")
        if not path.startswith("/"):
            if not root:
                self.fail(
                    at, f"the path {path[:60]!r} is relative; expected an absolute path, since no root path is given"
                )
            path = paths.join(root, path)
            self.count(at, limits.size(path))
        try:
            return check(path)
        except InvalidPathError as error:
            raise self.error(
                at, f"{error.message[:_LONGEST_PROBLEM]}{'…' * (len(error.message) > _LONGEST_PROBLEM)}"
            ) from error

    def check_depth(self, path: str, at: int) -> None:
        """Fail if a path is too deep for a node."""
        if paths.depth(path) > limits.MAX_DEPTH:
            self.too_deep(at, paths.depth(path))

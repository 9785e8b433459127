"""The parser of JSOP and its JSON.

The grammar is strictly that of JSON (RFC 8259): control characters in strings must be escaped, and only space, tab, line feed
and carriage return are white space. Two rules are stricter: an object must not repeat a name, and an array contains only
strings, numbers and booleans. The parser examines each character a bounded number of times. One regular expression matches
the common members of an object, the standard library decodes strings with escapes, and a list replaces recursion. While it
reads, the parser limits the depth, the lengths of paths and the number of digits (``format/limits.py``).
"""

from __future__ import annotations

import json
import re
from typing import Final, NoReturn

from hbasemk.errors import InvalidPathError, JsopError
from hbasemk.format import limits, paths
from hbasemk.format.json_number import NUMBER, Number, long_number
from hbasemk.jsop.model import JsonNode, Scalar, Value
from hbasemk.jsop.operations import AddNode, ChangedSubtree, Copy, Move, Operation, Remove, SetProperty
from hbasemk.jsop.strings import SURROGATE, join_surrogates, printable

_WS: Final = r"[ \t\n\r]*"
_PLAIN: Final = r'"([^"\\\x00-\x1f]*)"'
_NAME: Final = rf"{_WS}{_PLAIN}{_WS}:{_WS}"
# The group after a scalar may be empty. So the expression never backtracks into a scalar that matched.
_VALUE: Final = (
    rf"(?:(?:{_PLAIN}|({NUMBER})|(true|false|null)|(\{{{_WS}\}})){_WS}([,}}]?)"  # complete here
    r'|([{\["]))'  # or only opened: an object, an array, a string with escapes
)
_ITEM: Final = rf'{_WS}(?:(?:{_PLAIN}|({NUMBER})|(true|false)){_WS}([,\]]?)|("))'
_match_space: Final = re.compile(_WS).match
_match_member: Final = re.compile(_NAME + _VALUE).match
_match_value: Final = re.compile(_VALUE).match
_match_item: Final = re.compile(_ITEM).match
_match_after_member: Final = re.compile(rf"{_WS}([,}}]?)").match
_match_after_item: Final = re.compile(rf"{_WS}([,\]]?)").match
_match_object_end: Final = re.compile(rf"{_WS}\}}").match
_match_array_end: Final = re.compile(rf"{_WS}\]").match
_match_operation: Final = re.compile(rf"{_WS}([-+^>*]){_WS}{_PLAIN}").match
_match_colon: Final = re.compile(rf"{_WS}:{_WS}").match
_decode_string: Final = json.JSONDecoder().raw_decode
_LITERALS: Final[dict[str, bool | None]] = {"true": True, "false": False, "null": None}
_CONTEXT: Final = 20
_LONGEST_PROBLEM: Final = 200
_ESCAPES: Final = r"\" \\ \/ \b \f \n \r \t and \u with four hexadecimal digits"


def parse(text: str, root: str = "", *, changed_subtrees: bool = False) -> list[Operation]:
    """Parse ``text``, JSOP, into a list of operations.

    Relative paths start at ``root``, an absolute path; if ``root`` is empty, every path must be absolute.
    ``changed_subtrees`` accepts ``^"path":{}``, which occurs in diffs of limited depth but not in commits. Omits the ``null``
    properties of new nodes. Raises JsopError with the offset of the error, and InvalidPathError for an invalid ``root``.
    """
    if root:
        paths.check_path(root)
    return _Reader(text).operations(root, changed_subtrees)


def parse_node(text: str) -> JsonNode:
    """Parse ``text``, a JSON object such as ``get_nodes`` returns, into a node; raise JsopError for any other text."""
    reader = _Reader(text)
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
    reader = _Reader(text)
    start = reader.skip(0)
    value, at = reader.value(start)
    if value is None or isinstance(value, JsonNode):
        reader.fail(start, "expected a property value: a string, a number, true, false, or an array of these")
    reader.end(at)
    return value


class _Reader:
    """The parser of one text. Methods take the offset to read at; they return the parsed object and the next offset."""

    def __init__(self, text: str) -> None:
        if not isinstance(text, str):
            raise TypeError(f"a JSOP or JSON text must be str, not {type(text).__name__}")
        self.text = text
        # The text itself may contain pairs of surrogates. Decoding joins those from escapes.
        self.surrogates = not text.isascii() and SURROGATE.search(text) is not None
        self.names: dict[str, str] = {}
        self.amount = 0
        """Bytes of expanded paths that the text itself does not contain."""

    # --- operations ---

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
            path = self.path(path, root, path_at)
            if operator == "-":
                result.append(Remove(path, start))
                continue
            colon = _match_colon(text, at)
            if colon is None:
                self.fail(self.skip(at), f"expected ':' after the path of {operator!r}")
            value_at = colon.end()
            if operator in "+^":
                value, at = self.value(value_at, path)
                if not isinstance(value, JsonNode):
                    if path == paths.ROOT:
                        self.fail(path_at, "the root is not a property: the path must end with a property's name")
                    result.append(SetProperty(paths.parent(path), paths.name(path), value, start))
                elif operator == "+":
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

    def path(self, path: str, root: str, at: int) -> str:
        """Return the absolute form of a path in the text."""
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
            return paths.check_path(path)
        except InvalidPathError as error:
            raise self.error(
                at, f"{error.message[:_LONGEST_PROBLEM]}{'…' * (len(error.message) > _LONGEST_PROBLEM)}"
            ) from error

    def check_depth(self, path: str, at: int) -> None:
        """Fail if a path is too deep for a node."""
        if paths.depth(path) > limits.MAX_DEPTH:
            self.too_deep(at, paths.depth(path))

    def too_deep(self, at: int, depth: int) -> NoReturn:
        self.fail(
            at, f"a node here is {depth} levels deep; at most {limits.MAX_DEPTH} levels are possible. Nest less deeply."
        )

    def count(self, at: int, size: int) -> None:
        """Add to the total length of expanded paths, and fail if it exceeds the limit."""
        self.amount += size
        if self.amount > limits.MAX_PATHS:
            self.fail(
                at,
                f"the absolute paths of this text have more than {limits.MAX_PATHS} bytes in total. Commit it in several parts.",
            )

    # --- JSON ---

    def value(self, at: int, path: str = paths.ROOT) -> tuple[Value | JsonNode | None, int]:
        """Parse the value at an offset; ``path`` is its path if it is a node."""
        found = _match_value(self.text, at)
        if found is None:
            self.fail(at, "expected a value")
        string, number, literal, empty, _, opened = found.groups()
        if opened is not None:
            if opened == "{":
                return self.object(at + 1, path)
            return self.array(at + 1) if opened == "[" else self.string(at)
        if string is not None:
            return join_surrogates(string) if self.surrogates else string, found.end(1) + 1
        if empty is not None:
            return JsonNode(), found.end(4)
        if number is not None:
            if limits.is_long_number(number):
                self.fail(at, long_number(number))
            return Number(number), found.end(2)
        return _LITERALS[literal], found.end(3)

    def object(self, at: int, path: str = paths.ROOT) -> tuple[JsonNode, int]:
        """Parse the object whose opening brace precedes ``at`` into the node at ``path``."""
        text, names, surrogates = self.text, self.names, self.surrogates
        size = 0 if path == paths.ROOT else limits.size(path)
        levels = limits.MAX_DEPTH - paths.depth(path)
        top = JsonNode()
        properties, children = top.properties, top.children
        nulls: set[str] | None = None  # names with the value null: omitted, but a repetition is still an error
        outer: list[tuple[JsonNode, set[str] | None, int]] = []
        node = top
        may_end = True
        while True:
            found = _match_member(text, at)
            if found is not None:
                name, string, number, literal, empty, after, opened = found.groups()
                name_at = found.start(1) - 1
                if surrogates:
                    name = join_surrogates(name)
            elif may_end and (end := _match_object_end(text, at)) is not None:
                at, after, found = end.end(), "}", None
            else:
                name_at = self.skip(at)
                name, at = self.member_name(name_at)
                found = _match_value(text, at)
                if found is None:
                    self.fail(at, "expected a value")
                string, number, literal, empty, after, opened = found.groups()
            if found is not None:
                at = found.end()
                if name in properties or name in children or (nulls and name in nulls):
                    self.fail(name_at, f"the name {name[:60]!r} occurs twice in one object")
                if "/" in name or name in {"", ".", ".."}:
                    self.fail(name_at, f"{name[:60]!r} is not a name; a name is not empty, '.' or '..', and has no '/'")
                if len(name) * 4 > limits.MAX_NAME and limits.size(name) > limits.MAX_NAME:
                    self.fail(
                        name_at,
                        f"the name {name[:60]!r}… has {limits.size(name)} bytes; at most {limits.MAX_NAME} are possible. Use a "
                        "shorter name.",
                    )
                name = names.setdefault(name, name)
                may_end = False
                if string is not None:
                    properties[name] = join_surrogates(string) if surrogates else string
                elif number is not None:
                    if limits.is_long_number(number):
                        self.fail(name_at, long_number(number))
                    properties[name] = Number(number)
                elif literal is not None:
                    if literal == "null":
                        nulls = nulls or set()
                        nulls.add(name)
                    else:
                        properties[name] = literal == "true"
                elif empty is not None:
                    self.below(name_at, len(outer) + 1, levels, size, name)
                    children[name] = JsonNode()
                elif opened == "{":
                    outer.append((node, nulls, size))
                    size = self.below(name_at, len(outer), levels, size, name)
                    node = children[name] = JsonNode()
                    properties, children, nulls = node.properties, node.children, None
                    may_end = True
                    continue
                else:
                    properties[name], at = self.array(at) if opened == "[" else self.string(at - 1)
                    after, at = self.after_member(at)
            while after == "}":
                if not outer:
                    return top, at
                node, nulls, size = outer.pop()
                properties, children = node.properties, node.children
                after, at = self.after_member(at)
            if not after:
                self.fail(at, "expected ',' or '}'")
            may_end = False

    def below(self, at: int, level: int, levels: int, size: int, name: str) -> int:
        """Return the length of a child's path; fail if the child is too deep or its path too long."""
        if level > levels:
            self.too_deep(at, limits.MAX_DEPTH - levels + level)
        size += 1 + limits.size(name)
        if size > limits.MAX_PATH:
            self.fail(
                at,
                f"the path of the node {name[:60]!r} has {size} bytes; at most {limits.MAX_PATH} are possible. "
                "Use shorter names or fewer levels.",
            )
        self.count(at, size)
        return size

    def member_name(self, at: int) -> tuple[str, int]:
        if not self.text.startswith('"', at):
            self.fail(at, "expected a name in double quotes")
        name, at = self.string(at)
        colon = _match_colon(self.text, at)
        if colon is None:
            self.fail(self.skip(at), "expected ':' after a name")
        return name, colon.end()

    def after_member(self, at: int) -> tuple[str, int]:
        """Return the separator after a member, empty if it is missing."""
        found = _match_after_member(self.text, at)
        assert found is not None, "the expression matches the empty text"
        return found[1], found.end()

    def array(self, at: int) -> tuple[tuple[Scalar, ...], int]:
        """Parse the array whose opening bracket precedes ``at``."""
        text, surrogates = self.text, self.surrogates
        end = _match_array_end(text, at)
        if end is not None:
            return (), end.end()
        items: list[Scalar] = []
        while True:
            found = _match_item(text, at)
            if found is None:
                self.fail(self.skip(at), "expected a string, a number, true or false in an array")
            string, number, literal, after, opened = found.groups()
            at = found.end()
            if string is not None:
                items.append(join_surrogates(string) if surrogates else string)
            elif number is not None:
                if limits.is_long_number(number):
                    self.fail(found.start(2), long_number(number))
                items.append(Number(number))
            elif opened is None:
                items.append(literal == "true")
            else:
                string, at = self.string(at - 1)
                items.append(string)
                separator = _match_after_item(text, at)
                assert separator is not None, "the expression matches the empty text"
                after, at = separator[1], separator.end()
            if after == "]":
                return tuple(items), at
            if not after:
                self.fail(at, "expected ',' or ']'")

    def string(self, at: int) -> tuple[str, int]:
        """Parse the string whose opening quote is at ``at``."""
        try:
            decoded, end = _decode_string(self.text, at)
            return join_surrogates(decoded), end
        except json.JSONDecodeError as error:
            kind, position = error.msg, error.pos  # keeping the error would keep the whole text
        if kind.startswith("Unterminated"):
            problem = "the string that begins here does not end"
        elif "escape" in kind:
            problem = f"this is not a valid escape; expected {_ESCAPES}"
        else:
            problem = "a control character in a string must be escaped"
        raise self.error(position, problem)

    # --- places ---

    def skip(self, at: int) -> int:
        """Return the offset after the white space at ``at``."""
        space = _match_space(self.text, at)
        assert space is not None, "the expression matches the empty text"
        return space.end()

    def end(self, at: int) -> None:
        """Fail unless only white space remains."""
        at = self.skip(at)
        if at < len(self.text):
            self.fail(at, "expected the end of the text")

    def fail(self, at: int, problem: str) -> NoReturn:
        raise self.error(at, problem)

    def error(self, at: int, problem: str) -> JsopError:
        """Create the error for a problem at an offset; its message includes the surrounding text."""
        text = self.text
        before, after = printable(text[max(0, at - _CONTEXT) : at]), printable(text[at : at + _CONTEXT])
        more_before, more_after = "…" * (at > _CONTEXT), "…" * (at + _CONTEXT < len(text))
        marked = f"<-- HERE {after}" if after else "<-- END"
        context = f"{more_before}{before} {marked}{more_after}"
        return JsopError(
            f"{printable(problem.removesuffix('.'))}; at offset {at}: {context}", offset=at, context=context
        )

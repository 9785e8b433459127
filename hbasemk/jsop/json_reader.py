"""The parser of the JSON in JSOP: objects that are nodes, property values, and strings.

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

from hbasemk.errors import JsopError
from hbasemk.format import limits, paths
from hbasemk.format.json_number import NUMBER, Number, long_number
from hbasemk.jsop.model import JsonNode, Scalar, Value
from hbasemk.jsop.strings import SURROGATE, join_surrogates, printable

WHITE_SPACE: Final = r"[ \t\n\r]*"
PLAIN_STRING: Final = r'"([^"\\\x00-\x1f]*)"'
_NAME: Final = rf"{WHITE_SPACE}{PLAIN_STRING}{WHITE_SPACE}:{WHITE_SPACE}"
# The group after a scalar may be empty. So the expression never backtracks into a scalar that matched.
_VALUE: Final = (
    rf"(?:(?:{PLAIN_STRING}|({NUMBER})|(true|false|null)|(\{{{WHITE_SPACE}\}})){WHITE_SPACE}([,}}]?)"  # complete here
    r'|([{\["]))'  # or only opened: an object, an array, a string with escapes
)
_ITEM: Final = rf'{WHITE_SPACE}(?:(?:{PLAIN_STRING}|({NUMBER})|(true|false)){WHITE_SPACE}([,\]]?)|("))'
_match_space: Final = re.compile(WHITE_SPACE).match
_match_member: Final = re.compile(_NAME + _VALUE).match
_match_value: Final = re.compile(_VALUE).match
_match_item: Final = re.compile(_ITEM).match
_match_after_member: Final = re.compile(rf"{WHITE_SPACE}([,}}]?)").match
_match_after_item: Final = re.compile(rf"{WHITE_SPACE}([,\]]?)").match
_match_object_end: Final = re.compile(rf"{WHITE_SPACE}\}}").match
_match_array_end: Final = re.compile(rf"{WHITE_SPACE}\]").match
match_colon: Final = re.compile(rf"{WHITE_SPACE}:{WHITE_SPACE}").match
_decode_string: Final = json.JSONDecoder().raw_decode
_LITERALS: Final[dict[str, bool | None]] = {"true": True, "false": False, "null": None}
_CONTEXT: Final = 20
_ESCAPES: Final = r"\" \\ \/ \b \f \n \r \t and \u with four hexadecimal digits"


class JsonReader:
    """The parser of one text of JSON. Methods take the offset to read at; they return the parsed object and the next offset."""

    def __init__(self, text: str) -> None:
        if not isinstance(text, str):
            raise TypeError(f"a JSOP or JSON text must be str, not {type(text).__name__}")
        self.text = text
        # The text itself may contain pairs of surrogates. Decoding joins those from escapes.
        self.surrogates = not text.isascii() and SURROGATE.search(text) is not None
        self.names: dict[str, str] = {}
        self.amount = 0
        """Bytes of expanded paths that the text itself does not contain."""

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
        colon = match_colon(self.text, at)
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

    # --- limits ---

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

"""Reading of exported JSON, node by node, in memory for one node and one piece of the text."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import BinaryIO, Final, NoReturn

from hbasemk.errors import HbasemkError, InvalidValueError, LimitError
from hbasemk.format import paths
from hbasemk.format.values import Encoded, encode
from hbasemk.transfer.json.values import decoder, encode_any, from_json

PIECE: Final = 1 << 20
"""The bytes of one read."""
LONGEST: Final = 100_000_000
"""The maximal characters of one value; the largest value of a store is shorter, even with each byte escaped."""
_NEAR: Final = 64
"""An error so close to the end of a piece may only mean that the piece ends there."""
_SPACE: Final = " \t\n\r"
_CUT_OFF: Final = "; the file may be cut off"
_PLAIN: Final = frozenset((str, bool, int, float))
"""The types of parsed JSON that are property values."""


def _tokens(*tokens: str) -> Callable[[str, int], re.Match[str] | None]:
    """Return a function that matches these tokens, with white space before each, in a text at a position."""
    return re.compile("".join(rf"[ \t\n\r]*{re.escape(token)}" for token in tokens)).match


_check_name: Final = lru_cache(maxsize=1024)(paths.check_name)
_begins_properties: Final = _tokens("{", '"properties"', ":")
_begins_children: Final = _tokens(",", '"children"', ":", "{")
_has_no_children: Final = _tokens(",", '"children"', ":", "{", "}", "}")
_follows: Final = _tokens(",")
_ends: Final = _tokens("}", "}")
_begins_name: Final = _tokens('"')
_between: Final = _tokens(":")
_number_goes_on: Final = re.compile(r"(?<=[0-9])(\.|[eE][+-]?)\Z").match
"""Matches at the end of a number the begin of a fraction or exponent, if the text ends there."""


def read_tree(source: BinaryIO, name: str, at: str) -> Iterator[tuple[str, Encoded]]:
    """Yield the path and the encoded properties of each node in a text, parents first; the outermost one's path is ``at``.

    The text is that of :func:`hbasemk.transfer.json.exporter.export_json`, in UTF-8: in a node, ``properties`` precede
    ``children``, and both may be missing. Raises InvalidValueError with ``name`` and the position for any other text.
    """
    return _Reader(source, name, at).nodes()


class _Reader:
    def __init__(self, source: BinaryIO, name: str, at: str) -> None:
        self._source = source
        self._name = name
        self._node = at
        self._text = ""
        self._at = 0
        self._before = 0
        self._ended = False
        self._decode = codecs.getincrementaldecoder("utf-8")().decode

    def nodes(self) -> Iterator[tuple[str, Encoded]]:
        top = self._node
        found, more = self._begin()
        yield top, found
        # The nodes whose children are being read, whether one was, and the hashes of the names that they use.
        within = [(top, False, set(map(hash, found)))] if more else []
        while within:
            path, any_before, used = within[-1]
            self._node = path
            if not any_before or not self._skip(_follows):
                if self._skip(_ends):
                    within.pop()
                    continue
                if self._peek() == "}":
                    self._take("}")
                    self._take("}", "the node's end, since properties come before children")
                    within.pop()
                    continue
                if any_before:
                    self._take(",")
                within[-1] = path, True, used
            name = self._string()
            # Some 60 bytes for each child of an open node; names would take more. Equal hashes of 64 bits are equal names.
            if (key := hash(name)) in used:
                self._fail(f"the name {name[:80]!r} occurs twice among its properties and children; remove one of them")
            used.add(key)
            self._node = self._child(path, name)
            if not self._skip(_between):
                self._take(":")
            path = self._node
            found, more = self._begin()
            yield path, found
            if more:
                within.append((path, False, set(map(hash, found))))
        if self._peek():
            self._fail("there is text after the outermost node")

    def _child(self, path: str, name: str) -> str:
        try:
            return paths.check_new(paths.join(path, paths.check_name(name)))
        except HbasemkError as error:
            self._fail(str(error))

    def _begin(self) -> tuple[Encoded, bool]:
        """Read a node's properties; return them, and whether its children follow."""
        found: Encoded = {}
        key = "properties"
        if not self._skip(_begins_properties):
            self._take("{")
            if self._peek() == "}":
                self._take("}")
                return found, False
            key = self._string()
            if key == "properties":
                self._take(":")
        if key == "properties":
            found = self._properties()
            if self._skip(_has_no_children):
                return found, False
            if self._skip(_begins_children):
                return found, True
            if self._take(",}") == "}":
                return found, False
            key = self._string()
        if key != "children":
            self._fail(f"expected the properties and the children of a node, in this order, got {key[:80]!r}")
        self._take(":")
        self._take("{")
        return found, True

    def _properties(self) -> Encoded:
        self._peek()
        at_once = self._properties_at_once()
        if at_once is not None:
            return at_once
        found: Encoded = {}
        self._take("{")
        if self._peek() == "}":
            self._take("}")
            return found
        while True:
            name = self._string()
            if name in found:
                self._fail(f"the node has the property {name[:80]!r} twice")
            self._take(":")
            parsed = self._value()
            try:
                value = encode_any(from_json(parsed))
                found[paths.check_name(name)] = value
            except HbasemkError as error:
                self._fail(f"in the property {name[:80]!r}: {error}")
            if self._take(",}") == "}":
                return found

    def _properties_at_once(self) -> Encoded | None:
        """Read the properties if all of them are in the present piece of the text, and valid; else read nothing."""
        try:
            parsed, end = decoder.raw_decode(self._text, self._at)
            if not isinstance(parsed, dict):
                return None
            found = {
                _check_name(name): encode(value if type(value) in _PLAIN else from_json(value))
                for name, value in parsed.items()
            }
        except (ValueError, RecursionError, HbasemkError):
            return None
        self._at = end
        return found

    # --- pieces of text ----------------------------------------------------------------------------------

    def _skip(self, match: Callable[[str, int], re.Match[str] | None]) -> bool:
        """Skip tokens if all of them are next in the present piece of the text."""
        found = match(self._text, self._at)
        if found is None:
            return False
        self._at = found.end()
        return True

    def _string(self) -> str:
        found = _begins_name(self._text, self._at)
        if found is not None:
            try:
                name, self._at = scanstring(self._text, found.end(), True)
                return str(name)
            except json.JSONDecodeError:
                # The piece may end in it.
                pass
        if self._peek() != '"':
            self._fail("expected a name in quotation marks")
        return str(self._value())

    def _take(self, expected: str, meaning: str = "") -> str:
        found = self._peek()
        if not found or found not in expected:
            self._fail(f"expected {' or '.join(expected)}{meaning and f' ({meaning})'}")
        self._at += 1
        return found

    def _peek(self) -> str:
        """Return the next character that is not white space; empty at the end."""
        while True:
            while self._at < len(self._text):
                if self._text[self._at] not in _SPACE:
                    return self._text[self._at]
                self._at += 1
            if self._ended:
                return ""
            self._read_on()

    def _value(self) -> object:
        """Read the next JSON value; numbers keep their spelling."""
        self._peek()
        while True:
            try:
                found, end = decoder.raw_decode(self._text, self._at)
                # A fraction or an exponent may follow a number at the end of a piece.
                if end < len(self._text) - 2 or self._ended:
                    break
            except json.JSONDecodeError as error:
                cut_off = error.pos > len(self._text) - _NEAR or error.msg.startswith("Unterminated")
                if self._ended or not cut_off:
                    self._at = error.pos
                    if error.msg.startswith("Unterminated"):
                        self._fail(f"a string without an end begins here{_CUT_OFF}")
                    rest = self._text[self._at :].strip(_SPACE)
                    # Each whole file ends with }. At the very end, _fail adds the same words.
                    self._fail(error.msg + (_CUT_OFF if self._ended and rest and "}" not in rest else ""))
            except RecursionError:
                self._fail(
                    "a property cannot hold arrays or objects nested so deeply; expected a value, or an array of values"
                )
            except (InvalidValueError, LimitError) as error:
                self._fail(str(error))
            if len(self._text) - self._at > LONGEST:
                self._fail(f"a value has more than {LONGEST} characters")
            self._read_on()
        if self._ended and _number_goes_on(self._text, end):
            self._fail(f"a number without an end begins here{_CUT_OFF}")
        self._at = end
        return found

    def _read_on(self) -> None:
        rest = self._text[self._at :]
        try:
            # Twice as much each time, so that a long value is not scanned too often.
            data = self._source.read(max(PIECE, len(rest)))
            more = self._decode(data, not data)
        except OSError as error:
            raise OSError(error.errno, error.strerror, self._name) from error
        except UnicodeDecodeError as error:
            self._at = len(self._text) + len(error.object[: error.start].decode("utf-8"))
            self._fail(f"the text is not UTF-8 ({error.reason})")
        self._before += self._at
        self._text, self._at = rest + more, 0
        self._ended = not data

    def _fail(self, problem: str) -> NoReturn:
        if self._ended and not self._text[self._at :].strip(_SPACE):
            problem += _CUT_OFF
        raise InvalidValueError(
            f"{self._name} is not an exported tree: at character {self._before + self._at}, in the node {self._node[:200]!r}: "
            f"{problem}"
        )

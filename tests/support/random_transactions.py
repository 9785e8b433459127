"""Random operations of transactions, with values and names at the borders of what is possible."""

from __future__ import annotations

import random
from typing import Any, Final

from hbasemk import BlobRef, Json
from tests.support.staged_model import Tree
from tests.support.transaction_model import Operation, join

PLAIN_NAMES: Final = ("a", "b", "c", "d")
ODD_NAMES: Final = (
    *(
        "a",
        "é",
        "e\u0301",
        "😀",
        "\ud800",
        "\udfff",
        "%2F",
        "%",
        " ",
        "a ",
        ":x",
        "\x00",
        "a\x00",
        "a\x01",
        "\n",
        "...",
        ".a",
    ),
    *(
        "a.",
        "\\",
        '"',
        "A",
        "x" * 300,
        "\uffff",
        "\U0010ffff",
        "\u212a",
        "\u202e",
        "0",
        "-",
        "*",
        "{}",
        "\x7f",
        "\x80",
        "#",
        "?",
    ),
)
EMPTY_BLOB: Final = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
NUMBERS: Final = (
    *(0, 1, -1, 10, 255, -128, 2**63 - 1, 2**63, -(2**63) - 1, 10**30, -(10**100)),
    *(
        0.0,
        -0.0,
        0.1,
        0.2,
        1.0,
        1e16,
        9007199254740993.0,
        1e300,
        1.7976931348623157e308,
        5e-324,
        2.2250738585072014e-308,
    ),
)
OTHERS: Final[tuple[Any, ...]] = (
    *("", "a", "é", "e\u0301", "😀", "\udc00", "\x00", "a\x00b", ":blobId:", "null", "1", "long" * 2000),
    *(b"", b"\x00", b"\xff\xfe", True, False, float("inf"), float("nan"), BlobRef(EMPTY_BLOB)),
    *(Json("1.10"), Json("1e3"), Json("-0"), Json("1E400"), Json("12345678901234567890123"), Json("10"), 10**4300 - 1),
)
TOO_LONG: Final = 10**4300
KINDS: Final = {
    **{
        "add": 22,
        "set": 18,
        "unset": 5,
        "increment": 5,
        "adjust": 16,
        "remove": 5,
        "add again": 2,
        "move": 4,
        "copy": 4,
    },
    **{"expect": 4, "exists": 2, "get": 3, "properties": 2, "children": 2, "subtree": 1, "load": 2},
    "copy exactly": 3,
}


class RandomOperations:
    """Operations on a tree of a model. Many of one transaction touch the same node and property."""

    def __init__(self, chance: random.Random, names: tuple[str, ...]) -> None:
        self._chance = chance
        self._names = names

    def value(self) -> Any:
        if self._chance.random() < 0.9:
            return self._chance.choice(NUMBERS if self._chance.random() < 0.6 else OTHERS)
        return [self._chance.choice((*NUMBERS, *OTHERS)) for _ in range(self._chance.randrange(4))]

    def property(self) -> str:
        return self._chance.choice(self._names if self._chance.random() < 0.5 else PLAIN_NAMES[:3])

    def path(self, tree: Tree, *, new: bool = False) -> str:
        """Return a path that mostly exists or, with ``new``, one that is mostly free."""
        if new or self._chance.random() < 0.12:
            above = self._chance.choice([path for path in sorted(tree) if path.count("/") < 5])
            return join(above, self._chance.choice(self._names))
        return self._chance.choice(sorted(tree))

    def of_one_transaction(self, tree: Tree) -> list[Operation]:
        """Return some operations. The version of ``expect`` is a number of revisions before the base, or a wrong one."""
        node, name = self.path(tree), self.property()
        found: list[Operation] = []
        for kind in self._chance.choices(
            list(KINDS), list(KINDS.values()), k=self._chance.choice((1, 1, 1, 2, 3, 5, 8))
        ):
            path = node if self._chance.random() < 0.35 else self.path(tree)
            more = self._operations(kind, tree, path, name if self._chance.random() < 0.4 else self.property())
            # A transaction can expect only one version of a node.
            found += [one for one in more if kind != "expect" or not any(one[:2] == other[:2] for other in found)]
        return found

    def _operations(self, kind: str, tree: Tree, path: str, name: str) -> list[Operation]:
        if kind == "add":
            properties = {self.property(): self.value() for _ in range(self._chance.randrange(3))}
            return [("add", self.path(tree, new=True), properties)]
        if kind == "add again":
            return [("remove", path), ("add", path, {})]
        if kind == "set":
            return [("set", path, name, TOO_LONG if self._chance.random() < 0.02 else self.value())]
        if kind in ("increment", "adjust"):
            return [(kind, path, name, self._chance.choice(NUMBERS))]
        if kind == "copy exactly":
            # The copy must have the exact sum, which the value does not show.
            target = self.path(tree, new=True)
            start, by = self._chance.choice(((2**60 + 1, 0.5), (0.1, 0.2), (None, 0.5), (Json("1.10"), 1)))
            begin = ("unset", path, name) if start is None else ("set", path, name, start)
            return [begin, ("adjust", path, name, by), ("copy", path, target), ("adjust", target, name, -by)]
        if kind in ("move", "copy"):
            return [(kind, path, self.path(tree, new=True))]
        if kind == "expect":
            return [("expect", path, self._chance.choice((0, 0, 0, 1, 2, "none", "wrong")))]
        if kind == "load":
            return [("load", [self.path(tree) for _ in range(3)])]
        return [(kind, path, name) if kind in ("unset", "get") else (kind, path)]

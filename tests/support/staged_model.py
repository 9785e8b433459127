"""Nodes of a model of the tree, and what the operations of a transaction make of one."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final, TypeAlias

from tests.support.typed_values import ZERO, Value, exact, plus

_lives: Final = itertools.count(1)


@dataclass(frozen=True)
class Property:
    """The value that was set, the sum of adjusts that the set had seen, and whether an adjust created it."""

    plain: Value
    seen: Fraction = Fraction(0)
    created: bool = False


@dataclass(frozen=True)
class Node:
    """A node: its life, its properties, the sums of all adjusts in this life, and the last revision that wrote properties."""

    life: int
    properties: Mapping[str, Property] = field(default_factory=dict)
    totals: Mapping[str, Fraction] = field(default_factory=dict)
    version: int = 0

    def total(self, name: str) -> Fraction:
        return self.totals.get(name, Fraction(0))

    def shift(self, name: str) -> Fraction:
        return self.total(name) - self.properties[name].seen

    def value(self, name: str) -> Value | None:
        return plus(self.properties[name].plain, self.shift(name)) if name in self.properties else None

    def values(self) -> dict[str, Value]:
        return {one: plus(found.plain, self.shift(one)) for one, found in self.properties.items()}


Tree: TypeAlias = dict[str, Node]


def shown(tree: Tree) -> dict[str, dict[str, Value]]:
    """Return the properties of all nodes by path."""
    return {path: node.values() for path, node in tree.items()}


class Staged:
    """A node with the operations of a transaction so far."""

    def __init__(self, base: Node | None) -> None:
        self.base = base
        self.exists = base is not None
        self.is_new = False
        self.written: dict[str, Value | None] = {}
        self.adjusted: dict[str, Fraction] = {}
        self.exact: set[str] = set()
        self.repeated: set[str] = set()
        self.withdrawn: set[str] = set()
        self.children: dict[str, bool] = {}

    def end(self) -> None:
        self.exists = self.is_new = False
        self.written, self.adjusted, self.exact, self.children = {}, {}, set(), {}

    @property
    def kept(self) -> Node:
        """The node before the transaction, without properties if its life begins here."""
        return Node(0) if self.base is None or self.is_new else self.base

    @property
    def is_changed(self) -> bool:
        is_other = self.is_new or self.exists != (self.base is not None)
        return is_other or bool(self.written or self.adjusted or self.children)

    @property
    def created(self) -> list[str]:
        """The absent properties that an adjust creates."""
        return [one for one in self.adjusted if one not in self.written and one not in self.kept.properties]

    def value(self, name: str) -> Value | None:
        by = self.adjusted.get(name, Fraction(0))
        if name in self.written:
            written = self.written[name]
            return None if written is None else plus(written, by)
        if name in self.kept.properties:
            return plus(self.kept.properties[name].plain, self.kept.shift(name) + by)
        return plus(ZERO, by) if name in self.adjusted else None

    def values(self) -> dict[str, Value]:
        names = {**self.kept.properties, **self.written, **self.adjusted}
        return {one: value for one in names if (value := self.value(one)) is not None}

    def take(self, other: Staged) -> None:
        """Give a node whose life begins the properties of another one, with the sums of their adjusts."""
        for name, value in other.values().items():
            by = other.adjusted.get(name, Fraction(0))
            plain: Value | None = other.written.get(name)
            if plain is None:
                is_kept = name in other.kept.properties
                plain = other.kept.properties[name].plain if is_kept else ZERO
                by += other.kept.shift(name) if is_kept else 0
            is_sum = bool(by) and exact(value) is not None
            self.written[name] = plain if is_sum else value
            if is_sum:
                self.adjusted[name] = by

    def write(self, name: str, value: Value | None) -> None:
        self.adjusted.pop(name, None)
        before = self.kept.properties.get(name)
        same = value == (None if before is None else self.kept.value(name))
        if same and before is not None and value is not None:
            # The shown value is rounded, and the kind of number is that of the last set.
            was, now, shift = exact(before.plain), exact(value), self.kept.shift(name)
            is_moved = was is not None and bool(shift)
            same = value == before.plain if not is_moved else value[0] == before.plain[0] and now == (was or 0) + shift
        if same:
            self.written.pop(name, None)
            self.repeated.add(name)
        else:
            self.written[name] = value

    def after(self, head: Node | None, revision: int) -> Node:
        """Return the node after the commit, on the node at the head (None: a new life)."""
        if head is None or self.base is None:
            values = {one: value for one, value in self.written.items() if value is not None}
            found = {one: Property(value, -self.adjusted.get(one, Fraction(0))) for one, value in values.items()}
            return Node(next(_lives), found, version=revision)
        properties, totals = dict(head.properties), dict(head.totals)
        for one, value in self.written.items():
            if value is None:
                properties.pop(one, None)
            else:
                properties[one] = Property(value, self.base.total(one) - self.adjusted.get(one, Fraction(0)))
        for one, by in self.adjusted.items():
            if one not in self.written:
                if one not in self.base.properties:
                    properties.setdefault(one, Property(ZERO, self.base.total(one), created=True))
                totals[one] = head.total(one) + by
        return Node(head.life, properties, totals, revision)

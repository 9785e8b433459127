"""An adjusted property in one view: the value that was set, and the running totals of the adjusts.

The property's own column holds its *base*: the value that was set, and the sum of totals that this set had seen. Each
writer keeps the total of its adjusts in a private column, a *slot*. The value of the property is the value that was set,
plus the totals, less the sum that the set had seen (``docs/protocol.md``, section 4).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final, NamedTuple, TypeVar

from hbasemk.errors import FormatError
from hbasemk.format import exact, limits, paths, schema, values
from hbasemk.format.exact import Exact
from hbasemk.store.abc import Cell

_SET, _CREATED = b"\x0b", b"\x0c"
"""The first byte of a base with the sum that it had seen: of a set value, and of the 0 with which an adjust began."""
_INTEGER: Final = 0x02
_LENGTH: Final = struct.Struct(">I")


T = TypeVar("T")


class Adjusted(NamedTuple):
    """A property in a view: the ``plain`` value that was set (None: there is no property), the ``seen`` sum, and the totals.

    ``totals`` holds the newest total of each slot, by :func:`slot_of` of its column. ``created`` says that the first adjust of
    an absent property wrote the base.
    """

    plain: bytes | None
    seen: Exact = 0
    totals: Mapping[int, Exact] = {}
    created: bool = False

    @property
    def sum(self) -> Exact:
        """The sum of the totals."""
        return sum(self.totals.values())

    @property
    def base(self) -> tuple[bytes | None, Exact, bool]:
        """What the property's own column holds."""
        return self.plain, self.seen, self.created

    @property
    def shift(self) -> Exact:
        """The sum of the adjusts that the set had not seen."""
        return self.sum - self.seen

    @property
    def number(self) -> Exact | None:
        """The exact value, which a read rounds; None if the property is no number."""
        start = None if self.plain is None else exact.of_value(self.plain)
        return None if start is None else start + self.shift

    def is_set_to(self, plain: bytes | None) -> bool:
        """Return whether a set to a value would change nothing: not the value, nor what later adjusts make of it.

        The value that a read returns is not enough, because it is rounded, and the kind of number is that of the last set.
        """
        before = None if self.plain is None else exact.of_value(self.plain)
        # Adjusts change numbers only: their totals do not count beside a value of another type.
        if before is None or plain is None or not self.shift:
            return self.plain == plain
        after = exact.of_value(plain)
        return (
            after is not None
            and self.plain is not None
            and self.plain[:1] == plain[:1]
            and before + self.shift == after
        )

    def value(self, by: Exact = 0) -> bytes | None:
        """Return the encoded value of the property after another adjust by ``by``; None if there is no property."""
        return None if self.plain is None else exact.add(self.plain, sum(self.totals.values()) - self.seen + by)

    def has_value_of(self, other: Adjusted) -> bool:
        """Return whether both have the same value, exactly: not only as a read rounds it."""
        return self.number == other.number and self.value() == other.value()

    def set(self, plain: bytes | None, by: Exact = 0) -> Adjusted:
        """Return the property after it is set to a value and then adjusted by ``by``."""
        is_number = plain is not None and exact.of_value(plain) is not None
        return Adjusted(plain, self.sum - by if is_number else 0, self.totals)

    def compact(self) -> Adjusted:
        """Return the property of a new life, which has no totals: as a plain value if that is the exact sum, of the same kind."""
        value = self.value()
        return Adjusted(value) if value is not None and self.is_set_to(value) else self

    def without_totals(self) -> tuple[bytes | None, Exact]:
        """Return a value to set, and the amount of an adjust after it, that make this property where it has no totals.

        The amount is 0 if the value alone is the exact sum, of the same kind.
        """
        kept = self.compact()
        return kept.plain, 0 if kept.plain is None else kept.shift

    def create(self) -> Adjusted:
        """Return an absent property after the first part of its first adjust: it is 0."""
        return Adjusted(exact.ZERO, self.sum, self.totals, created=True)

    def adjust(self, slot: int, by: Exact) -> Adjusted:
        """Return the property after an adjust of an existing number, or of an absent property, through a slot."""
        start = self.create() if self.plain is None else self
        totals = {**self.totals, slot: self.totals.get(slot, 0) + by}
        return Adjusted(start.plain, start.seen, totals, start.created)

    def encode_base(self) -> bytes:
        """Return the bytes of the property's own column."""
        if self.plain is None:
            return values.TOMBSTONE
        if not self.seen and not self.created:
            return self.plain
        seen = exact.encode(self.seen)
        return (_CREATED if self.created else _SET) + _LENGTH.pack(len(seen)) + seen + self.plain


def is_relative(base: bytes) -> bool:
    """Return whether the bytes of a property's own column are more than a plain value."""
    return base[:1] in (_SET, _CREATED)


def is_created(base: bytes) -> bool:
    """Return whether the first adjust of an absent property wrote these bytes."""
    return base[:1] == _CREATED


def decode_base(data: bytes) -> Adjusted:
    """Decode the bytes of a property's own column, without totals; raise FormatError if they are damaged."""
    if data == values.TOMBSTONE:
        return Adjusted(None)
    if not is_relative(data):
        return Adjusted(data)
    try:
        end = 1 + _LENGTH.size + _LENGTH.unpack_from(data, 1)[0]
        seen = exact.decode(data[1 + _LENGTH.size : end])
        plain = data[end:]
        if exact.of_value(plain) is None:
            raise FormatError("the value that was set is not a number")
    except (struct.error, FormatError) as error:
        raise FormatError(
            f"the stored property value {limits.shown(data[:40])} cannot be decoded ({error}); it is damaged or was written "
            "by a newer version of hbasemk"
        ) from error
    return Adjusted(plain, seen, created=is_created(data))


def slot_of(qualifier: bytes) -> int:
    """Return the number of a slot in its column: machine id << 16 | slot number."""
    return int.from_bytes(qualifier[1:5], "big")


def values_of(path: str, bases: Iterable[tuple[bytes, bytes]], slots: Iterable[Cell], life: int) -> dict[str, bytes]:
    """Return the values of the adjusted properties of a node by name, from visible cells.

    A read needs only the values, and a property may have many slots. Arguments and errors are those of :func:`of_columns`;
    a damaged value that was set also raises FormatError with its location.
    """
    sums: dict[bytes, Exact] = {}
    # The sum of the slots since the name changed: most nodes have one such property.
    total: Exact = 0
    last: bytes | None = None
    number, head = int.from_bytes, schema.SLOT_HEAD
    for _, qualifier, at, value in slots:
        if at < life:
            continue
        name = qualifier[head:]
        if name != last:
            if last is not None:
                sums[last] = sums.get(last, 0) + total
            last, total = name, 0
        # Nearly all are integers.
        if len(value) > 1 and value[0] == _INTEGER:
            total += number(value[1:], "big", signed=True)
        elif value != values.TOMBSTONE:
            total += _located(path, qualifier, exact.decode, value)
    if last is not None:
        sums[last] = sums.get(last, 0) + total
    found: dict[str, bytes] = {}
    for qualifier, value in bases:
        by = sums.pop(qualifier[1:], 0)
        if by or is_relative(value):
            plain = _located(path, qualifier, partial(_value, by), value)
            if plain is not None:
                found[schema.property_name(qualifier)] = plain
    if sums:
        # There are no such properties, but a name may be damaged.
        for _, qualifier, at, value in slots:
            if at >= life and value != values.TOMBSTONE and qualifier[schema.SLOT_HEAD :] in sums:
                _located(path, qualifier, _name, qualifier)
    return found


def of_columns(
    path: str, bases: Iterable[tuple[bytes, bytes]], slots: Iterable[Cell], life: int
) -> dict[str, Adjusted]:
    """Return the adjusted properties of a node by name, from visible cells.

    ``bases`` are qualifiers and values of the properties' own columns in the node's life, which began at ``life``; ``slots``
    are the cells of slots in any life. Properties that are plain and have no slot are left out. Raises FormatError, with the
    location, for damaged totals and bases.
    """
    totals: dict[bytes, dict[int, Exact]] = {}
    for _, qualifier, at, value in slots:
        if at >= life and value != values.TOMBSTONE:
            of_name = totals.setdefault(qualifier[schema.SLOT_HEAD :], {})
            of_name[slot_of(qualifier)] = _located(path, qualifier, exact.decode, value)
    found: dict[str, Adjusted] = {}
    for qualifier, value in bases:
        of_base = totals.pop(qualifier[1:], None) if totals else None
        if is_relative(value):
            found[schema.property_name(qualifier)] = _located(path, qualifier, decode_base, value)._replace(
                totals=of_base or {}
            )
        elif of_base is not None:
            found[schema.property_name(qualifier)] = Adjusted(value, 0, of_base)
    for encoded, of_name in totals.items():
        qualifier = b"\x02" + next(iter(of_name)).to_bytes(4, "big") + encoded
        found[_located(path, qualifier, _name, qualifier)] = Adjusted(None, 0, of_name)
    return found


def _value(by: Exact, base: bytes) -> bytes | None:
    """Return the value of a property after adjusts by ``by``."""
    return decode_base(base).value(by)


def _name(qualifier: bytes) -> str:
    try:
        return schema.name_of((schema.DATA, qualifier))
    except FormatError as error:
        raise FormatError("the name is not UTF-8") from error


def _located(path: str, qualifier: bytes, decode: Callable[[bytes], T], data: bytes) -> T:
    """Decode a part of a cell; raise FormatError with its location if it is damaged."""
    try:
        return decode(data)
    except FormatError as error:
        raise schema.damaged(error.message, schema.NODES, paths.key(path), (schema.DATA, qualifier)) from error

"""The schema number of the application, which the settings row keeps beside the settings (``docs/guide.md``).

The library gives it no meaning. A process may accept only some numbers. Its lease reads the number at each claim and each
renewal, so the process stops committing soon after the number has changed. In a store with transactions, a commit also reads
the number in its transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias, Union

from hbasemk.errors import SchemaVersionError
from hbasemk.format import schema
from hbasemk.format.limits import shown
from hbasemk.store.abc import Get, NewCell, Row, Store

Accepted: TypeAlias = Union[int, range]  # noqa: UP007 - evaluated at run time on 3.10
"""The number that a process accepts, or several."""
LARGEST: Final = 2**63 - 1
_CELL: Final = Get(schema.SETTINGS_ROW, columns=(schema.SCHEMA_VERSION,))
_CREATED: Final = bytes(16)
"""The nonce of a new repository's number. Other processes do not write such a number, because all other nonces are random."""


def encode(number: int, nonce: bytes) -> bytes:
    """Return the bytes of the cell; the ``nonce`` shows its writer, after a lost reply, that the cell is its own."""
    return b"%d %s" % (number, nonce.hex().encode())


def decode(data: bytes) -> int:
    """Parse the cell; raise FormatError if it is damaged."""
    digits, space, _ = data.partition(b" ")
    if not space or not digits.isdigit() or len(digits) > len(str(LARGEST)) or int(digits) > LARGEST:
        problem = f"the schema number must be digits, at most {LARGEST}, a space and a nonce, got {shown(data[:60])}"
        raise schema.damaged(problem, schema.CLUSTER, schema.SETTINGS_ROW, schema.SCHEMA_VERSION)
    return int(digits)


def of_row(row: Row) -> int:
    """Return the number in the settings row; 0 if nobody has set it."""
    return next((decode(cell.value) for cell in row.cells if cell.qualifier == schema.SCHEMA_VERSION[1]), 0)


def stored(store: Store) -> bytes | None:
    """Return the bytes of the cell, None if there is none. One round trip."""
    row = store.read(schema.CLUSTER, [_CELL])[0]
    return next((cell.value for cell in row.cells), None)


def read(store: Store) -> int:
    """Return the number; 0 if nobody has set it. One round trip."""
    data = stored(store)
    return 0 if data is None else decode(data)


def accepts(accepted: Accepted | None, found: int) -> bool:
    """Return whether a process accepts the number that was found; None accepts all."""
    return accepted is None or (found == accepted if isinstance(accepted, int) else found in accepted)


def first_cells(accepted: Accepted | None, location: str) -> list[NewCell]:
    """Return the cell of the number with which a process creates a repository; no cell for the number 0.

    A process that accepts only one number creates the repository with it, any other process with 0. Raises SchemaVersionError if
    the process accepts several numbers without 0.
    """
    if accepted is None or accepts(accepted, 0):
        return []
    first, last = (accepted, accepted) if isinstance(accepted, int) else (accepted[0], accepted[-1])
    if first != last:
        raise SchemaVersionError(
            f"there is no repository at {location}. A new one begins with the schema number 0, and this process accepts "
            f"{_described(accepted)} (schema_version). Name one number, and connect creates the repository with it. Nothing was "
            "created.",
            found=0,
            expected=accepted,
        )
    return [NewCell(*schema.SCHEMA_VERSION, encode(first, _CREATED))]


def require(found: int, accepted: Accepted | None, location: str) -> None:
    """Raise SchemaVersionError unless a process accepts the number that was found."""
    if accepted is not None and not accepts(accepted, found):
        raise SchemaVersionError(
            f"the repository at {location} has the schema number {found}, and this process accepts "
            f"{_described(accepted)} (schema_version). "
            "Use the release of the application that fits, or migrate the repository. Nothing was committed.",
            found=found,
            expected=accepted,
        )


class NumberCheck:
    """Finds in a transaction whether a process accepts the present number.

    The store may call this several times; the last call counts.
    """

    def __init__(self, accepted: Accepted | None) -> None:
        self._accepted = accepted
        self._found: int | None = None
        self.rows: Final = () if accepted is None else ((schema.CLUSTER, _CELL),)
        """The additional rows that the transaction must read."""

    def __call__(self, rows: Sequence[Row]) -> bool:
        """Return whether the process accepts the number, by the rows that :attr:`rows` names."""
        for row in rows:
            self._found = of_row(row)
            return accepts(self._accepted, self._found)
        return True

    def require(self, location: str) -> None:
        """Raise SchemaVersionError if the process does not accept the number that was found."""
        if self._found is not None:
            require(self._found, self._accepted, location)


def _described(accepted: Accepted) -> str:
    if isinstance(accepted, range) and accepted.step == 1:
        return f"{accepted.start} to {accepted.stop - 1}"
    return str(accepted)

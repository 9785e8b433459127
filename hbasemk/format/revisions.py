"""Revision ids: their parts, text form and limits.

``id = ms << 24 | machine << 8 | counter``: 40 bits of ms since the repository's epoch, 16 bits of machine id, 8 bits
of counter. Ids are cell timestamps, and those are signed, so 39 bits of ms are usable. The counter's highest bit
marks a branch's private revisions (``docs/decisions/0002-branch-bit.md``).
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterable
from typing import Final

from hbasemk.errors import InvalidRevisionError, RevisionOverflowError
from hbasemk.format.limits import shown
from hbasemk.format.plural import counted

DEFAULT_EPOCH_MS: Final = 1_356_998_400_000
"""2013-01-01T00:00Z, in ms since 1970."""

MAX_MS: Final = 2**39 - 1
MAX_MACHINE: Final = 2**16 - 1
TRUNK_COUNTERS: Final = 128
"""Revisions of one machine in one ms: 128 on trunk and as many on branches."""
BRANCH_BIT: Final = 0x80
MAX_REVISION: Final = (MAX_MS << 24) | 0xFFFFFF - 1
TEXT_LENGTH: Final = 16
BYTES: Final = 8
"""The length of an id in :func:`to_bytes`."""
_TEXT: Final = re.compile(f"[0-9a-f]{{{TEXT_LENGTH}}}")


def pack(ms: int, machine: int, counter: int) -> int:
    """Return the id with these parts.

    Raises RevisionOverflowError if ``ms`` (since the repository's epoch) needs more than 39 bits.
    """
    if not 0 <= ms <= MAX_MS:
        raise RevisionOverflowError(
            f"{ms} ms since the repository's epoch do not fit a revision id (at most {MAX_MS}). The ids of this "
            "repository are used up, or a clock is wrong. Use `hbasemk export -f json` and `hbasemk import -f json` to copy "
            "the tree to a repository with a later epoch (`hbasemk init --epoch`)."
        )
    if not 0 <= machine <= MAX_MACHINE or not 0 <= counter <= 0xFF:
        raise InvalidRevisionError(
            f"machine must be from 0 to {MAX_MACHINE} and counter from 0 to 255, got {machine} and {counter}"
        )
    return ms << 24 | machine << 8 | counter


def ms_of(revision: int) -> int:
    """Return the ms since the repository's epoch."""
    return revision >> 24


def earlier(revision: int, ms: int) -> int:
    """Return the lowest id at the time ``ms`` before a revision, at least 0."""
    return max(ms_of(revision) - ms, 0) << 24


def later(revision: int, ms: int) -> int:
    """Return the lowest id at the time ``ms`` after a revision, at most the last time."""
    return min(ms_of(revision) + ms, MAX_MS) << 24


def machine_of(revision: int) -> int:
    """Return the machine id of the writer."""
    return revision >> 8 & 0xFFFF


def counter_of(revision: int) -> int:
    """Return the counter, including the branch bit."""
    return revision & 0xFF


def is_branch(revision: int) -> bool:
    """Return whether this is a branch's private revision, which no view of trunk contains."""
    return revision & BRANCH_BIT != 0


def to_text(revision: int) -> str:
    """Return the id as sixteen hexadecimal digits, which sort like the number."""
    return f"{revision:016x}"


def from_text(text: str) -> int:
    """Parse a revision id; raise InvalidRevisionError if ``text`` is not one."""
    try:
        if _TEXT.fullmatch(text) is None:
            raise ValueError
        revision = int(text, 16)
    except (ValueError, TypeError):
        raise InvalidRevisionError(
            f"{shown(text)} is not a revision id; expected {TEXT_LENGTH} lower-case hexadecimal digits"
        ) from None
    if revision > MAX_REVISION:
        raise InvalidRevisionError(
            f"{text!r} is greater than any revision id; expected at most {to_text(MAX_REVISION)}"
        )
    return revision


def to_bytes(ids: Iterable[int]) -> bytes:
    """Return ids as bytes, :data:`BYTES` for each."""
    listed = tuple(ids)
    return struct.pack(f">{len(listed)}Q", *listed)


def from_bytes(data: bytes) -> tuple[int, ...]:
    """Return the ids of :func:`to_bytes`; raise ValueError if the bytes are not revision ids."""
    if len(data) % BYTES:
        raise ValueError(f"{counted(len(data), 'byte')} {'is' if len(data) == 1 else 'are'} not a multiple of {BYTES}")
    ids = struct.unpack(f">{len(data) // BYTES}Q", data)
    if ids and max(ids) > MAX_REVISION:
        raise ValueError(f"{max(ids)} is greater than any revision id")
    return ids


def deflate(numbers: Iterable[int]) -> bytes:
    """Return numbers as bytes, 8 for each, deflated in the zlib format."""
    # A window of 4 KiB: the default one takes longer to allocate than a few hundred ids to deflate.
    deflating = zlib.compressobj(1, zlib.DEFLATED, 12, 6)
    return deflating.compress(to_bytes(numbers)) + deflating.flush()


def inflate(data: bytes) -> tuple[int, ...]:
    """Return the numbers of :func:`deflate`; raise ValueError if the bytes are damaged."""
    try:
        return from_bytes(zlib.decompress(data))
    except zlib.error as error:
        raise ValueError(str(error)) from error


def from_only(data: bytes) -> int:
    """Return the only id in some bytes; raise ValueError if they are not one."""
    (revision,) = from_bytes(data)
    return revision


def last_moment_ms(epoch_ms: int) -> int:
    """Return the last ms since 1970 at which a repository with this epoch can issue ids."""
    return epoch_ms + MAX_MS

"""How new tables lie in HBase: their compression, and the keys at which they are divided into regions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from hbasemk.errors import InvalidValueError

COMPRESSIONS: Final[Mapping[str, int]] = {
    "LZO": 0,
    "GZ": 1,
    "NONE": 2,
    "SNAPPY": 3,
    "LZ4": 4,
    "BZIP2": 5,
    "ZSTD": 6,
}
"""HBase's names of the codecs, and their numbers in the gateway's interface."""


@dataclass(frozen=True)
class Layout:
    """The compression of all families (None: no request), and for some tables the first keys of all regions but the first.

    ``names`` are the texts by which errors call these keys. Raises InvalidValueError for a codec that the gateway's interface
    does not have.
    """

    compression: str | None = None
    splits: Mapping[str, Sequence[bytes]] = field(default_factory=dict)
    names: Mapping[bytes, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.compression is not None and self.compression not in COMPRESSIONS:
            raise InvalidValueError(f"compression must be one of {', '.join(COMPRESSIONS)}, got {self.compression!r}")

"""What hbasemk accepts at most, in one place, and how an error message shows a value of any size.

Readers of text check these limits while they read, before they build anything from the part that is too large. The
limits hold for what is written. What an earlier version stored beyond them stays readable.
"""

from __future__ import annotations

import reprlib
from typing import Final

_LONGEST_SHOWN: Final = 80
_SHOWN_BITS: Final = 256


class _Short(reprlib.Repr):
    """Like ``repr``, but bounded in time and length: no huge int is converted, no deep list followed."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 3
        self.maxstring = self.maxother = self.maxlong = _LONGEST_SHOWN

    def repr_str(self, x: str, level: int) -> str:  # noqa: ARG002
        return repr(x) if len(x) <= _LONGEST_SHOWN else f"{x[: _LONGEST_SHOWN - 20]!r}… ({len(x)} characters)"

    def repr_bytes(self, x: bytes, level: int) -> str:  # noqa: ARG002
        return repr(x) if len(x) <= _LONGEST_SHOWN else f"{x[: _LONGEST_SHOWN - 20]!r}… ({len(x)} bytes)"

    def repr_int(self, x: int, level: int) -> str:  # noqa: ARG002
        return repr(x) if x.bit_length() <= _SHOWN_BITS else f"an int of {x.bit_length()} bits"


shown: Final = _Short().repr
"""The value for an error message, in some hundred characters at most."""

"""A temporary file whose errors name the folder that has no space left, or another problem."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from types import TracebackType
from typing import IO

from hbasemk.named_errors import naming


class TemporaryFile:
    """A file that is written once and then read. Use it as a context manager; its end removes the file.

    Up to ``in_memory`` bytes stay in memory. Each method raises an OSError that names the folder (``TMPDIR``).
    """

    def __init__(self, in_memory: int = 0) -> None:
        self._file: IO[bytes] | tempfile.SpooledTemporaryFile[bytes]
        if in_memory:
            self._file = tempfile.SpooledTemporaryFile(max_size=in_memory)  # noqa: SIM115 - it is closed by __exit__
        else:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 - it is closed by __exit__

    def write(self, data: bytes) -> None:
        """Append bytes."""
        with _named():
            self._file.write(data)

    def rewind(self) -> None:
        """Read from the beginning."""
        with _named():
            self._file.seek(0)

    def read(self, size: int) -> bytes:
        """Return the next bytes, at most ``size``; none at the end."""
        with _named():
            return self._file.read(size)

    def __enter__(self) -> TemporaryFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # It cannot flush what it could not write, but closes the file.
        with contextlib.suppress(OSError):
            self._file.close()


@contextlib.contextmanager
def _named() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise naming(error, f"a temporary file in {tempfile.gettempdir()} (TMPDIR)") from error

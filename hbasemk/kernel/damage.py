"""Damage in the tables that must stop only the work on what is damaged, not the work that comes after it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from hbasemk.errors import FormatError


class Damage:
    """Keeps the first error about damaged cells while work on other cells goes on; the caller raises it at the end."""

    def __init__(self) -> None:
        self._first: FormatError | None = None

    @contextmanager
    def kept(self, effect: str = "") -> Iterator[None]:
        """Keep a FormatError of the block. ``effect`` says what the damage prevents; it comes before the text of the error."""
        try:
            yield
        except FormatError as error:
            if self._first is None:
                self._first = FormatError(f"{effect}: {error}") if effect else error

    def report(self) -> None:
        """Raise the first error that was kept, if there is one."""
        if self._first is not None:
            raise self._first

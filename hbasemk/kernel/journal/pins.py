"""The pins of the views in use, by position in the sequence."""

from __future__ import annotations

from typing import Final
from weakref import ref

from hbasemk.kernel.journal.view import Pin

FEW: Final = 64
"""So many references to pins are kept before the first look for dead ones."""


class Pins:
    """Finds the pin of each position that a view in use has. The caller excludes other threads.

    The references have no callbacks. Python drops an exception that a callback raises. So an interrupt such as Ctrl-C would be
    lost if it arrived in the callback of a ``WeakValueDictionary``, which is Python code.
    """

    def __init__(self) -> None:
        self._references: dict[int, ref[Pin]] = {}
        self._look_at = FEW

    def at(self, position: int) -> Pin:
        """Return the pin of a position, a new one if no view has it."""
        reference = self._references.get(position)
        pin = None if reference is None else reference()
        if pin is None:
            if len(self._references) >= self._look_at:
                self._references = {at: one for at, one in self._references.items() if one() is not None}
                self._look_at = max(FEW, 2 * len(self._references))
            pin = Pin()
            self._references[position] = ref(pin)
        return pin

    def before(self, end: int) -> dict[int, Pin]:
        """Return the pins in use of all positions before one."""
        found = ((at, reference()) for at, reference in self._references.items() if at < end)
        return {at: pin for at, pin in found if pin is not None}

    def drop_before(self, end: int) -> None:
        """Forget the pins of all positions before one."""
        self._references = {at: reference for at, reference in self._references.items() if at >= end}

"""The image of an object and of everything that it refers to: two objects with equal images behave in the same way.

An image shows values, the order in dictionaries and sets, which references lead to the same object, code with the variables
that it has taken along, and states of random generators. It leaves out only what a call cannot depend on: which thread has
a free lock, and where an exception was raised. ``pickle`` makes it, and raises TypeError for an object that it does not know.
"""

from __future__ import annotations

import io
import pickle
import threading
from collections.abc import Iterable
from types import FunctionType, ModuleType
from typing import Any
from weakref import ReferenceType

LOCKS = (type(threading.Lock()), type(threading.RLock()))


def image_of(thing: object, shared: Iterable[object] = ()) -> bytes:
    """Return the image of an object; each of the ``shared`` objects, which never change, is only named in it."""
    written = io.BytesIO()
    _Pickler(written, shared).dump(thing)
    return written.getvalue()


def _rebuilt(*_: object) -> None:
    """Stand for the function that would rebuild an object; no image is read back."""


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, shared: Iterable[object]) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._names = {id(one): number for number, one in enumerate(shared)}

    def persistent_id(self, thing: object) -> int | None:
        """Return the name of a shared object."""
        return self._names.get(id(thing))

    def reducer_override(self, thing: Any) -> Any:
        """Describe the objects that ``pickle`` rejects. The state comes last, because the object may refer to itself."""
        kind = type(thing)
        if kind is FunctionType and "<" in thing.__qualname__:
            code = thing.__code__
            cells = [cell.cell_contents for cell in thing.__closure__ or ()]
            place = (code.co_filename, code.co_firstlineno, thing.__qualname__)
            return _rebuilt, place, (cells, thing.__defaults__, thing.__kwdefaults__, thing.__dict__)
        if kind in LOCKS:
            # "<locked ..." or "<unlocked ..."
            return _rebuilt, (repr(thing).split()[0],)
        if kind is ReferenceType:
            return _rebuilt, (thing.__callback__,), thing()
        if kind is ModuleType:
            return _rebuilt, (thing.__name__,)
        return NotImplemented

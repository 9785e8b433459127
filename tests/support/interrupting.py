"""Interrupts a piece of code at every point, one at a time, at which Python runs the handlers of signals.

That is after calls, at the beginning of functions and at the end of each turn of a loop. The handler of SIGINT is called
there in a trace function, so what replaces the handler for a while has the same effect as on a real signal.
"""

from __future__ import annotations

import dis
import os
import signal
import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

import hbasemk

Point = tuple[CodeType, int]
"""A piece of code and the offset in it of the instruction before which it is interrupted."""

PACKAGE = os.path.dirname(hbasemk.__file__)
LIBRARY = os.path.dirname(os.__file__)
TRACED = tuple(os.path.join(LIBRARY, name) for name in ("threading.py", "contextlib.py", "queue.py"))


class _Points:
    """The points of each piece of code."""

    def __init__(self) -> None:
        self._known: dict[CodeType, frozenset[int]] = {}

    def of(self, code: CodeType) -> frozenset[int]:
        found = self._known.get(code)
        if found is None:
            found = self._known[code] = frozenset(self._find(code))
        return found

    @staticmethod
    def _find(code: CodeType) -> list[int]:
        name = code.co_filename
        if not name.startswith((PACKAGE, *TRACED)) or "/testing/" in name or name.endswith("/interrupts.py"):
            return []
        found = []
        before: int | None = None
        for instruction in dis.get_instructions(code):
            # What is raised after a call is raised by the call: where a block of try or with ends right after it, a trace
            # function, which comes just before the next instruction, is too late.
            if before is not None and _handler(code, before) == _handler(code, instruction.offset):
                found.append(instruction.offset)
            kind = instruction.opname
            checks = kind == "RESUME" or kind.startswith(("CALL", "JUMP_BACKWARD", "JUMP_ABSOLUTE"))
            before = instruction.offset if checks else None
        return found


def _handler(code: CodeType, offset: int) -> int | None:
    """Where an exception goes that an instruction raises; before Python 3.11 blocks begin and end by instructions."""
    parse = getattr(dis, "_parse_exception_table", None)
    entries = [] if parse is None else parse(code)
    return next((entry.target for entry in entries if entry.start <= offset < entry.end), None)


_points = _Points()


def _trace(at: Callable[[FrameType], None]) -> Callable[[FrameType, str, Any], Any]:
    def local(frame: FrameType, event: str, argument: Any) -> Any:
        if event == "opcode" and frame.f_lasti in _points.of(frame.f_code):
            at(frame)
        return local

    def begin(frame: FrameType, event: str, argument: Any) -> Any:
        if not _points.of(frame.f_code):
            return None
        frame.f_trace_lines = False
        frame.f_trace_opcodes = True
        return local

    return begin


def points_of(call: Callable[[], object]) -> list[Point]:
    """Make a call; returns the points that it passes, each once."""
    met: dict[Point, None] = {}
    sys.settrace(_trace(lambda frame: met.setdefault((frame.f_code, frame.f_lasti))))
    try:
        call()
    finally:
        sys.settrace(None)
    return list(met)


def interrupted_at(point: Point, call: Callable[[], object]) -> bool:
    """Make a call and interrupt it at a point; returns whether that ended it. The call must be able to pass the point."""
    left = [point]

    def interrupt(frame: FrameType) -> None:
        if left and (frame.f_code, frame.f_lasti) == left[0]:
            left.clear()
            handler = signal.getsignal(signal.SIGINT)
            assert callable(handler)
            handler(signal.SIGINT, frame)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.settrace(_trace(interrupt))
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(None)
        signal.signal(signal.SIGINT, before)
    return False


def place(point: Point) -> str:
    """The file and line of a point."""
    code, offset = point
    line = None
    for start, number in dis.findlinestarts(code):
        if start > offset:
            break
        line = number
    return f"{os.path.relpath(code.co_filename, os.path.dirname(PACKAGE))}:{line} ({code.co_name}, {offset})"

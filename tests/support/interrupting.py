"""Interrupts a piece of code at every point, one at a time, at which Python runs the handlers of signals.

That is after calls, at the beginning of functions and at the end of each turn of a loop. The handler of SIGINT is called
there in a trace function, so what replaces the handler for a while has the same effect as on a real signal.

:func:`signals` sends real signals to another process instead.
"""

from __future__ import annotations

import dis
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import zip_longest
from types import CodeType, FrameType
from typing import Any

import hbasemk

Point = tuple[CodeType, int]
"""A piece of code and the offset in it of the instruction before which it is interrupted."""

SECONDS = float(os.environ.get("HBASEMK_INTERRUPT_SECONDS", "2.5"))
"""For each test of all points; 0: every point."""
PACKAGE = os.path.dirname(hbasemk.__file__)
LIBRARY = os.path.dirname(os.__file__)
TRACED = tuple(os.path.join(LIBRARY, name) for name in ("threading.py", "contextlib.py", "queue.py"))

HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM, signal.SIGUSR1)
"""The signals whose handlers raise an exception in the interrupted processes."""

WHEN_ARMED = f"""
import signal
armed = [False]
handled = {[int(number) for number in HANDLED]}
def handle(number, frame):
    # Python discards and prints an exception that a callback of a weak reference raises.
    if armed[0] and not frame.f_code.co_filename.endswith("weakref.py"):
        armed[0] = False
        raise KeyboardInterrupt
def install(handler):
    for number in handled:
        signal.signal(number, handler)
install(handle)
"""
"""Python code: from here on :data:`HANDLED` raise KeyboardInterrupt once, each time after the code has set ``armed[0]``."""


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
        if code.co_name == "__del__":
            # Python discards what is raised there.
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
            # Not a call: from Python 3.12 on, the end of a generator that is closed has one.
            checks = checks and not kind.startswith("CALL_INTRINSIC")
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
        # From Python 3.13 on, only a frame that has this already is traced by instructions.
        frame.f_trace = local
        frame.f_trace_opcodes = True
        return local

    return begin


def _allow_instructions() -> None:
    """Let the next trace function see instructions: Python 3.12 asks for this before it is set."""
    sys._getframe().f_trace_opcodes = True


def _anywhere(_: Point) -> bool:
    return True


def points_of(call: Callable[[], object], where: Callable[[Point], bool] = _anywhere) -> list[Point]:
    """Make a call; return the points that it passes, each once, as far as ``where`` selects them."""
    met: dict[Point, None] = {}
    _allow_instructions()
    sys.settrace(_trace(lambda frame: met.setdefault((frame.f_code, frame.f_lasti))))
    try:
        call()
    finally:
        sys.settrace(None)
    return list(filter(where, met))


def interrupted_at(point: Point, call: Callable[[], object]) -> bool:
    """Make a call and interrupt it at a point; return whether that ended it. The call must be able to pass the point."""
    left = [point]

    def interrupt(frame: FrameType) -> None:
        if left and (frame.f_code, frame.f_lasti) == left[0]:
            left.clear()
            handler = signal.getsignal(signal.SIGINT)
            assert callable(handler)
            handler(signal.SIGINT, frame)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    _allow_instructions()
    sys.settrace(_trace(interrupt))
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(None)
        signal.signal(signal.SIGINT, before)
    return False


@contextmanager
def signals(running: subprocess.Popen[str], chance: random.Random, longest_pause: float) -> Iterator[None]:
    """Send signals of :data:`HANDLED` to a process until the block ends, with random pauses of up to so many seconds."""
    over = threading.Event()

    def send() -> None:
        while not over.wait(chance.random() * longest_pause):
            running.send_signal(chance.choice(HANDLED))

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def place(point: Point) -> str:
    """Return the file and line of a point."""
    code, offset = point
    line = None
    for start, number in dis.findlinestarts(code):
        if start > offset:
            break
        line = number
    return f"{os.path.relpath(code.co_filename, os.path.dirname(PACKAGE))}:{line} ({code.co_name}, {offset})"


KEEPING = (
    "connections.py",
    *(
        f"sqlite/{name}.py"
        for name in ("connection", "database_file", "descriptors", "file_locks", "guard", "log_room", "log_size")
    ),
    *("client.py", "system.py", "wakeup.py", "threading.py"),
)
"""The ends of the paths of files whose code keeps locks, connections or threads."""


def keeps_something(point: Point) -> bool:
    return point[0].co_filename.endswith(KEEPING)


def in_files(*names: str) -> Callable[[Point], bool]:
    """Return a function that says whether a point is in one of these files."""
    return lambda point: point[0].co_filename.endswith(names)


def each_point(
    points: list[Point],
    test: Callable[[Point], None],
    critical: Callable[[Point], bool] = keeps_something,
    *,
    seconds: float = SECONDS,
) -> None:
    """Test points in a random order, as many as there is time for (0: all); every other one is critical."""
    seed = random.randrange(10**6)
    random.Random(seed).shuffle(points)
    first, rest = ([point for point in points if critical(point) is wanted] for wanted in (True, False))
    points = [point for pair in zip_longest(first, rest) for point in pair if point is not None]
    end = time.monotonic() + seconds
    done: list[Point] = []
    for point in points:
        if seconds and time.monotonic() > end:
            break
        done.append(point)
        try:
            test(point)
        except BaseException:
            print(f"interrupted at {place(point)}")
            raise
    lines = {place(point).partition(" ")[0] for point in points}
    covered = {place(point).partition(" ")[0] for point in done}
    print(f"seed {seed}: {len(done)} of {len(points)} points, {len(covered)} of {len(lines)} lines interrupted")


def measures_coverage(frame: FrameType | None) -> bool:
    """Return whether a frame runs inside the measurement of coverage, which an interrupt would leave locked."""
    while frame is not None:
        if f"{os.sep}coverage{os.sep}" in frame.f_code.co_filename:
            return True
        frame = frame.f_back
    return False

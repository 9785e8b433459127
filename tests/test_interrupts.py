"""Handlers of signals wait for the end of a piece of work, and none is lost or left replaced."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from hbasemk import interrupts, maintenance, system
from hbasemk.interrupts import NUMBERS, Deferred
from hbasemk.store import atfork
from hbasemk.wakeup import Bell, Bells

Handler = Callable[[int, FrameType | None], object]


@pytest.fixture(autouse=True)
def handlers_come_back() -> Iterator[None]:
    before = [(number, signal.getsignal(number)) for number in NUMBERS]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before:
        signal.signal(number, handler)


def raising(error: BaseException) -> Handler:
    def handle(number: int, frame: FrameType | None) -> None:
        raise error

    return handle


@pytest.mark.parametrize(
    "name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGALRM", "SIGVTALRM", "SIGUSR1", "SIGUSR2"]
)
def test_handler_waits_for_the_end_of_the_outermost_block(name: str) -> None:
    number = getattr(signal, name)
    handler = raising(TimeoutError())
    signal.signal(number, handler)
    done: list[int] = []
    with pytest.raises(TimeoutError), Deferred():
        with Deferred():
            signal.raise_signal(number)
            done.append(1)
        done.append(2)
    assert done == [1, 2]
    assert signal.getsignal(number) is handler


def test_handler_is_called_at_a_safe_point() -> None:
    with Deferred() as interrupts:
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            interrupts.deliver()
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            interrupts.deliver()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_signals_without_a_handler_keep_their_effect() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with Deferred():
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL
        signal.raise_signal(signal.SIGTERM)


def test_every_handler_is_called_although_one_raises() -> None:
    called: list[int] = []
    signal.signal(signal.SIGUSR1, raising(TimeoutError()))
    signal.signal(signal.SIGUSR2, raising(LookupError()))
    signal.signal(signal.SIGALRM, lambda number, frame: called.append(number))
    with pytest.raises(LookupError) as caught, Deferred():
        for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGALRM):
            signal.raise_signal(number)
        assert not called
    # As without the block, signals of one number that arrive together are one.
    assert called == [signal.SIGALRM]
    assert isinstance(caught.value.__context__, TimeoutError)


def test_handler_may_set_another_one() -> None:
    def once(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_IGN)

    signal.signal(signal.SIGTERM, once)
    with Deferred() as interrupts:
        signal.raise_signal(signal.SIGTERM)
        interrupts.deliver()
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN


def test_handlers_are_not_deferred_while_a_handler_runs() -> None:
    """It may wait for an alarm, or fork a child that must react to signals."""
    called: list[str] = []

    def first(number: int, frame: FrameType | None) -> None:
        signal.raise_signal(signal.SIGALRM)
        called.append("first")

    signal.signal(signal.SIGTERM, first)
    signal.signal(signal.SIGALRM, lambda number, frame: called.append("alarm"))
    with Deferred() as interrupts:
        signal.raise_signal(signal.SIGTERM)
        interrupts.deliver()
        assert called == ["alarm", "first"]
        signal.raise_signal(signal.SIGALRM)
        assert called == ["alarm", "first"]
    assert called == ["alarm", "first", "alarm"]


def test_an_inner_block_may_suspend_the_deferral() -> None:
    done: list[int] = []
    with pytest.raises(KeyboardInterrupt), Deferred() as interrupts:
        try:
            with interrupts.suspended():
                signal.raise_signal(signal.SIGINT)
                done.append(1)
        finally:
            signal.signal(signal.SIGTERM, raising(TimeoutError()))
            signal.raise_signal(signal.SIGINT)
            done.append(2)
    assert done == [2]


def test_the_handler_that_is_set_at_the_end_is_called() -> None:
    signal.signal(signal.SIGUSR1, lambda number, frame: signal.signal(signal.SIGTERM, signal.SIG_IGN))
    signal.signal(signal.SIGTERM, raising(TimeoutError()))
    with Deferred():
        signal.raise_signal(signal.SIGUSR1)
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN


def test_handler_that_outlives_its_block_is_the_one_it_had_replaced() -> None:
    """A handler keeps what it finds and sets it again later, as a timeout around a call may do."""
    signal.signal(signal.SIGTERM, raising(TimeoutError()))
    with Deferred():
        kept = signal.getsignal(signal.SIGTERM)
    signal.signal(signal.SIGTERM, kept)
    with pytest.raises(TimeoutError):
        signal.raise_signal(signal.SIGTERM)
    done = []
    with pytest.raises(TimeoutError), Deferred():
        signal.raise_signal(signal.SIGTERM)
        done.append(1)
    assert done


def test_no_signal_is_lost_while_handlers_are_exchanged() -> None:
    """Deliver a signal before each exchange of a handler, at the beginning and at the end of a block."""
    errors = {number: OSError(number) for number in NUMBERS}
    for number, error in errors.items():
        signal.signal(number, raising(error))
    for position in range(2 * len(NUMBERS)):
        for sent in NUMBERS:
            work = ExchangesInterrupted(position, sent)
            with pytest.raises(OSError) as caught:
                work.run()
            assert caught.value is errors[sent]
            # Whatever is left of the block does not defer.
            with pytest.raises(OSError) as caught:
                signal.raise_signal(sent)
            assert caught.value is errors[sent]
            with Deferred():
                pass


class ExchangesInterrupted:
    """Runs a block and delivers a signal before one of the exchanges of handlers, counted from 0."""

    def __init__(self, position: int, sent: int) -> None:
        self.position, self.sent = position, sent

    def run(self) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("hbasemk.interrupts.set_handler", self.exchange)
            with Deferred():
                pass

    def exchange(self, number: int, handler: Handler) -> None:
        if self.position == 0:
            signal.raise_signal(self.sent)
        self.position -= 1
        signal.signal(number, handler)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_child_of_another_thread_has_the_handlers_of_the_program() -> None:
    signal.signal(signal.SIGTERM, raising(TimeoutError()))
    found: list[int] = []

    def fork() -> None:
        child = os.fork()
        if not child:
            handlers = (signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM))
            os._exit(any(isinstance(getattr(handler, "__self__", None), Deferred) for handler in handlers))
        found.append(os.waitpid(child, 0)[1])

    with Deferred():
        thread = threading.Thread(target=fork)
        thread.start()
        thread.join()
    assert found == [0]


def locks() -> Bell:
    member: Any = Bell()
    system._locks.add(member)
    return member


def at_every_fork() -> Bell:
    member: Any = Bell()
    atfork._registered.add(member)
    return member


def open_repositories() -> Bell:
    member: Any = Bell()
    maintenance._live.add(member)
    return member


@pytest.mark.parametrize("make", [locks, at_every_fork, open_repositories, Bells().new_bell])
def test_no_python_code_runs_when_a_registered_object_is_freed(make: Callable[[], Bell]) -> None:
    """Python drops the exception of a handler that it calls in the callback of a weak reference, or in a finalizer."""
    members = [make()]
    called: list[str] = []
    # A collection of garbage could free other objects.
    gc.disable()
    try:
        sys.setprofile(lambda frame, event, _: called.append(frame.f_code.co_name) if event == "call" else None)
        members.clear()
    finally:
        sys.setprofile(None)
        gc.enable()
    assert called == []


def test_a_sub_interpreter_opens_and_commits(tmp_path: Path) -> None:
    """Servers such as mod_wsgi run applications in them. There, Python sets no handlers of signals."""
    pytest.importorskip("_xxsubinterpreters", reason="this version of Python has another module")
    work = (
        "import hbasemk\n"
        f"with hbasemk.connect('sqlite:///{tmp_path / 'content.db'}') as repo:\n"
        "    repo.run(lambda tx: tx.add('/a'))\n"
        "    print(repo.head.children('/'))\n"
    )
    program = f"import _xxsubinterpreters as s\ns.run_string(s.create(isolated=False), {work!r})"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert (ran.stdout, ran.stderr) == ("['a']\n", "")


def test_where_no_handler_can_be_set_nothing_is_deferred(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(number: int, handler: Handler) -> None:
        raise ValueError("signal only works in main thread of the main interpreter")

    before = signal.getsignal(signal.SIGINT)
    with monkeypatch.context() as patch:
        patch.setattr(interrupts, "set_handler", refuse)
        with Deferred() as outer, Deferred() as inner, inner.suspended():
            assert outer.arrived == inner.arrived == []
    assert signal.getsignal(signal.SIGINT) is before

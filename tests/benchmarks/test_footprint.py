"""What the scenarios of bytes measure."""

from __future__ import annotations

import os
from pathlib import Path
from typing import ClassVar

import pytest

from benchmarks.harness import Harness
from benchmarks.registry import Entry
from benchmarks.report import targets
from benchmarks.results import Run
from benchmarks.scenarios import footprint
from benchmarks.sizes import TINY
from benchmarks.system import System
from benchmarks.systems.hbasemk import EmbeddedHbasemk
from benchmarks.workers import Workers
from hbasemk.store.sqlite import log_room


class Recording(EmbeddedHbasemk):
    """hbasemk, which records the size of its log before each measured change of a property."""

    sizes: ClassVar[list[int]] = []

    def set(self, path: str, name: str, value: int | str) -> None:
        if isinstance(value, int) and value >= 0:
            self.sizes.append(os.path.getsize(f"{self.path}-wal"))
        super().set(path, name, value)


class Impossible(EmbeddedHbasemk):
    """A system that needs something that is not here."""

    @classmethod
    def create(cls, place: str) -> System:
        raise NotImplementedError(f"not at {place}")


def test_a_system_that_is_not_possible_here_is_left_out_of_the_memory(tmp_path: Path) -> None:
    run = Run("r", "sqlite", {})
    entry = Entry("hbasemk", "sqlite", "hbasemk", f"{__name__}:Impossible")
    with Harness(run, [entry], str(tmp_path), TINY) as harness:
        footprint.memory(harness)
    assert run.results == []
    assert run.environment["left_out"]["hbasemk"].startswith("not at ")


def test_bytes_are_counted_when_the_log_has_its_full_size(tmp_path: Path) -> None:
    pytest.importorskip("psutil")
    Recording.sizes.clear()
    run = Run("r", "sqlite", {})
    entry = Entry("hbasemk", "sqlite", "hbasemk", f"{__name__}:Recording")
    with Harness(run, [entry], str(tmp_path), TINY) as harness:
        footprint.bytes_transferred(harness)
    assert not [result for result in run.results if result.median is None], run.results
    # hbasemk fills a shorter log with zeros. The checkpoints for the bytes that are stored come later.
    assert min(Recording.sizes[: TINY.turns]) > log_room.MOST - 2 * log_room.ROOM


@pytest.mark.parametrize(("polls", "figure", "met"), [(0, None, None), (4, 1.5, False)])
def test_calls_per_poll_have_no_figure_without_polls(
    polls: int, figure: float | None, met: bool | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Workers, "run", lambda *_: [(polls, polls * 3 // 2, polls, 0.005)])
    run = Run("r", "sqlite", {})
    entry = Entry("hbasemk", "sqlite", "hbasemk", "benchmarks.systems.hbasemk:EmbeddedHbasemk")
    with Harness(run, [entry], str(tmp_path), TINY) as harness:
        harness.scenario = "idle"
        footprint.idle(harness)
    found = {result.operation: result for result in run.results}
    assert found["idle: polls per second"].median == polls
    assert found["idle: calls per poll"].median == figure
    assert found["idle: calls per poll"].note == ("" if polls else "no polls in 1 s")
    (target,) = [one for one in targets.evaluate([run]) if one.target == "an idle poll is one call"]
    assert target.met is met

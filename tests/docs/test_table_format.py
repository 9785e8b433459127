"""The reader on the page about the table format reads what the library reads, at every revision."""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import hbasemk
from hbasemk.repository import instance_of
from tests.support.examples import definitions
from tests.support.repositories import Checked
from tests.support.seeds import random_of_test

PAGE = Path(__file__).parents[2] / "docs" / "table-format.md"


@pytest.fixture
def reader() -> dict[str, Any]:
    """The functions that the page defines."""
    return definitions(PAGE)


HUGE = hbasemk.Json("1e999")
"""A number that cannot be adjusted. If it was set after adjusts, these do not count."""


def as_read(node: hbasemk.Node) -> dict[str, Any]:
    """Return the properties of a node as the documented reader does, which returns a Json as text."""
    return {name: HUGE.text if value == HUGE else value for name, value in node.items()}


def change(draw: random.Random) -> Callable[[hbasemk.Transaction], object]:
    """Return a change of a small tree that may have no effect."""
    path, other = (f"/{draw.choice('abc')}" for _ in range(2))
    value = draw.choice(["x", 1, -300, 2.5, True, False, b"\x00", ["a", -1, b""]])

    def apply(tx: hbasemk.Transaction) -> None:
        if not tx.exists(path):
            tx.add(path, {"p": value})
            tx.add(f"{path}/child")
        elif draw.random() < 0.3:
            tx.remove(path)
        elif not tx.exists(other) and draw.random() < 0.5:
            tx.copy(path, other)
        elif draw.random() < 0.3:
            name = draw.choice("rs")
            if draw.random() < 0.3 or tx.get(path, name) == HUGE:
                tx.set(path, name, draw.choice([5, 2.5, hbasemk.Json("7"), HUGE, None]))
            if tx.get(path, name) == HUGE:
                return
            tx.adjust(path, name, draw.choice([1, -3, 0.5, 2**70]))
        else:
            tx.set(path, draw.choice("pq"), None if draw.random() < 0.3 else value)

    return apply


def watermark(row: Any) -> int:
    """Return the revision of the watermark, by the page's own function."""
    return int.from_bytes(row("cluster", b"settings")[b"d:watermark"][0][1][:8], "big")


def wait_for_watermark(repo: hbasemk.Repository, row: Any) -> None:
    """Commit until the watermark has passed the present head; it stays a second of id time below the highest id."""
    head = int(repo.head.revision, 16)
    while watermark(row) < head:
        time.sleep(0.05)
        repo.run(lambda tx: tx.increment("/", "count"))
        instance_of(repo).recovery.advance()


def test_the_documented_reader_agrees_with_the_library(
    reader: dict[str, Any], tmp_path: Path, checked: Checked
) -> None:
    draw = random_of_test()
    file = tmp_path / "content.db"
    revisions = []
    below = 0
    settings = hbasemk.Settings(max_clock_skew_ms=1_000)
    with (
        hbasemk.connect(checked(f"sqlite:///{file}"), poll_interval=0, settings=settings) as repo,
        closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as db,
    ):
        row, committed = reader["on_sqlite"](db)
        for number in range(60):
            base = repo.head
            repo.run(change(draw))
            if draw.random() < 0.2:
                # A revision that loses is rolled back, and a branch's revision stays private.
                loser = repo.transaction(base=base)
                loser.add("/loser") if repo.head.get("/a") else loser.add("/loser", {"p": 1})
                loser.increment("/", "count")
                repo.run(lambda tx: tx.increment("/", "count"))
                with pytest.raises(hbasemk.ConflictError):
                    loser.commit()
                repo.branch().run(lambda tx: tx.set("/", "count", -1))
            if number == 40:
                wait_for_watermark(repo, row)
            revisions.append(repo.head.revision)
        for text in revisions:
            revision = int(text, 16)
            below += revision <= watermark(row)
            is_visible = reader["read_view"](row, committed, revision)
            snapshot = repo.at(text)
            for path in ["/", "/loser", *(f"/{name}{rest}" for name in "abc" for rest in ("", "/child"))]:
                node = snapshot.get(path)
                expected = None if node is None else (as_read(node), sorted(node.children))
                assert reader["read_node"](row, is_visible, path) == expected, (text, path)
    assert len(set(revisions)) > 20
    assert 0 < below < len(revisions)

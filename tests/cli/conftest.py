"""The command line on a repository."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hbasemk import connect
from tests.support.commands import Ran, Run, run_captured
from tests.support.hostile import Hostile
from tests.support.repositories import problems


@pytest.fixture
def run(url: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the command line in this process, on a repository that does not exist yet."""
    monkeypatch.setenv("HBASEMK_URL", url)
    monkeypatch.delenv("HBASEMK_DEBUG", raising=False)

    def call(*arguments: str) -> Ran:
        return Ran(*run_captured(capfd, *arguments))

    return call


@pytest.fixture
def tree(run: Run, url: str) -> None:
    """A repository with a few nodes."""
    with connect(url) as repository:
        with repository.transaction("the first") as tx:
            tx.add("/a", {"title": "A", "count": 3, "ratio": 0.5, "yes": True, "tags": ["x", "y"], "raw": b"\xff\n"})
            tx.add("/a/b", {"title": "B\n"})
            tx.add("/c")
        repository.run(lambda tx: tx.set("/a/b", "title", "two"), "the second")


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hostile]:
    made = Hostile(tmp_path_factory.mktemp("hostile") / "content.db")
    yield made
    with connect(made.url, create=False, poll_interval=0) as repository:
        assert problems(repository) == []

"""A repository, its export, and a new repository for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hbasemk import connect
from hbasemk.transfer.exporter import write_json
from tests.support.json_exports import damage_beside_blobs, tree, url_of


@pytest.fixture
def old(tmp_path: Path) -> Iterator[str]:
    """A repository with every kind of value."""
    made = url_of(tmp_path / "old.db")
    with connect(made, poll_interval=0) as repository:
        repository.run(tree)
    yield made
    assert damage_beside_blobs(made) == []


@pytest.fixture
def file(old: str, tmp_path: Path) -> Path:
    """The JSON export of that repository."""
    with connect(old, poll_interval=0) as repository:
        write_json(repository.refresh(), "/", tmp_path / "tree.json")
    return tmp_path / "tree.json"


@pytest.fixture
def new(tmp_path: Path) -> Iterator[str]:
    """The URL of a new repository; the integrity check runs at the end, without missing blobs: JSON contains no blobs."""
    made = url_of(tmp_path / "new.db")
    yield made
    assert damage_beside_blobs(made) == []

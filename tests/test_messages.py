"""The messages of errors show the ends of a very long path or name; the attributes have all of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hbasemk import HbasemkError, MicroKernel, Repository, Transaction, connect
from hbasemk.format import limits

PATH = "/a/" + "/".join(f"{number:09}" for number in range(900))
NAME = "n" * 9000
TOO_LONG = 700


def _change(change: Callable[[Transaction], object]) -> Callable[[Repository], object]:
    return lambda repo: repo.run(change)


CALLS: dict[str, Callable[[Repository], object]] = {
    "no node": lambda repo: repo.head[PATH],
    "no node in a transaction": _change(lambda tx: tx.set(PATH, "p", 1)),
    "removed node": _change(lambda tx: (tx.add(f"/a/{NAME}"), tx.remove(f"/a/{NAME}"), tx.set(f"/a/{NAME}", "p", 1))),
    "existing node": _change(lambda tx: (tx.add(f"/a/{NAME}"), tx.add(f"/a/{NAME}"))),
    "move into itself": _change(lambda tx: tx.move(f"/a/{NAME}", f"/a/{NAME}/x")),
    "name of a child": _change(lambda tx: (tx.add(f"/a/{NAME}"), tx.set("/a", NAME, 1))),
    "no property": lambda repo: repo.head["/a"][NAME],
    "no property in a transaction": _change(lambda tx: tx["/a", NAME]),
    "no number": _change(lambda tx: (tx.set("/a", NAME, "x"), tx.increment("/a", NAME, 1))),
    "version": _change(lambda tx: tx.remove(PATH, if_version="0" * 24)),
    "jsop": lambda repo: MicroKernel(repo).commit("/", f'-"{PATH}"'),
    "reserved name": lambda repo: MicroKernel(repo).commit("/", f'+"a/{NAME}":{{}} +"a/{NAME}/:hash":{{}}'),
    "too long": lambda repo: repo.head[f"/{'x' * 40_000}"],
    "too deep": _change(lambda tx: tx.add("/a" * 1001)),
}


@pytest.mark.parametrize("kind", CALLS)
def test_a_message_shows_the_ends_of_a_long_path_or_name(kind: str) -> None:
    with connect("memory://", poll_interval=0) as repo:
        repo.run(lambda tx: tx.add("/a"))
        with pytest.raises(HbasemkError) as caught:
            CALLS[kind](repo)
    assert len(str(caught.value)) < TOO_LONG
    assert "…" in str(caught.value)
    if kind == "no node":
        assert vars(caught.value)["path"] == PATH
        assert "/000000899 (9002 characters) in revision" in str(caught.value)


def test_a_conflict_shows_the_ends_of_a_long_path_and_column() -> None:
    with connect("memory://", poll_interval=0) as repo:
        repo.run(lambda tx: tx.add(f"/{NAME}"))
        base = repo.head
        repo.run(lambda tx: tx.set(f"/{NAME}", "m" * 9000, 1))
        with pytest.raises(HbasemkError) as caught, repo.transaction(base=base) as tx:
            tx.set(f"/{NAME}", "m" * 9000, 2)
    assert len(str(caught.value)) < TOO_LONG
    assert vars(caught.value)["path"] == f"/{NAME}"
    assert vars(caught.value)["column"] == f"property '{'m' * 9000}'"


def test_a_short_path_is_shown_as_it_is() -> None:
    for text in ("/a", "x" * 200):
        assert limits.shortened(text) == text
    assert limits.shortened("a" * 100 + "b" * 101) == f"{'a' * 90}…{'b' * 90} (201 characters)"

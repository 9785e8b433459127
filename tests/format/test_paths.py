"""Paths, names and row keys."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbasemk import InvalidPathError
from hbasemk.format import paths

NAMES = st.text(st.characters(codec=None, exclude_characters="/"), min_size=1, max_size=8).filter(
    lambda name: name not in {".", ".."}
)
PATHS = st.lists(NAMES, max_size=5).map(lambda names: "/" + "/".join(names))


@given(PATHS)
def test_row_key_is_depth_then_path_and_round_trips(path: str) -> None:
    key = paths.key(paths.check_path(path))
    assert int.from_bytes(key[:2], "big") == paths.depth(path)
    assert paths.path_of(key) == path


def test_the_keys_of_the_root_and_of_a_path() -> None:
    assert paths.key("/") == b"\x00\x00/"
    assert paths.key("/a/ü") == b"\x00\x02/a/\xc3\xbc"


@given(PATHS, PATHS, st.integers(1, 4))
def test_a_level_of_a_subtree_is_one_range_of_keys(top: str, other: str, level: int) -> None:
    start, stop = paths.level_range(top, level)
    inside = start <= paths.key(other) < stop
    assert inside == (paths.is_at_or_below(other, top) and paths.depth(other) == paths.depth(top) + level)


@given(PATHS, NAMES)
def test_join_parent_and_name_agree(path: str, name: str) -> None:
    child = paths.join(path, name)
    assert (paths.parent(child), paths.name(child)) == (path, name)


@given(PATHS, PATHS, PATHS)
def test_rebase_moves_a_subtree(source: str, target: str, tail: str) -> None:
    below = tail if source == "/" else source + ("" if tail == "/" else tail)
    moved = paths.rebase(below, source, target)
    assert paths.is_at_or_below(moved, target)
    assert paths.rebase(moved, target, source) == below


@pytest.mark.parametrize("path", ["", "a", "a/b", "/a/", "//", "/a//b", "/.", "/a/..", "/./a", None, 3])
def test_invalid_path_is_named_in_the_error(path: object) -> None:
    with pytest.raises(InvalidPathError, match=re.escape(f"{path!r} is not a valid path; ")):
        paths.check_path(path)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", None])
def test_invalid_name_is_rejected(name: object) -> None:
    with pytest.raises(InvalidPathError):
        paths.check_name(name)  # type: ignore[arg-type]


@pytest.mark.parametrize("path", ["/...", "/.a", "/a.", "/:hidden", "/ ", "/\x00", "/\ud800"])
def test_unusual_names_are_accepted(path: str) -> None:
    assert paths.path_of(paths.key(paths.check_path(path))) == path


def test_too_long_and_too_deep_paths_are_refused_before_anything_else() -> None:
    assert paths.check_path("/" + "x" * 32_764)
    with pytest.raises(InvalidPathError, match="at most"):
        paths.check_path("/" + "x" * 32_765)
    assert paths.check_path("/a" * 10_000)


def test_the_root_has_no_parent() -> None:
    with pytest.raises(InvalidPathError):
        paths.parent("/")


@given(st.lists(PATHS, max_size=4))
def test_paths_with_their_ancestors_come_once_each(touched: list[str]) -> None:
    expected = {paths.ancestor(path, level) for path in touched for level in range(paths.depth(path) + 1)}
    assert sorted(paths.with_ancestors(touched)) == sorted(expected)

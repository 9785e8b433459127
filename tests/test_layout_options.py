"""The options `splits` and `compression` of `connect`: wrong values are refused before anything is created."""

from __future__ import annotations

from pathlib import Path

import pytest

import hbasemk
from hbasemk import InvalidPathError, InvalidValueError, StoreNotAppliedError

NOWHERE = "hbase://127.0.0.1:9/?prefix=x_&timeout=1"


@pytest.mark.parametrize("options", [{"splits": ["/a"]}, {"compression": "GZ"}])
@pytest.mark.parametrize("url", ["memory://", "sqlite:///content.db"])
def test_other_stores_than_hbase_refuse_them(
    url: str, options: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidValueError, match="possible on HBase only; leave them out for"):
        hbasemk.connect(url, **options)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_codec_is_refused_with_the_possible_ones() -> None:
    with pytest.raises(InvalidValueError, match="compression must be one of LZO, GZ, NONE, .*, got 'ZIP'"):
        hbasemk.connect(NOWHERE, compression="zip")


def test_a_split_must_be_a_path() -> None:
    with pytest.raises(InvalidPathError, match="'users' is not a valid path"):
        hbasemk.connect(NOWHERE, splits=["users"])
    with pytest.raises(TypeError, match="splits must be a sequence of paths, got '/users'"):
        hbasemk.connect(NOWHERE, splits="/users")


def test_they_need_create() -> None:
    with pytest.raises(InvalidValueError, match="so create must be True, got False"):
        hbasemk.connect(NOWHERE, splits=["/users"], create=False)
    with pytest.raises(StoreNotAppliedError):
        hbasemk.connect(NOWHERE, splits=["/users"])

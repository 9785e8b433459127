"""Exported JSON holds the whole tree, with every type apart."""

from __future__ import annotations

import json
import math
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from hbasemk import BlobRef, Json, Transaction, connect
from hbasemk.format import limits
from hbasemk.transfer.exporter import write_json
from hbasemk.transfer.json.exporter import export_json
from tests.support.full_disk import largest_file
from tests.support.imports import changed


def as_json(url: str, path: str) -> Any:
    with connect(url) as repository:
        return json.loads("".join(export_json(repository.refresh(), path)))


def test_json_holds_the_whole_tree_with_names_in_order(url: str) -> None:
    def build(tx: Transaction) -> None:
        for path in ("/b", "/a", "/a/z", "/a/y", "/a/y/deep"):
            tx.add(path, {"zeta": 1, "alpha": path})

    changed(url, build)

    found = as_json(url, "/")

    def node(path: str, **children: Any) -> dict[str, Any]:
        return {"properties": {"alpha": path, "zeta": 1}, "children": children}

    wanted = {
        "properties": {},
        "children": {
            "a": node("/a", y=node("/a/y", deep=node("/a/y/deep")), z=node("/a/z")),
            "b": node("/b"),
        },
    }
    assert json.dumps(found) == json.dumps(wanted)


@pytest.mark.damages("it refers to a blob that nobody wrote")
def test_json_keeps_every_type_apart(url: str) -> None:
    values: dict[str, Any] = {
        "integer": 2**70,
        "float": 1.0,
        "true": True,
        "string": "42\n\u00e9\ud800",
        "list": [1, "1", 1.5],
        "bytes": b"\x00\xff",
        "blob": BlobRef("ab" * 32),
        "json": Json("1.10"),
        "nan": math.nan,
        "infinite": -math.inf,
    }
    changed(url, lambda tx: tx.add("/types", values))

    assert as_json(url, "/types") == {
        "properties": {
            **values,
            "bytes": {"$bytes": "AP8="},
            "blob": {"$blob": "ab" * 32},
            "json": 1.1,
            "nan": {"$float": "nan"},
            "infinite": {"$float": "-inf"},
        },
        "children": {},
    }
    assert isinstance(as_json(url, "/types")["properties"]["float"], float)


def test_json_of_a_deep_tree_needs_no_deep_stack(url: str) -> None:
    depth = limits.MAX_DEPTH

    def dig(tx: Transaction) -> None:
        path = ""
        for _ in range(depth):
            path += "/d"
            tx.add(path)

    changed(url, dig)

    with connect(url) as repository:
        text = "".join(export_json(repository.refresh(), "/"))
    assert text.count('"d": ') == depth
    assert text.count("{") == text.count("}")


@pytest.mark.parametrize("through_a_link", [False, True])
def test_json_is_written_into_a_pipe_which_stays(url: str, tmp_path: Path, through_a_link: bool) -> None:
    changed(url, lambda tx: tx.add("/a", {"n": 1}))
    pipe = target = tmp_path / "pipe"
    os.mkfifo(pipe)
    if through_a_link:
        target = tmp_path / "link"
        target.symlink_to(pipe)
    with ThreadPoolExecutor(1) as pool, connect(url) as repository:
        read = pool.submit(pipe.read_text)
        write_json(repository.refresh(), "/a", target)
        assert json.loads(read.result(60)) == {"properties": {"n": 1}, "children": {}}
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert target.is_symlink() == through_a_link


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_an_error_names_the_device(url: str) -> None:
    with connect(url) as repository, pytest.raises(OSError, match="No space left") as raised:
        write_json(repository.head, "/", Path("/dev/full"))
    assert raised.value.filename == "/dev/full"


def test_an_error_names_the_file_and_not_the_temporary_one(url: str, tmp_path: Path) -> None:
    changed(url, lambda tx: tx.add("/a", {"p": "x" * 3_000_000}))
    target = tmp_path / "out.json"
    with connect(url) as repository, largest_file(2_000_000), pytest.raises(OSError, match="too large") as raised:
        write_json(repository.head, "/", target)
    assert raised.value.filename == str(target)
    assert list(tmp_path.glob("*.json")) == list(tmp_path.glob(".hbasemk-*")) == []


def test_an_existing_file_keeps_a_mode_that_the_umask_forbids(url: str, tmp_path: Path) -> None:
    file = tmp_path / "tree.json"
    file.write_text("old")
    file.chmod(0o664)
    before = os.umask(0o077)
    try:
        with connect(url) as repository:
            write_json(repository.refresh(), "/", file)
            write_json(repository.refresh(), "/", tmp_path / "new.json")
    finally:
        os.umask(before)
    assert stat.S_IMODE(file.stat().st_mode) == 0o664
    assert stat.S_IMODE((tmp_path / "new.json").stat().st_mode) == 0o600

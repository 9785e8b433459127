"""What an import brought in, an export writes back; and never anywhere else."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hbasemk import BlobRef, Json, NodeNotFoundError, Transaction, connect
from hbasemk.kernel import limits
from hbasemk.transfer.exporter import Exported, export_files, export_json
from hbasemk.transfer.importer import Import
from tests.support.imports import SMALL, on_disk, write_files

AT = "/docs"


def exported(url: str, target: Path, path: str = AT) -> Exported:
    with connect(url) as repository:
        return export_files(repository.refresh(), path, target)


def changed(url: str, change: Callable[[Transaction], None]) -> None:
    with connect(url) as repository:
        repository.run(change)


def reasons(done: Exported) -> dict[str, str]:
    return dict(done.skipped)


def seen(top: Path) -> dict[str, tuple[Any, ...]]:
    """Content, mode and time of everything below a directory."""
    return {
        relative: (found, (status := os.lstat(top / relative)).st_mode, found[0] == "link" or status.st_mtime_ns)
        for relative, found in on_disk(top).items()
    }


def test_a_directory_of_texts_comes_back_as_it_was(url: str, tmp_path: Path) -> None:
    files = {name: data for name, data in SMALL.items() if name != "binary"}
    top = write_files(
        tmp_path / "docs", {**files, "crlf": b"a\r\nb\rc\n", "caf\udce9": b"odd name", "bom": b"\xef\xbb\xbfx"}
    )
    (top / "a/link").symlink_to("../readme.txt")
    (top / "away").symlink_to("/etc/hostname")
    (top / "readme.txt").chmod(0o600)
    (top / "a/b").chmod(0o555)
    os.utime(top / "a", ns=(5, 1_000_000_000_000_000_007))
    Import(url, str(top), AT, workers=1).run()

    done = exported(url, tmp_path / "out")

    assert done.skipped == []
    assert seen(tmp_path / "out") == seen(top)


def test_a_file_whose_content_was_not_kept_is_told_and_not_written(url: str, tmp_path: Path) -> None:
    top = write_files(tmp_path / "docs", SMALL)
    Import(url, str(top), AT, workers=1).run()

    done = exported(url, tmp_path / "out")

    assert list(reasons(done)) == [f"{AT}/binary"]
    assert not (tmp_path / "out/binary").exists()
    assert set(on_disk(tmp_path / "out")) == set(on_disk(top)) - {"binary"}


def test_files_that_are_there_are_replaced_and_others_stay(url: str, tmp_path: Path) -> None:
    top = write_files(tmp_path / "docs", {"one": b"new", "l": b""})
    (top / "link").symlink_to("one")
    Import(url, str(top), AT, workers=1).run()
    out = write_files(tmp_path / "out", {"one": b"old", "other": b"mine", "link": b"a file"})

    assert exported(url, out).skipped == []

    assert (out / "one").read_bytes() == b"new"
    assert (out / "other").read_bytes() == b"mine"
    assert os.readlink(out / "link") == "one"
    assert sorted(os.listdir(out)) == ["l", "link", "one", "other"]


def test_nothing_is_written_through_a_link_that_is_there(url: str, tmp_path: Path) -> None:
    top = write_files(tmp_path / "docs", {"d/inside": b"text", "f": b"text"})
    (top / "d").chmod(0o700)
    Import(url, str(top), AT, workers=1).run()
    outside = write_files(tmp_path / "outside", {"kept": b"kept"})
    outside.chmod(0o755)
    (tmp_path / "out").mkdir()
    (tmp_path / "out/d").symlink_to(outside)
    (tmp_path / "out/f").symlink_to(outside / "kept")
    before = seen(outside), outside.stat().st_mode, outside.stat().st_mtime_ns

    done = exported(url, tmp_path / "out")

    assert (seen(outside), outside.stat().st_mode, outside.stat().st_mtime_ns) == before
    assert set(reasons(done)) == {f"{AT}/d", f"{AT}/d/inside"}
    assert (tmp_path / "out/f").read_bytes() == b"text"
    assert not (tmp_path / "out/f").is_symlink()


def test_a_tree_cannot_make_a_link_and_write_through_it(url: str, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    with connect(url):
        pass

    def trap(tx: Transaction) -> None:
        tx.add(AT)
        tx.add(f"{AT}/way", {"kind": "link", "target": str(outside)})
        tx.add(f"{AT}/way/file", {"kind": "file", "text": "escaped"})
        tx.add(f"{AT}/way/deep", {"kind": "directory"})
        tx.add(f"{AT}/way/deep/file", {"kind": "file", "text": "escaped"})

    changed(url, trap)
    for _ in range(2):
        done = exported(url, tmp_path / "out")
        assert os.listdir(outside) == []
        assert f"{AT}/way/file" in reasons(done)
        assert f"{AT}/way/deep/file" in reasons(done)
        assert (tmp_path / "out/way").is_symlink()


def test_nodes_that_no_file_can_be_are_told_and_the_rest_is_written(url: str, tmp_path: Path) -> None:
    def odd(tx: Transaction) -> None:
        tx.add(AT)
        tx.add(f"{AT}/nul\0name", {"kind": "file", "text": ""})
        tx.add(f"{AT}/\ud800", {"kind": "file", "text": ""})
        tx.add(f"{AT}/{'x' * 300}", {"kind": "file", "text": ""})
        tx.add(f"{AT}/plain", {"title": "no file at all"})
        tx.add(f"{AT}/below", {"kind": "file", "text": "a file"})
        tx.add(f"{AT}/below/file", {"kind": "file", "text": "cannot be in a file"})
        tx.add(f"{AT}/taken", {"kind": "directory"})
        tx.add(f"{AT}/good", {"kind": "file", "text": "good"})
        tx.add(f"{AT}/loop", {"kind": "link", "target": ""})

    changed(url, odd)
    write_files(tmp_path / "out", {"taken": b"a file in the way"})

    done = exported(url, tmp_path / "out")

    assert set(reasons(done)) == {
        f"{AT}/nul\0name",
        f"{AT}/\ud800",
        f"{AT}/{'x' * 300}",
        f"{AT}/plain",
        f"{AT}/below/file",
        f"{AT}/taken",
        f"{AT}/loop",
    }
    assert (tmp_path / "out/good").read_text() == "good"
    assert sorted(os.listdir(tmp_path / "out")) == ["below", "good", "taken"]


def test_exporting_what_is_not_there_is_an_error(url: str, tmp_path: Path) -> None:
    with pytest.raises(NodeNotFoundError):
        exported(url, tmp_path / "out", "/nowhere")
    assert not (tmp_path / "out").exists()


# --- JSON -------------------------------------------------------------------------------------------------


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

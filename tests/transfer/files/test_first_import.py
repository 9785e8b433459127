"""The first import of a directory: names, metadata, links, targets, and what it leaves out."""

from __future__ import annotations

import hashlib
import os
import socket
from pathlib import Path

import pytest

from hbasemk import InvalidChangeError, InvalidPathError, InvalidValueError, Transaction, connect
from hbasemk.format import limits
from hbasemk.transfer.files import entries
from hbasemk.transfer.files.importer import Import
from tests.support.imports import AT, assert_imported, bring_in, changed, differences, in_tree, on_disk, write_files


def test_four_workers_import_a_directory_with_correct_totals(url: str, top: Path) -> None:
    result = bring_in(url, top, workers=4, batch=2)

    assert_imported(url, top)
    assert result.added == len(on_disk(top))
    assert result.changed == result.removed == 0
    assert result.skipped == []


def test_a_file_node_keeps_the_metadata_of_the_file(url: str, top: Path) -> None:
    os.utime(top / "readme.txt", ns=(1, 1_234_567_890_123_456_789))
    (top / "readme.txt").chmod(0o640)

    bring_in(url, top)

    with connect(url) as repository:
        node = repository.head[f"{AT}/readme.txt"]
        assert dict(node) == {
            ":kind": "file",
            ":name": "readme.txt",
            ":size": 6,
            ":mode": 0o640,
            ":mtime": 1_234_567_890_123_456_789,
            ":sha256": hashlib.sha256(b"Trees\n").hexdigest(),
            ":content": "Trees\n",
        }


def test_links_are_recorded_and_not_followed(url: str, top: Path) -> None:
    (top / "loop").symlink_to(".")
    (top / "a" / "gone").symlink_to("/nowhere/at/all")

    bring_in(url, top)

    assert in_tree(url, AT)["loop"] == ("link", ".")
    assert in_tree(url, AT)["a/gone"] == ("link", "/nowhere/at/all")
    assert_imported(url, top)


def test_odd_names_are_imported_exactly(url: str, tmp_path: Path) -> None:
    names = [
        b"caf\xe9 latin",
        "caf\u00e9".encode(),
        b" leading",
        b"trailing ",
        b"new\nline",
        b"tab\t",
        b"...",
        b"*?[x]",
        b"%2F",
        b":conflict",
        b"::conflict",
        b":",
        b"::",
        b":::",
        b":mode",
        b":hash",
        b":id",
        b":childNodeCount",
        b"\xff\xfe\x80",
        b"\xed\xa0\x80 surrogate",
        b"\x01\x1b[31m",
        b"\\",
        b"x" * 253,
        *(name.encode() for name in ("name", "mode", "mtime", "kind", "size", "sha256", "text", "content", "target")),
        *(name.encode() for name in ("nodes", "files", "links", "bytes", "directories")),
    ]
    top = os.fsencode(tmp_path / "odd")
    os.mkdir(top)
    for name in names:
        with open(os.path.join(top, name), "wb") as file:
            file.write(name)
        os.mkdir(os.path.join(top, name + b".d"))

    bring_in(url, tmp_path / "odd")

    assert_imported(url, tmp_path / "odd")
    with connect(url) as repository:
        assert {os.fsencode(name) for name in repository.head.children(AT)} == {
            (b":" if name.startswith(b":") else b"") + name for one in names for name in (one, one + b".d")
        }
    assert bring_in(url, tmp_path / "odd").changed == 0
    for name in names:
        os.rmdir(os.path.join(top, name + b".d"))
    assert bring_in(url, tmp_path / "odd").removed == len(names)
    assert_imported(url, tmp_path / "odd")


def test_an_entry_that_is_too_deep_is_reported_and_the_rest_is_imported(url: str, tmp_path: Path) -> None:
    top = write_files(tmp_path / "docs", {"file": b"text"})
    at = "/a" * (limits.MAX_DEPTH - 1)
    (top / "b/c/d").mkdir(parents=True)

    result = bring_in(url, top, at)

    assert sorted((one.relative, one.failed) for one in result.skipped) == [("b/c", True), ("b/c/d", True)]
    assert "levels" in result.skipped[0].reason
    assert set(in_tree(url, at)) == {"file", "b"}
    assert sum("levels" in one for one in differences(url, top, at)) == 2


def test_names_do_not_depend_on_the_locale(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    top = os.fsencode(tmp_path / "odd")
    os.mkdir(top)
    with open(os.path.join(top, "\u00e9".encode()), "wb"), open(os.path.join(top, b"\xe9"), "wb"):
        pass
    monkeypatch.setenv("PYTHONUTF8", "0")
    monkeypatch.setenv("PYTHONCOERCECLOCALE", "0")
    monkeypatch.setenv("LC_ALL", "C")

    bring_in(url, tmp_path / "odd")

    with connect(url) as repository:
        assert repository.head.children(AT) == ["\u00e9", "\udce9"]


def test_an_import_over_the_older_layout_is_rejected_with_an_explanation(url: str, top: Path) -> None:
    def older(tx: Transaction) -> None:
        tx.add(AT, dict.fromkeys(("nodes", "files", "directories", "links", "bytes"), 1))
        tx.add(f"{AT}/readme.txt", {"kind": "file", "name": "readme.txt", "text": "Trees\n"})

    with connect(url) as repository:
        repository.run(older)

    with pytest.raises(InvalidChangeError, match="an earlier version .*--at"):
        bring_in(url, top)

    with connect(url) as repository:
        assert repository.head.children(AT) == ["readme.txt"]


@pytest.mark.parametrize("at", ["/:conflict", "/a/:x/b", "/:"])
def test_nothing_is_imported_to_a_reserved_name(url: str, top: Path, at: str) -> None:
    with pytest.raises(InvalidPathError, match="reserved"):
        bring_in(url, top, at)


def test_a_directory_with_a_reserved_name_has_a_default_target(tmp_path: Path) -> None:
    for name in (b":conflict", b"caf\xe9", b"plain"):
        os.mkdir(os.path.join(os.fsencode(tmp_path), name))

    found = [
        entries.default_target(Path(os.fsdecode(name)))
        for name in sorted(os.scandir(os.fsencode(tmp_path)), key=lambda one: one.name)
    ]

    assert found == ["/::conflict", "/caf\udce9", "/plain"]


def test_special_files_are_skipped_and_reported(url: str, top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(top / "a" / "pipe")
    # The address of a socket must be short, and a test's directory may be long.
    monkeypatch.chdir(top)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")

    result = bring_in(url, top)

    assert sorted((one.relative, one.failed) for one in result.skipped) == [("a/pipe", False), ("socket", False)]
    assert differences(url, top, AT) == []


def test_excluded_names_and_paths_are_not_imported(url: str, top: Path) -> None:
    write_files(top, {"__pycache__/x.pyc": b"x", "a/__pycache__/y.pyc": b"y", "a/keep.pyc": b"z"})

    bring_in(url, top, exclude=["__pycache__", "a/b/*"])

    found = in_tree(url, AT)
    assert not any("__pycache__" in path for path in found)
    assert "a/b" in found
    assert "a/b/two.txt" not in found
    assert "a/keep.pyc" in found
    assert differences(url, top, AT, exclude=["__pycache__", "a/b/*"]) == []


def test_an_import_creates_missing_parent_nodes(url: str, top: Path) -> None:
    bring_in(url, top, "/deep/er/docs")

    assert_imported(url, top, "/deep/er/docs")


def test_an_import_at_the_root_counts_there(url: str, top: Path) -> None:
    bring_in(url, top, "/")
    bring_in(url, top, "/")

    assert_imported(url, top, "/")


def test_an_empty_directory_can_be_imported(url: str, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()

    bring_in(url, tmp_path / "docs")

    assert_imported(url, tmp_path / "docs")


def test_a_parent_directory_after_a_link_is_that_of_the_link_target(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The text sub/link/.. without its last two names is sub."""
    write_files(tmp_path, {"real/inner/file": b"1", "real/right": b"2", "sub/wrong": b"3"})
    (tmp_path / "sub/link").symlink_to("../real/inner")
    monkeypatch.chdir(tmp_path)

    bring_in(url, Path("sub/link/.."))

    assert_imported(url, tmp_path / "real")
    assert differences(url, Path("sub/link/.."), AT) == []


@pytest.mark.parametrize("url", ["memory://shared", "Memory://shared"])
def test_an_import_to_a_repository_in_memory_is_rejected(top: Path, url: str) -> None:
    with pytest.raises(InvalidValueError, match="memory"):
        bring_in(url, top)


def test_an_import_never_replaces_nodes_that_were_not_imported(url: str, top: Path) -> None:
    with connect(url) as repository, repository.transaction() as tx:
        tx.add(AT)
        tx.add(f"{AT}/precious", {"by": "hand"})

    with pytest.raises(InvalidChangeError, match=AT):
        bring_in(url, top)

    with connect(url) as repository:
        assert repository.head[f"{AT}/precious"]["by"] == "hand"


@pytest.mark.parametrize("below", ["", "/x/y"])
@pytest.mark.parametrize("name", ["readme.txt", "link"])
def test_an_import_to_a_file_or_link_or_below_it_is_rejected(url: str, top: Path, name: str, below: str) -> None:
    (top / "link").symlink_to("readme.txt")
    Import(url, str(top), AT, workers=1).run()
    kind = "link" if name == "link" else "file"

    with pytest.raises(InvalidChangeError, match=rf"^{AT}/{name} is a {kind}, .*--at"):
        Import(url, str(top), f"{AT}/{name}{below}", workers=1).run()

    with connect(url) as repository:
        assert repository.refresh().children(f"{AT}/{name}") == []


@pytest.mark.parametrize("name", ["new", "new/deeper", "a"])
def test_an_import_below_another_import_is_rejected(url: str, top: Path, name: str) -> None:
    Import(url, str(top), AT, workers=1).run()

    with pytest.raises(InvalidChangeError, match=f"below {AT}|belong to the import to {AT}"):
        Import(url, str(top), f"{AT}/{name}", workers=1).run()

    result = Import(url, str(top), AT, workers=1).run()
    assert (result.added, result.removed) == (0, 0)
    assert_imported(url, top)


def test_an_import_to_a_directory_of_an_import_says_to_which_import_its_children_belong(url: str, top: Path) -> None:
    Import(url, str(top), AT, workers=1).run()
    with connect(url) as repository:
        repository.run(lambda tx: tx.move(f"{AT}/a/b", "/moved"))

    with pytest.raises(InvalidChangeError, match=rf"{AT}/a has children that belong to the import to {AT}, "):
        Import(url, str(top), f"{AT}/a", workers=1).run()
    with pytest.raises(InvalidChangeError, match="/moved has children that no import to this node created, "):
        Import(url, str(top), "/moved", workers=1).run()


def test_an_import_names_one_removed_node_that_no_import_created(url: str, top: Path) -> None:
    """It said: removed 1 nodes."""
    Import(url, str(top), AT, workers=1).run()
    changed(url, lambda tx: tx.add(f"{AT}/mine", {"x": 1}))
    notes: list[str] = []
    Import(url, str(top), AT, workers=1, note=notes.append).run()
    assert notes == [f"removed 1 node that no import has created and that is not in the directory: {AT}/mine"]
    assert_imported(url, top)


def test_an_import_names_removed_nodes_that_no_import_created(url: str, top: Path) -> None:
    Import(url, str(top), AT, workers=1).run()

    def change(tx: Transaction) -> None:
        tx.add(f"{AT}/mine", {"x": 1})
        tx.add(f"{AT}/mine/too")
        tx.add(f"{AT}/z/new", {"x": 1})

    changed(url, change)
    (top / "z" / "new").write_text("a file now")
    notes: list[str] = []

    result = Import(url, str(top), AT, workers=1, note=notes.append).run()

    assert (result.added, result.changed, result.removed) == (0, 2, 2)
    assert notes == [
        f"removed 2 nodes that no import has created and that are not in the directory, the first one {AT}/mine"
    ]
    # The totals never counted these nodes.
    assert_imported(url, top)

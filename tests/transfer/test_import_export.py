"""An export writes back what an import stored, and never outside of its target."""

from __future__ import annotations

import os
import random
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hbasemk import Node, NodeNotFoundError, Transaction, connect
from hbasemk.transfer.exporter import Exported, export_files
from hbasemk.transfer.files.entries import TOTALS, Seen, node_path, properties, walk
from hbasemk.transfer.files.importer import Import
from hbasemk.transfer.files.reader import Files, ReaderJob
from tests.support.full_disk import no_space
from tests.support.imports import SMALL, changed, differences, on_disk, write_files

AT = "/docs"


def exported(url: str, target: Path, path: str = AT) -> Exported:
    with connect(url) as repository:
        return export_files(repository.refresh(), path, target)


def reasons(done: Exported) -> dict[str, str]:
    return dict(done.skipped)


def seen(top: Path) -> dict[str, tuple[Any, ...]]:
    """Return content, mode and time of every entry below a directory."""
    return {
        relative: (found, (status := os.lstat(top / relative)).st_mode, found[0] == "link" or status.st_mtime_ns)
        for relative, found in on_disk(top).items()
    }


def test_an_exported_directory_equals_the_imported_one(url: str, tmp_path: Path) -> None:
    rng = random.Random(seed := 5)
    print(f"seed {seed}")
    files = {
        "crlf": b"a\r\nb\rc\n",
        "caf\udce9": b"odd name",
        "bom": b"\xef\xbb\xbfx",
        "latin": b"caf\xe9",
        "nul": b"\0",
        "surrogate": b"\xed\xa0\x80",
        "at the limit": rng.randbytes(65536),
        "above the limit": rng.randbytes(65537),
        "long text": "\u00e9".encode() * 50_000,
        "several chunks": rng.randbytes(5_000_001),
        ":conflict": b"x",
        "::mode": b"x",
        "new\nline": b"x",
        **{f"names/{name}": b"x" for name in ("name", "mode", "mtime", "kind", "nodes", "files", "links", "bytes")},
        **dict.fromkeys(("name", "mode", "mtime", "kind", "nodes", "files", "links", "bytes", "directories"), b"x"),
    }
    top = write_files(tmp_path / "docs", {**SMALL, **files})
    (top / "a/link").symlink_to("../readme.txt")
    (top / "away").symlink_to("/etc/hostname")
    (top / "odd link").symlink_to("caf\udce9\n:x")
    (top / "readme.txt").chmod(0o600)
    (top / "binary").chmod(0o751)
    (top / "a/b").chmod(0o555)
    (top / "old").write_bytes(b"")
    os.utime(top / "old", ns=(5, -1_000_000_000_000_000_007))
    os.utime(top / "away", ns=(5, 7_000_000_007), follow_symlinks=False)
    os.utime(top / "a", ns=(5, 1_000_000_000_000_000_007))
    Import(url, str(top), AT, workers=1).run()

    done = exported(url, tmp_path / "out")

    assert (done.skipped, done.incomplete, done.masked) == ([], [], 0)
    assert seen(tmp_path / "out") == seen(top)
    assert differences(url, tmp_path / "out", AT) == []


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(
        st.binary(min_size=1, max_size=30)
        .map(lambda name: name.replace(b"/", b":").replace(b"\0", b":"))
        .filter(lambda name: name not in (b".", b"..")),
        st.binary(max_size=100),
        max_size=8,
    )
)
def test_any_names_and_contents_round_trip(tmp_path_factory: pytest.TempPathFactory, files: dict[bytes, bytes]) -> None:
    tmp_path = tmp_path_factory.mktemp("any")
    url = f"sqlite:///{tmp_path / 'content.db'}"
    top = os.fsencode(tmp_path / "docs")
    os.mkdir(top)
    for name, data in files.items():
        with open(os.path.join(top, name), "wb") as file:
            file.write(data)
    reader = Files(ReaderJob(url, os.fsdecode(top), 50))
    with connect(url, poll_interval=0) as repository:
        with repository.transaction() as tx:
            tx.add(AT, dict.fromkeys(TOTALS, 0))
            for entry in walk(os.fsdecode(top), (), lambda _: pytest.fail("skipped")):
                answer = reader.state(entry.relative, "all")
                assert isinstance(answer, Seen)
                kept = properties(entry.relative, answer)
                if answer.digest is None:
                    data = files[entry.relative.encode("utf-8", "surrogateescape")]
                    kept[":content"] = repository.blobs.write(data)
                tx.add(node_path(AT, entry.relative), kept)
        done = export_files(repository.head, AT, tmp_path / "out")
    assert done.skipped == []
    out = os.fsencode(tmp_path / "out")
    assert {one.name: Path(os.fsdecode(one.path)).read_bytes() for one in os.scandir(out)} == files


def test_a_file_without_stored_content_is_reported_and_not_written(url: str, tmp_path: Path) -> None:
    top = write_files(tmp_path / "docs", {**SMALL, "large": b"x" * 100})
    Import(url, str(top), AT, workers=1, limit=50, contents="small").run()

    done = exported(url, tmp_path / "out")

    assert list(reasons(done)) == [f"{AT}/large"]
    assert set(on_disk(tmp_path / "out")) == set(on_disk(top)) - {"large"}


def test_existing_files_are_replaced_and_others_stay(url: str, tmp_path: Path) -> None:
    top = write_files(tmp_path / "docs", {"one": b"new", "l": b""})
    (top / "link").symlink_to("one")
    Import(url, str(top), AT, workers=1).run()
    out = write_files(tmp_path / "out", {"one": b"old", "other": b"mine", "link": b"a file"})

    assert exported(url, out).skipped == []

    assert (out / "one").read_bytes() == b"new"
    assert (out / "other").read_bytes() == b"mine"
    assert os.readlink(out / "link") == "one"
    assert sorted(os.listdir(out)) == ["l", "link", "one", "other"]


def test_nothing_is_written_through_an_existing_link(url: str, tmp_path: Path) -> None:
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


def test_an_export_does_not_write_through_a_link_that_it_created(url: str, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    with connect(url):
        pass

    def trap(tx: Transaction) -> None:
        tx.add(AT)
        tx.add(f"{AT}/way", {":kind": "link", ":target": str(outside)})
        tx.add(f"{AT}/way/file", {":kind": "file", ":content": "escaped"})
        tx.add(f"{AT}/way/deep", {":kind": "directory"})
        tx.add(f"{AT}/way/deep/file", {":kind": "file", ":content": "escaped"})

    changed(url, trap)
    for _ in range(2):
        done = exported(url, tmp_path / "out")
        assert os.listdir(outside) == []
        assert f"{AT}/way/file" in reasons(done)
        assert f"{AT}/way/deep/file" in reasons(done)
        assert (tmp_path / "out/way").is_symlink()


def test_nodes_that_cannot_be_files_are_reported_and_the_rest_is_written(url: str, tmp_path: Path) -> None:
    def odd(tx: Transaction) -> None:
        tx.add(AT)
        tx.add(f"{AT}/nul\0name", {":kind": "file", ":content": ""})
        tx.add(f"{AT}/\ud800", {":kind": "file", ":content": ""})
        tx.add(f"{AT}/{'x' * 300}", {":kind": "file", ":content": ""})
        tx.add(f"{AT}/plain", {"title": "no file at all"})
        tx.add(f"{AT}/below", {":kind": "file", ":content": "a file"})
        tx.add(f"{AT}/below/file", {":kind": "file", ":content": "cannot be in a file"})
        tx.add(f"{AT}/taken", {":kind": "directory"})
        tx.add(f"{AT}/good", {":kind": "file", ":content": "good"})
        tx.add(f"{AT}/loop", {":kind": "link", ":target": ""})
        tx.add(f"{AT}/nul", {":kind": "link", ":target": "a\0b"})
        tx.add(f"{AT}/long", {":kind": "link", ":target": "x" * 5000})
        tx.add(f"{AT}/number", {":kind": "link", ":target": 5})
        tx.add(f"{AT}/surrogate", {":kind": "link", ":target": "\ud800"})
        tx.add(f"{AT}/without", {":kind": "link"})
        tx.add(f"{AT}/:conflict", {":kind": "file", ":content": "reserved"})
        tx.add(f"{AT}/::..", {":kind": "file", ":content": "an odd but possible name"})
        tx.add(f"{AT}/older", {"kind": "file", "text": "another layout"})
        tx.add(f"{AT}/five", {":kind": "file", ":content": 5})
        tx.add(f"{AT}/many", {":kind": "file", ":content": ["a", "b"]})

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
        *(f"{AT}/{name}" for name in ("loop", "nul", "long", "number", "surrogate", "without")),
        *(f"{AT}/{name}" for name in (":conflict", "older", "five", "many")),
    }
    assert "earlier version" in reasons(done)[f"{AT}/older"]
    assert (tmp_path / "out/good").read_text() == "good"
    assert sorted(os.listdir(tmp_path / "out")) == [":..", "below", "good", "taken"]


@pytest.mark.parametrize("mode", [-1, 2**70, 0o10000, "0644", 1.5, True, [0o644]])
def test_an_invalid_mode_is_reported_and_the_file_is_written(url: str, tmp_path: Path, mode: Any) -> None:
    def odd(tx: Transaction) -> None:
        tx.add(AT)
        tx.add(f"{AT}/file", {":kind": "file", ":content": "text", ":mode": mode, ":mtime": 5})
        tx.add(f"{AT}/folder", {":kind": "directory", ":mode": mode, ":mtime": 5})

    changed(url, odd)

    done = exported(url, tmp_path / "out")

    assert [path for path, _ in done.incomplete] == [f"{AT}/file", f"{AT}/folder"]
    assert all("mode" in reason for _, reason in done.incomplete)
    assert (tmp_path / "out/file").read_text() == "text"
    assert {(tmp_path / "out" / name).stat().st_mtime_ns for name in ("file", "folder")} == {5}
    assert (tmp_path / "out/file").stat().st_mode & 0o7000 == 0


@pytest.mark.parametrize("mtime", [2**101, -(2**101), "now", 1.5, False, 2**1000])
def test_an_invalid_time_is_reported_and_the_entry_is_written(url: str, tmp_path: Path, mtime: Any) -> None:
    def odd(tx: Transaction) -> None:
        tx.add(AT)
        tx.add(f"{AT}/file", {":kind": "file", ":content": "text", ":mode": 0o640, ":mtime": mtime})
        tx.add(f"{AT}/folder", {":kind": "directory", ":mode": 0o750, ":mtime": mtime})
        tx.add(f"{AT}/link", {":kind": "link", ":target": "file", ":mtime": mtime})

    changed(url, odd)

    done = exported(url, tmp_path / "out")

    assert sorted(path for path, _ in done.incomplete) == [f"{AT}/file", f"{AT}/folder", f"{AT}/link"]
    assert all("time" in reason and len(reason) < 200 for _, reason in done.incomplete)
    assert (tmp_path / "out/file").stat().st_mode & 0o7777 == 0o640
    assert (tmp_path / "out/folder").stat().st_mode & 0o7777 == 0o750
    assert os.readlink(tmp_path / "out/link") == "file"


@pytest.mark.parametrize("special", [False, True])
def test_special_mode_bits_are_set_only_on_request(url: str, tmp_path: Path, special: bool) -> None:
    top = write_files(tmp_path / "docs", {"tool": b"", "plain": b"", "shared/x": b""})
    (top / "tool").chmod(0o6755)
    (top / "shared").chmod(0o3775)
    Import(url, str(top), AT, workers=1).run()

    with connect(url) as repository:
        done = export_files(repository.refresh(), AT, tmp_path / "out", special_modes=special)

    assert (done.skipped, done.incomplete, done.masked) == ([], [], 0 if special else 2)
    modes = [(tmp_path / "out" / name).stat().st_mode & 0o7777 for name in ("tool", "shared")]
    assert modes == ([0o6755, 0o3775] if special else [0o755, 0o775])


def test_a_name_that_leads_out_of_the_folder_is_not_followed(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No commit can create such names, but a damaged or hostile store can hold them."""

    def plain(tx: Transaction) -> None:
        tx.add(AT)
        for name in ("up", "upup", "slash", "good"):
            tx.add(f"{AT}/{name}", {":kind": "file", ":content": name})

    changed(url, plain)
    forged = {"up": "..", "upup": "../outside", "slash": "/tmp/outside"}
    real = Node.name.fget  # type: ignore[attr-defined]
    monkeypatch.setattr(Node, "name", property(lambda node: forged.get(real(node), real(node))))

    done = exported(url, tmp_path / "deep/out")

    assert sorted(reasons(done)) == [f"{AT}/slash", f"{AT}/up", f"{AT}/upup"]
    assert os.listdir(tmp_path / "deep") == ["out"]
    assert os.listdir(tmp_path / "deep/out") == ["good"]


def test_a_directory_that_becomes_a_link_while_the_export_runs_is_not_followed(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    top = write_files(tmp_path / "docs", {"d/e/file": b"text", "f": b"text"})
    (top / "d/e").chmod(0o700)
    Import(url, str(top), AT, workers=1).run()
    outside = tmp_path / "outside"
    (outside / "e").mkdir(parents=True)
    outside.chmod(0o755)
    (outside / "e").chmod(0o755)
    real = os.mkdir

    def mkdir(name: Any, *arguments: Any, **options: Any) -> None:
        real(name, *arguments, **options)
        if name == b"e":
            (tmp_path / "out/d").rename(tmp_path / "moved")
            (tmp_path / "out/d").symlink_to(outside)

    monkeypatch.setattr(os, "mkdir", mkdir)
    done = exported(url, tmp_path / "out")

    assert os.listdir(outside / "e") == []
    assert (outside / "e").stat().st_mode & 0o777 == 0o755
    assert outside.stat().st_mode & 0o777 == 0o755
    assert list(reasons(done)) == [f"{AT}/d/e/file"]
    assert {path for path, _ in done.incomplete} >= {f"{AT}/d/e"}
    assert (tmp_path / "out/f").read_bytes() == b"text"


def test_no_file_of_the_repository_is_replaced(url: str, tmp_path: Path) -> None:
    top = write_files(
        tmp_path / "docs", {"content.db": b"trap", "content.db-wal": b"trap", "hard": b"trap", "other": b"x"}
    )
    Import(url, str(top), AT, workers=1).run()
    os.link(tmp_path / "content.db", tmp_path / "hard")

    with connect(url) as repository:
        done = export_files(repository.refresh(), AT, tmp_path)
        repository.run(lambda tx: tx.set("/", "still", "there"))

    assert set(reasons(done)) == {f"{AT}/content.db", f"{AT}/content.db-wal", f"{AT}/hard"}
    assert all("a file of this repository" in reason for reason in reasons(done).values())
    assert (tmp_path / "other").read_bytes() == b"x"
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".hbasemk")]


@pytest.mark.parametrize("there", ["nothing", "no folder either", "file", "folder", "link to outside"])
def test_a_single_file_becomes_the_target_or_an_entry_of_it(url: str, tmp_path: Path, there: str) -> None:
    top = write_files(tmp_path / "docs", {":odd": b"text"})
    (top / ":odd").chmod(0o640)
    Import(url, str(top), AT, workers=1).run()
    target = wanted = tmp_path / "out"
    if there == "no folder either":
        target = wanted = tmp_path / "far/away/out"
    elif there == "file":
        target.write_bytes(b"before")
    elif there == "folder":
        target.mkdir()
        wanted = target / ":odd"
    elif there == "link to outside":
        (tmp_path / "outside").write_bytes(b"kept")
        target.symlink_to("outside")

    done = exported(url, target, f"{AT}/::odd")

    assert (done.files, done.directories, done.skipped) == (1, 0, [])
    assert wanted.read_bytes() == b"text"
    assert not wanted.is_symlink()
    assert wanted.stat().st_mode & 0o777 == 0o640
    if there == "link to outside":
        assert (tmp_path / "outside").read_bytes() == b"kept"


def test_a_single_link_is_exported_and_a_special_node_is_reported(url: str, tmp_path: Path) -> None:
    changed(url, lambda tx: tx.add("/link", {":kind": "link", ":target": "to"}))
    changed(url, lambda tx: tx.add("/plain", {"title": "not an entry"}))

    assert exported(url, tmp_path / "out", "/link").links == 1
    assert os.readlink(tmp_path / "out") == "to"
    done = exported(url, tmp_path / "none", "/plain")
    assert "not a directory entry" in reasons(done)["/plain"]
    assert "`hbasemk export -f json` exports every node" in reasons(done)["/plain"]
    assert not (tmp_path / "none").exists()


def test_a_single_file_with_a_name_that_no_entry_has_is_reported(url: str, tmp_path: Path) -> None:
    Import(url, str(write_files(tmp_path / "docs", {"one": b"1"})), AT, workers=1).run()
    changed(url, lambda tx: tx.copy(f"{AT}/one", "/:odd"))
    out = tmp_path / "out"
    out.mkdir()

    done = exported(url, out, "/:odd")

    assert reasons(done) == {"/:odd": "it has a name that nothing on disk can have"}
    assert list(out.iterdir()) == []
    assert exported(url, tmp_path / "chosen", "/:odd").files == 1


@pytest.mark.parametrize("kind", ["file", "link"])
def test_nodes_below_a_single_entry_are_reported(url: str, tmp_path: Path, kind: str) -> None:
    top = write_files(tmp_path / "docs", {"file": b"1"})
    (top / "link").symlink_to("file")
    Import(url, str(top), AT, workers=1).run()

    def below(tx: Transaction) -> None:
        tx.add(f"{AT}/{kind}/extra")
        tx.add(f"{AT}/{kind}/extra/deeper")

    changed(url, below)

    done = exported(url, tmp_path / "out", f"{AT}/{kind}")

    assert done.files + done.links == 1
    assert done.skipped == exported(url, tmp_path / "whole").skipped
    assert reasons(done) == dict.fromkeys(
        (f"{AT}/{kind}/extra", f"{AT}/{kind}/extra/deeper"), "its parent is not exported as a directory"
    )


def test_a_directory_is_not_exported_to_the_path_of_a_file(url: str, tmp_path: Path) -> None:
    Import(url, str(write_files(tmp_path / "docs", {"one": b"1"})), AT, workers=1).run()
    (tmp_path / "file").write_bytes(b"kept")
    for target in ("file", "file/below"):
        with pytest.raises(NotADirectoryError) as raised:
            exported(url, tmp_path / target)
        assert raised.value.filename == str(tmp_path / "file")
        assert f"it is not a folder, so {AT} cannot be exported" in str(raised.value)
    assert (tmp_path / "file").read_bytes() == b"kept"


def test_exporting_a_missing_node_is_an_error(url: str, tmp_path: Path) -> None:
    with pytest.raises(NodeNotFoundError):
        exported(url, tmp_path / "out", "/nowhere")
    assert not (tmp_path / "out").exists()


def test_a_pipe_in_the_place_of_a_file_stays(url: str, tmp_path: Path) -> None:
    top = write_files(tmp_path / "docs", {"one": b"1", "two": b"2"})
    Import(url, str(top), AT, workers=1).run()
    out = write_files(tmp_path / "out", {})
    out.mkdir(exist_ok=True)
    os.mkfifo(out / "one")

    assert reasons(exported(url, out)) == {f"{AT}/one": "a device, a pipe or a socket has its path"}

    assert stat.S_ISFIFO((out / "one").stat().st_mode)
    assert sorted(os.listdir(out)) == ["one", "two"]


def test_an_error_names_the_file_that_cannot_be_written(url: str, tmp_path: Path) -> None:
    top = write_files(tmp_path / "in", {"folder/large": bytes(3_000_000)})
    Import(url, top, AT).run()
    target = tmp_path / "out"
    with no_space(), pytest.raises(OSError, match="No space left") as raised:
        exported(url, target)
    assert raised.value.filename == str(target / "folder" / "large")
    assert list((target / "folder").iterdir()) == []


def test_a_time_after_2262_is_written_back(url: str, tmp_path: Path) -> None:
    top = write_files(tmp_path / "in", {"file": b"x"})
    late = 10_413_792_000_123_456_789
    os.utime(top / "file", ns=(late, late))
    if os.stat(top / "file").st_mtime_ns != late:
        pytest.skip("the file system does not keep this time")
    Import(url, top, AT).run()
    assert exported(url, tmp_path / "out").incomplete == []
    assert os.stat(tmp_path / "out" / "file").st_mtime_ns == late


def test_two_names_of_nodes_are_never_one_name_on_disk(url: str, tmp_path: Path) -> None:
    # These lone surrogates spell the bytes of the other name.
    same = "\udcc3\udca9"
    with connect(url) as repository:
        repository.run(lambda tx: tx.add("/t", {":kind": "directory"}))
        for name, content in (("\u00e9", "one"), (same, "two")):
            repository.run(
                lambda tx, name=name, content=content: tx.add(f"/t/{name}", {":kind": "file", ":content": content})
            )
        done = export_files(repository.refresh(), "/t", tmp_path / "out")
    assert done.skipped == [(f"/t/{same}", "it has a name that nothing on disk can have")]
    assert [one.read_text() for one in (tmp_path / "out").iterdir()] == ["one"]

"""Repeated imports of a directory that changed, or of which some entries cannot be read."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from hbasemk import connect
from hbasemk.transfer.files.entries import Entry
from hbasemk.transfer.files.importer import Import
from hbasemk.transfer.files.worker import Batch, Report
from tests.support.imports import (
    AT,
    assert_imported,
    bring_in,
    deny_listing,
    differences,
    in_tree,
    many_files,
    on_disk,
    one_worker,
    write_files,
)


def test_a_second_import_of_the_same_directory_changes_nothing(url: str, top: Path) -> None:
    bring_in(url, top)
    with connect(url) as repository:
        before = repository.refresh().revision

    result = bring_in(url, top)

    with connect(url) as repository:
        assert repository.refresh().revision == before
    assert (result.added, result.changed, result.removed) == (0, 0, 0)


def test_a_second_import_applies_exactly_the_changes(url: str, top: Path) -> None:
    bring_in(url, top)
    write_files(top, {"readme.txt": b"a longer text\n", "new/file": b"new"})
    (top / "a" / "b" / "two.txt").unlink()
    (top / "z" / "last.txt").unlink()
    (top / "z").rmdir()

    result = bring_in(url, top)

    assert_imported(url, top)
    assert result.added == 2
    assert result.removed == 3
    # The file, and the directory b, whose time changed as well.
    assert result.changed == 2


def test_entries_that_change_their_kind_are_replaced(url: str, top: Path) -> None:
    (top / "was-directory").mkdir()
    write_files(top, {"was-directory/x/y": b"deep", "was-file": b"file"})
    (top / "was-link").symlink_to("readme.txt")
    bring_in(url, top)
    (top / "was-directory/x/y").unlink()
    (top / "was-directory/x").rmdir()
    (top / "was-directory").rmdir()
    (top / "was-file").unlink()
    (top / "was-link").unlink()
    write_files(top, {"was-directory": b"now a file", "was-file/x": b"below", "was-link": b"a file"})

    bring_in(url, top)

    assert_imported(url, top)


def test_properties_that_the_disk_does_not_have_are_removed(url: str, top: Path) -> None:
    bring_in(url, top)
    with connect(url) as repository:
        repository.run(lambda tx: tx.set(f"{AT}/readme.txt", "extra", 1))

    bring_in(url, top)

    assert_imported(url, top)


def test_nodes_of_entries_that_are_excluded_now_are_removed(url: str, top: Path) -> None:
    bring_in(url, top)

    result = bring_in(url, top, exclude=["b", "z/*.txt"])

    removed = {"a/b", "a/b/two.txt", "a/b/c", "a/b/c/three.txt", "z/last.txt"}
    assert (result.added, result.changed, result.removed) == (0, 0, len(removed))
    assert set(in_tree(url, AT)) == set(on_disk(top)) - removed
    assert differences(url, top, AT, exclude=["b", "z/*.txt"]) == []


def test_a_missing_directory_leaves_the_earlier_import_unchanged(url: str, top: Path, tmp_path: Path) -> None:
    bring_in(url, top)
    before = in_tree(url, AT)
    top.rename(tmp_path / "elsewhere")

    with pytest.raises(OSError, match="docs"):
        bring_in(url, top)

    assert in_tree(url, AT) == before


def test_a_subdirectory_that_cannot_be_listed_keeps_its_nodes_and_is_reported(
    url: str, top: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bring_in(url, top)
    before = in_tree(url, AT)
    deny_listing(monkeypatch, b"/a/b")

    result = bring_in(url, top)

    assert [(one.relative, one.failed) for one in result.skipped] == [("a/b", True)]
    assert in_tree(url, AT) == before


def test_a_file_that_cannot_be_read_is_reported_and_keeps_its_node(url: str, top: Path) -> None:
    bring_in(url, top)
    before = in_tree(url, AT)
    shutil.rmtree(top / "a")
    (top / "a").symlink_to("a")

    with one_worker(url, top) as worker:
        report = worker.do(Batch(0, entries=[Entry("a/one.txt", "file"), Entry("empty", "file")]))

    assert [(one.relative, one.failed) for one in report.skipped] == [("a/one.txt", True)]
    assert report.handled == 2
    assert in_tree(url, AT) == before


def test_a_file_whose_directory_vanished_and_reappeared_is_counted_and_left_to_the_next_import(
    url: str, top: Path
) -> None:
    """The import does not find the directory, so it has no node."""
    bring_in(url, top)
    write_files(top, {"back/again/file": b"text", "other": b"text"})

    with one_worker(url, top) as worker:
        batch = [Entry("back/again", "directory"), Entry("back/again/file", "file"), Entry("other", "file")]
        report = worker.do(Batch(0, entries=batch))

    assert [(one.relative, one.failed, one.vanished) for one in report.skipped] == [
        ("back/again", False, True),
        ("back/again/file", False, True),
    ]
    assert report.added == 1
    bring_in(url, top)
    assert_imported(url, top)


def test_a_worker_removes_nodes_that_others_have_just_committed(url: str, top: Path) -> None:
    bring_in(url, top)
    before = in_tree(url, AT)
    added = [f"{AT}/late-{number}" for number in range(20)]
    with one_worker(url, top) as worker, connect(url, poll_interval=0) as other:
        reports = []
        for path in added:
            with other.transaction() as tx:
                tx.add(path, {":kind": "directory"})
            # At this moment the worker's background poll has hardly seen the commit.
            reports.append(worker.do(Batch(0, to_remove=[path])))

    assert [report.removed for report in reports] == [1] * len(added)
    assert in_tree(url, AT) == before


def test_entries_that_vanish_during_the_import_are_counted_and_not_failures(url: str, tmp_path: Path) -> None:
    top = many_files(tmp_path / "docs", 60, per_directory=10)
    gone = [path for path in on_disk(top) if path.startswith("d003")]

    def vanish(report: Report, total: int) -> None:
        shutil.rmtree(top / "d003", ignore_errors=True)

    result = Import(url, str(top), AT, workers=1, batch=3, on_report=vanish).run()

    assert not any(one.failed for one in result.skipped)
    assert {one.relative for one in result.skipped if one.vanished} <= {*gone}
    assert any(one.vanished for one in result.skipped)
    assert_imported(url, top)


def test_a_file_that_vanishes_before_it_is_read_is_not_a_failure(url: str, top: Path) -> None:
    bring_in(url, top)

    with one_worker(url, top) as worker:
        report = worker.do(Batch(0, entries=[Entry("temporary", "file"), Entry("readme.txt/was/a/directory", "file")]))

    assert [(one.relative, one.failed) for one in report.skipped] == [
        ("temporary", False),
        ("readme.txt/was/a/directory", False),
    ]

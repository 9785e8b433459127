"""The verification after an import finds every difference from the directory."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from hbasemk import Transaction, connect
from hbasemk.transfer.files import verify
from hbasemk.transfer.files.importer import Import
from tests.support.imports import SMALL, deny_listing, differences, write_files

AT = "/docs"
EXCLUDED = ("*.log",)


@pytest.fixture
def top(tmp_path: Path) -> Path:
    return write_files(
        tmp_path / "docs", {**SMALL, "left.log": b"out", "large": b"x" * 100_000, "larger": b"x" * 100_001}
    )


@pytest.fixture
def url(url: str, top: Path) -> str:
    Import(url, str(top), AT, workers=1, exclude=EXCLUDED).run()
    return url


def tampered(url: str, change: Callable[[Transaction], None]) -> None:
    with connect(url) as repository:
        repository.run(change)


def lose(tx: Transaction) -> None:
    tx.remove(f"{AT}/z/last.txt")


def double(tx: Transaction) -> None:
    tx.copy(f"{AT}/z/last.txt", f"{AT}/z/copy.txt")


def lose_and_double(tx: Transaction) -> None:
    lose(tx)
    tx.copy(f"{AT}/a/one.txt", f"{AT}/z/copy.txt")


def excluded_instead(tx: Transaction) -> None:
    """As many nodes as entries, but with one extra node and one missing node."""
    lose(tx)
    tx.add(f"{AT}/left.log", {**tx.properties(f"{AT}/a/one.txt"), ":name": "left.log"})


def other_content(tx: Transaction) -> None:
    tx.set(f"{AT}/readme.txt", ":sha256", "0" * 64)


def other_text(tx: Transaction) -> None:
    """Like an import that stored other content than it hashed."""
    tx.set(f"{AT}/readme.txt", ":content", "trees\n")


def other_bytes(tx: Transaction) -> None:
    tx.set(f"{AT}/binary", ":content", b"\x00\xfe")


def other_blob(tx: Transaction) -> None:
    tx.set(f"{AT}/large", ":content", tx[f"{AT}/larger", ":content"])


def no_content(tx: Transaction) -> None:
    tx.unset(f"{AT}/readme.txt", ":content")


def not_a_content(tx: Transaction) -> None:
    tx.set(f"{AT}/readme.txt", ":content", 5)


def other_kind(tx: Transaction) -> None:
    for name in (":size", ":sha256", ":content"):
        tx.unset(f"{AT}/empty", name)
    tx.set(f"{AT}/empty", ":kind", "directory")


def wrong_total(tx: Transaction) -> None:
    tx.increment(AT, ":bytes", 1)


def impossible_name(tx: Transaction) -> None:
    tx.add(f"{AT}/nul\0", {":kind": "file"})


def no_such_bytes(tx: Transaction) -> None:
    tx.add(f"{AT}/\ud800", {":kind": "file"})


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lose, "/docs/z/last.txt"),
        (double, "/docs/z/copy.txt"),
        (lose_and_double, "/docs/z/last.txt"),
        (lose_and_double, "/docs/z/copy.txt"),
        (excluded_instead, "/docs/z/last.txt"),
        (excluded_instead, "/docs/left.log"),
        (other_content, "sha256"),
        (other_text, "/docs/readme.txt: the content has 6 bytes and :sha256"),
        (other_bytes, "/docs/binary: the content has 2 bytes and :sha256"),
        (other_blob, "/docs/large: the content has 100001 bytes and :sha256"),
        (no_content, "/docs/readme.txt: the content is missing"),
        (not_a_content, "/docs/readme.txt: the content cannot be read"),
        (other_kind, "kind"),
        (wrong_total, "bytes"),
        (impossible_name, "nul"),
        (no_such_bytes, "d800"),
    ],
)
def test_a_tree_that_is_not_the_directory_is_found(
    url: str, top: Path, change: Callable[[Transaction], None], named: str
) -> None:
    assert differences(url, top, AT, exclude=EXCLUDED) == []

    tampered(url, change)

    assert named in "\n".join(map(ascii, differences(url, top, AT, exclude=EXCLUDED)))


def test_a_directory_that_has_changed_is_found(url: str, top: Path) -> None:
    write_files(top, {"new.txt": b"new"})
    (top / "a/one.txt").write_bytes(b"ONE\n")
    os.utime(top / "empty", ns=(0, 0))

    reported = "\n".join(differences(url, top, AT, exclude=EXCLUDED))

    assert "/docs/new.txt" in reported
    assert "/docs/a/one.txt: :sha256" in reported
    assert "/docs/empty: :mtime" in reported


@pytest.mark.damages("a blob is gone")
def test_a_reference_to_a_deleted_blob_is_found(url: str, top: Path) -> None:
    with connect(url) as repository:
        blob = bytes.fromhex(str(repository.head[f"{AT}/large"][":content"].id))  # type: ignore[union-attr]
        repository.store.delete_rows("blobs", [blob])

    assert "/docs/large: the content cannot be read" in "\n".join(differences(url, top, AT, exclude=EXCLUDED))


def test_a_directory_that_cannot_be_listed_fails_the_verification(url: str, top: Path, tmp_path: Path) -> None:
    top.rename(tmp_path / "elsewhere")

    with pytest.raises(FileNotFoundError):
        differences(url, top, AT, exclude=EXCLUDED)


def test_a_subdirectory_that_cannot_be_listed_is_a_difference(
    url: str, top: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deny_listing(monkeypatch, b"/z")

    assert "/docs/z" in "\n".join(differences(url, top, AT, exclude=EXCLUDED))


def test_a_comparison_of_large_contents_holds_few_of_them(tmp_path: Path) -> None:
    count, size, url = 100, 1_000_000, f"sqlite:///{tmp_path / 'content.db'}?cache_bytes=1000000"
    top = write_files(tmp_path / "large", {f"{number:03}": os.urandom(size) for number in range(count)})
    Import(url, str(top), AT, workers=1, limit=2 * size).run()
    found = verify.Verification()
    tracemalloc.start()
    try:
        assert list(verify.verify(url, str(top), AT, found, limit=2 * size)) == []
        assert tracemalloc.get_traced_memory()[1] < count * size * 2 // 3
    finally:
        tracemalloc.stop()
    assert found.bytes == count * size

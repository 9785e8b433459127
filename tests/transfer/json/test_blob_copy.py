"""A JSON import copies missing blobs from the repository of the export."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from hbasemk import FormatError, connect
from hbasemk.format import schema
from hbasemk.kernel.blobs import DATA, chunk_key
from hbasemk.repository import instance_of
from hbasemk.store.abc import CellVersion, Delete, Get, NewCell, Put
from hbasemk.transfer.exporter import write_json
from tests.support.json_exports import bring_in, url_of


def referring_file(url: str, *, chunk: bytes | None) -> tuple[io.BytesIO, str]:
    """Store a blob, and damage it: change its chunk, or delete it; return an export of a node that refers to it, and its id."""
    with connect(url, poll_interval=0) as repository:
        blob = repository.blobs.write(b"content").id
        key, store = chunk_key(bytes.fromhex(blob), 0), instance_of(repository).store
        (row,) = store.read(schema.BLOBS, [Get(key)])
        if chunk is None:
            store.delete(schema.BLOBS, [Delete(key, [CellVersion(*DATA, row.cells[0].timestamp)])])
        else:
            store.write(schema.BLOBS, [Put(key, [NewCell(*DATA, chunk)])])
    return io.BytesIO(json.dumps({"properties": {"x": {"$blob": blob}}}).encode()), blob


@pytest.fixture
def damaged(tmp_path: Path) -> str:
    """The URL of a repository that a test may damage."""
    return url_of(tmp_path / "damaged.db")


def test_missing_blobs_are_copied(old: str, new: str, file: Path) -> None:
    contents = [bytes([number]) * 3 for number in range(30)] + [b"large" * 1_000_000]
    with connect(old, poll_interval=0) as repository:
        refs = [repository.blobs.write(content) for content in contents]
        repository.run(lambda tx: [tx.add("/refs", {"all": list(refs)}), tx.add("/refs/one", {"x": refs[0]})])
        write_json(repository.refresh(), "/", file)

    result = bring_in(new, file, batch=3, blobs_from=old)

    # The tree of the tests refers to two blobs that its own repository lacks.
    assert (result.copied, sorted(result.missing.first)) == (len(contents), ["ab" * 32, "cd" * 32])
    with connect(new, poll_interval=0) as repository:
        assert [repository.blobs.read(ref) for ref in refs] == contents
    assert bring_in(new, file, blobs_from=old).copied == 0


def test_a_damaged_blob_is_an_error_before_a_node_refers_to_it(damaged: str, new: str) -> None:
    file, blob = referring_file(damaged, chunk=b"changed")

    with pytest.raises(FormatError, match=rf"blob {blob} of .*damaged\.db has content with the SHA-256"):
        bring_in(new, file, "/a", blobs_from=damaged)

    with connect(new, poll_interval=0) as repository:
        assert "/a" not in repository.head


def test_a_blob_of_which_a_part_is_missing_is_reported(damaged: str, new: str) -> None:
    file, blob = referring_file(damaged, chunk=None)

    result = bring_in(new, file, "/a", blobs_from=damaged)

    assert (result.copied, result.missing.first) == (0, [blob])

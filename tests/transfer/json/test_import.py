"""Trees in JSON exports come back exactly, also by repeated and interrupted imports."""

from __future__ import annotations

import io
import json
import math
import os
import random
import tempfile
from pathlib import Path
from typing import Any

import pytest

from hbasemk import InvalidChangeError, Json, MicroKernel, Repository, StoreNotAppliedError, StoreUnknownError, connect
from hbasemk.format import limits
from hbasemk.format.values import encode
from hbasemk.store.sqlite import SqliteStore
from hbasemk.testing.wrapped import Call, FaultyStore
from hbasemk.transfer import retry
from hbasemk.transfer.exporter import write_json
from hbasemk.transfer.json import reader
from hbasemk.transfer.json.importer import JsonImport
from hbasemk.transfer.json.reader import read_tree
from tests.support.imports import around_runs
from tests.support.json_exports import bring_in, head, stored, url_of


@pytest.mark.parametrize("batch", [1, 7, 1000])
def test_an_exported_tree_is_imported_as_the_same_tree(old: str, new: str, file: Path, batch: int) -> None:
    result = bring_in(new, file, batch=batch)

    wanted = stored(old)
    assert stored(new) == wanted
    assert (result.nodes, result.done, result.added + 1) == (len(wanted),) * 3
    assert (result.changed, result.differences.count) == (1, 0)
    assert result.commits == math.ceil(len(wanted) / batch)


@pytest.mark.parametrize("path", ["/", "/a"])
def test_a_number_that_adjusts_made_longer_than_the_limit_is_imported(tmp_path: Path, new: str, path: str) -> None:
    old, half = url_of(tmp_path / "old.db"), 5 * 10**4299
    with connect(old, poll_interval=0) as repository:
        repository.run(lambda tx: (tx.add("/a"), tx.update(path, {"n": -half + 1, "m": 1})))
        with repository.transaction() as first, repository.transaction() as second:
            first.adjust(path, "n", -half)
            second.adjust(path, "n", -half)
        assert repository.head[path]["n"] == -3 * half + 1
        write_json(repository.refresh(), "/", tmp_path / "long.json")
    for changed in (1, 0):
        result = bring_in(new, tmp_path / "long.json")
        assert (result.changed, result.differences.count) == (changed if path == "/" else 0, 0)
    with connect(new, create=False, poll_interval=0) as repository:
        assert dict(repository.head[path]) == {"n": -3 * half + 1, "m": 1}
        repository.run(lambda tx: tx.set(path, "n", 0))
    with pytest.raises(InvalidChangeError, match="already exists with other properties"):
        bring_in(new, tmp_path / "long.json")


def seen(repository: Repository) -> Any:
    """Return the whole tree from the MicroKernel, with hashes and the spelling of numbers."""
    text = MicroKernel(repository).get_nodes("/", None, 9, filter='{"properties":["*",":hash"]}')
    assert text is not None
    return json.loads(text, parse_int=str, parse_float=str)


def test_the_microkernel_sees_the_same_tree_by_its_hash(tmp_path: Path, new: str) -> None:
    old = url_of(tmp_path / "jsop.db")
    with connect(old, poll_interval=0) as repository:
        jsop = (
            '+"/a":{"n":1.10,"m":1e5,"i":12345678901234567890,"l":[1,"2",3.00],"t":true,"b":{"c":{}},'
            f'"s":":blobId:{"ab" * 32}"}}'
        )
        MicroKernel(repository).commit("", jsop, None, "")
        write_json(repository.refresh(), "/", tmp_path / "jsop.json")
        wanted = seen(repository)
    bring_in(new, tmp_path / "jsop.json")

    with connect(new, create=False, poll_interval=0) as repository:
        assert seen(repository) == wanted
    assert wanted["a"]["n"] == "1.10"
    assert wanted["a"]["b"][":hash"]


def test_a_subtree_can_be_imported_below_missing_nodes(old: str, new: str, tmp_path: Path) -> None:
    with connect(old, poll_interval=0) as repository:
        write_json(repository.refresh(), "/a", tmp_path / "a.json")

    bring_in(new, tmp_path / "a.json", "/far/away/a")

    assert stored(new, "/far/away/a") == {f"/far/away{path}": found for path, found in stored(old, "/a").items()}
    assert stored(new)["/far/away"] == {}


def test_a_deep_tree_needs_no_deep_stack(tmp_path: Path, new: str) -> None:
    depth = limits.MAX_DEPTH
    text = '{"children": {"d": ' * depth + "{}" + "}}" * depth

    assert bring_in(new, io.BytesIO(text.encode())).added == depth


def test_pieces_of_any_size_are_read_as_the_same_tree(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        '{"properties": {"a": 12.50, "b": [1e+5, "\\ud83d\\ude00 é"], "c": -7, "d": false}, \n'
        '"children": {"x": {}, "y": {"properties": {}}, "z": {"children": {"w": {"properties": {"t": true}}}}}} \r\n'
    ).encode()
    wanted = list(read_tree(io.BytesIO(text), "whole", "/"))
    assert [path for path, _ in wanted] == ["/", "/x", "/y", "/z", "/z/w"]
    values: dict[str, Any] = {"a": Json("12.50"), "b": [Json("1e+5"), "\U0001f600 é"], "c": -7, "d": False}
    assert wanted[0][1] == {name: encode(value) for name, value in values.items()}

    for size in range(1, 40):
        monkeypatch.setattr(reader, "PIECE", size)
        assert list(read_tree(io.BytesIO(text), f"pieces of {size}", "/")) == wanted


PARTS = (
    '"properties"',
    '"children"',
    "{",
    "}",
    ",",
    ":",
    '"',
    " ",
    '"n": 1',
    "null",
    "1e5",
    "[",
    "]",
    '{"$float": "inf"}',
    "\\",
)


def outcome(text: str) -> Any:
    """Return what a text is read as: the nodes with their stored values, or the error."""
    try:
        found = read_tree(io.BytesIO(text.encode()), "given", "/at")
        return [(path, list(properties.items())) for path, properties in found]
    except ValueError as error:
        return str(error)


@pytest.mark.parametrize("seed", range(3))
def test_nodes_read_at_once_and_piece_by_piece_are_the_same(
    file: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    print(f"seed {seed}")
    chance = random.Random(seed)
    whole = file.read_text()
    texts = [whole]
    for _ in range(300):
        at = chance.randrange(len(whole))
        until = at + chance.choice((0, 0, 1, 5))
        texts.append(whole[:at] + chance.choice((*PARTS, whole[at : at + 9])) + whole[until:])
    at_once = list(map(outcome, texts))
    assert len({type(one) for one in at_once}) == 2
    monkeypatch.setattr(reader._Reader, "_properties_at_once", lambda _: None)
    monkeypatch.setattr(reader._Reader, "_skip", lambda *_: False)
    monkeypatch.setattr(reader, "scanstring", lambda *_: json.loads("cut off"))
    for text, found in zip(texts, at_once, strict=True):
        assert outcome(text) == found, text


def test_a_second_import_changes_nothing(new: str, file: Path) -> None:
    bring_in(new, file)
    before = head(new)

    result = bring_in(new, file)

    assert head(new) == before
    assert (result.added, result.changed, result.commits, result.differences.count) == (0, 0, 0, 0)


def test_an_import_that_fails_reports_its_progress_and_can_resume(
    old: str, new: str, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "FIRST_WAIT", 0.001)

    def fail(number: int) -> None:
        if number > 3:
            raise StoreNotAppliedError("the store is away")

    with monkeypatch.context() as patched:
        around_runs(patched, before=fail)
        job = JsonImport(new, file, "/", batch=4, retry_timeout=0.0)
        with pytest.raises(StoreNotAppliedError):
            job.run()
    assert job.result.done == 12 == len(stored(new))
    assert job.result.last in stored(new)

    bring_in(new, file)
    assert stored(new) == stored(old)


def test_an_import_waits_for_an_unreachable_store(
    old: str, new: str, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "FIRST_WAIT", 0.001)

    def fail(number: int) -> None:
        if number == 2:
            raise StoreNotAppliedError("the reply was lost")

    around_runs(monkeypatch, after=fail)
    result = bring_in(new, file, batch=10)

    assert (result.retries, result.notes) == (1, ["retrying for up to 120 s: the reply was lost"])
    assert stored(new) == stored(old)


@pytest.mark.parametrize("applied", [True, False])
def test_a_commit_with_an_unknown_outcome_counts_once_if_it_is_committed(
    new: str, file: Path, monkeypatch: pytest.MonkeyPatch, applied: bool
) -> None:
    monkeypatch.setattr(retry, "FIRST_WAIT", 0.001)
    decisions: list[int] = []
    failing = [False]

    def connected(url: str, **options: Any) -> Repository:
        store = FaultyStore(SqliteStore(url.removeprefix("sqlite:///")))

        def before(call: Call) -> None:
            if failing[0]:
                raise StoreNotAppliedError("the store is away")
            if (call.method, call.table) == ("write_if", "nodes"):
                decisions.append(1)
                if len(decisions) == 2 and not applied:
                    failing[0] = True
                    raise StoreUnknownError("no answer")

        def after(call: Call) -> None:
            if (call.method, call.table) == ("write_if", "nodes") and len(decisions) == 2:
                failing[0] = True
                raise StoreUnknownError("no answer")

        store.before, store.after = before, after
        return Repository(store, **{**options, "retry_timeout": 0.0})

    monkeypatch.setattr(retry, "connect", connected)
    notes: list[str] = []

    def note(why: str) -> None:
        notes.append(why)
        failing[0] = False

    result = JsonImport(new, file, "/", batch=10, retry_timeout=0.5, note=note).run()

    assert len(notes) == 1
    assert "the outcome is unknown" in notes[0]
    assert (result.done, result.added + result.changed) == (len(stored(new)),) * 2
    assert result.commits == math.ceil(len(stored(new)) / 10)


@pytest.mark.parametrize("there", [True, 1.0, "1", Json("1"), [1]])
def test_a_node_with_other_properties_is_never_replaced(new: str, file: Path, there: Any) -> None:
    with connect(new, poll_interval=0) as repository:
        repository.run(lambda tx: tx.add("/wide"))
        repository.run(lambda tx: tx.add("/wide/7", {"n": 7}))
        repository.run(lambda tx: tx.add("/wide/1", {"n": there}))

    with pytest.raises(InvalidChangeError, match="/wide/1 already exists"):
        bring_in(new, file)

    assert stored(new)["/wide/1"] == {"n": encode(there)}


def test_missing_blobs_are_reported(old: str, new: str, file: Path) -> None:
    result = bring_in(new, file)
    assert sorted(result.missing.first) == ["ab" * 32, "cd" * 32]
    assert result.missing.count == 2

    with connect(new, poll_interval=0) as repository:
        ref = repository.blobs.write(io.BytesIO(b"content"))
    text = json.dumps({"properties": {"x": {"$blob": ref.id}}})
    assert bring_in(new, io.BytesIO(text.encode()), "/with-blob").missing.count == 0


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
@pytest.mark.parametrize("batch", [1, 1000])
def test_a_full_disk_for_the_temporary_file_is_named(
    new: str, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    """It said only: No space left on device."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda: open("/dev/full", "r+b"))  # noqa: SIM115

    with pytest.raises(OSError, match="No space left") as raised:
        JsonImport(new, file, "/", batch=batch, retry_timeout=0.0).run()

    assert raised.value.filename == f"a temporary file in {tmp_path} (TMPDIR)"


def test_an_import_from_a_stream_begins_where_the_stream_is(new: str) -> None:
    source = io.BytesIO(b'a line that another program has read\n{"properties": {"a": 1}}')
    source.readline()
    job = JsonImport(new, source, "/", name="a stream")
    for added in (True, False):
        assert bool(job.run().commits) is added or not added
    with connect(new, create=False, poll_interval=0) as repository:
        assert repository.refresh()["/"]["a"] == 1

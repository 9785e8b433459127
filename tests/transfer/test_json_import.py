"""A JSON export is imported as the same tree; any other file changes nothing."""

from __future__ import annotations

import io
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbasemk import (
    BlobRef,
    HbasemkError,
    InvalidChangeError,
    InvalidValueError,
    Json,
    MicroKernel,
    Repository,
    StoreNotAppliedError,
    StoreUnknownError,
    Transaction,
    connect,
)
from hbasemk.check.problem import BLOB_REFERENCE
from hbasemk.format import limits
from hbasemk.format.json_number import NUMBER
from hbasemk.format.values import encode
from hbasemk.store.sqlite import SqliteStore
from hbasemk.testing.wrapped import Call, FaultyStore
from hbasemk.transfer import retry
from hbasemk.transfer.exporter import export_json, write_json
from hbasemk.transfer.json import reader
from hbasemk.transfer.json.importer import JsonImport, JsonResult
from hbasemk.transfer.json.reader import read_tree
from hbasemk.transfer.json.values import decoder, from_json, to_json
from tests.support.imports import around_runs
from tests.support.repositories import Checked, damage

VALUES: dict[str, Any] = {
    "integer": 2**70,
    "negative": -1,
    "huge": -(10**4300) + 1,
    "float": 1.0,
    "small": 5e-324,
    "minus zero": -0.0,
    "nan": math.nan,
    "infinite": -math.inf,
    "true": True,
    "false": False,
    "string": '42\n\u00e9\ud800"\\\x00',
    "pair": "\ud83d\ude00",
    "split pair": "".join(["\ud83d", "\ude00"]),
    "looks marked": '{"$bytes": "AP8="}',
    "bytes": b"\x00\xff",
    "none": b"",
    "blob": BlobRef("ab" * 32),
    "spelling": Json("1.10"),
    "exponent": Json("1E+5"),
    "beyond": Json("1e999"),
    "plain number": Json("11"),
    "plain float": Json("1.5"),
    "long number": Json("9." + "9" * 4298),
    "list": [1, "1", 1.5, True, Json("1.50"), Json("1.5"), b"x", BlobRef("cd" * 32)],
    "empty list": [],
    ":odd/ name".replace("/", "|"): "x",
}


def tree(tx: Transaction) -> None:
    tx.set("/", "of the root", 1)
    for path in ("/b", "/a", "/a/z", "/a/y", "/a/y/deep", "/caf\udce9", "/properties", "/properties/child"):
        tx.add(path, {"zeta": 1, "alpha": path, "children": "a property"})
    tx.add("/types", VALUES)
    tx.add("/bare")
    tx.add("/wide")
    for number in range(50):
        tx.add(f"/wide/{number}", {"n": number})


def url_of(path: Path) -> str:
    return f"sqlite:///{path}"


def damage_beside_blobs(url: str) -> list[str]:
    """Return the problems of the integrity check, without missing blobs: JSON contains no blobs."""
    return [one for one in damage(url) if not one.startswith(BLOB_REFERENCE)]


@pytest.fixture
def old(tmp_path: Path) -> Iterator[str]:
    """A repository with every kind of value."""
    made = url_of(tmp_path / "old.db")
    with connect(made, poll_interval=0) as repository:
        repository.run(tree)
    yield made
    assert damage_beside_blobs(made) == []


@pytest.fixture
def file(old: str, tmp_path: Path) -> Path:
    """The JSON export of that repository."""
    with connect(old, poll_interval=0) as repository:
        write_json(repository.refresh(), "/", tmp_path / "tree.json")
    return tmp_path / "tree.json"


@pytest.fixture
def new(tmp_path: Path) -> Iterator[str]:
    """The URL of a new repository; the integrity check runs at the end, without missing blobs: JSON contains no blobs."""
    made = url_of(tmp_path / "new.db")
    yield made
    assert damage_beside_blobs(made) == []


def stored(url: str, path: str = "/") -> dict[str, dict[str, bytes]]:
    """Return all nodes at and below a path, with the bytes of their properties."""
    with connect(url, create=False, poll_interval=0) as repository:
        return {
            node.path: {name: encode(value) for name, value in node.items()} for node in repository.refresh().walk(path)
        }


def head(url: str) -> str:
    with connect(url, create=False, poll_interval=0) as repository:
        return repository.refresh().revision


def bring_in(url: str, source: Path | io.BytesIO, at: str = "/", **options: Any) -> JsonResult:
    return JsonImport(url, source, at, **options).run()


# --- values -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", VALUES)
def test_each_value_round_trips_exactly(name: str) -> None:
    text = to_json(VALUES[name])

    assert text.isascii()
    json.loads(text, parse_int=str)
    assert encode(from_json(decoder.decode(text))) == encode(VALUES[name])


spellings = re.compile(NUMBER, re.ASCII)
scalars = st.one_of(
    st.text(st.characters(exclude_categories=())),
    st.integers(),
    st.floats(allow_nan=False),
    st.booleans(),
    st.binary(),
    st.binary(min_size=32, max_size=32).map(lambda data: BlobRef(data.hex())),
    st.from_regex(spellings, fullmatch=True).map(Json),
)


@given(st.one_of(scalars, st.lists(scalars)))
def test_any_value_round_trips_exactly(value: Any) -> None:
    text = to_json(value)

    json.loads(text, parse_int=str)
    assert encode(from_json(decoder.decode(text))) == encode(value)


def test_common_values_are_written_as_plain_json() -> None:
    assert to_json(["a", 1, 1.5, True]) == '["a", 1, 1.5, true]'
    assert to_json(Json("1.10")) == "1.10"
    assert to_json(Json("1.1")) == '{"$number": "1.1"}'


# --- trees ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [1, 7, 1000])
def test_an_exported_tree_is_imported_as_the_same_tree(old: str, new: str, file: Path, batch: int) -> None:
    result = bring_in(new, file, batch=batch)

    wanted = stored(old)
    assert stored(new) == wanted
    assert (result.nodes, result.done, result.added + 1) == (len(wanted),) * 3
    assert (result.changed, result.differences.count) == (1, 0)
    assert result.commits == math.ceil(len(wanted) / batch)


def seen(repository: Repository) -> Any:
    """Return the whole tree from the MicroKernel, with hashes and the spelling of numbers."""
    text = MicroKernel(repository).get_nodes("/", None, 9, filter='{"properties":["*",":hash"]}')
    assert text is not None
    return json.loads(text, parse_int=str, parse_float=str)


def test_the_microkernel_sees_the_same_tree_by_its_hash(tmp_path: Path, new: str) -> None:
    old = url_of(tmp_path / "jsop.db")
    with connect(old, poll_interval=0) as repository:
        jsop = (
            '+"/a":{"n":1.10,"m":1e5,"i":12345678901234567890,"s":":blobId:x","l":[1,"2",3.00],"t":true,"b":{"c":{}}}'
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
    assert wanted[0][1] == {"a": Json("12.50"), "b": [Json("1e+5"), "\U0001f600 é"], "c": -7, "d": False}

    for size in range(1, 40):
        monkeypatch.setattr(reader, "PIECE", size)
        assert list(read_tree(io.BytesIO(text), f"pieces of {size}", "/")) == wanted


# --- repeated imports and existing nodes ---------------------------------------------------------------------


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

    assert (result.retries, result.notes) == (1, ["the reply was lost"])
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


# --- files that are not exports ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "expected {"),
        ("[]", "expected {"),
        ("{} {}", "after the outermost"),
        ('{"properties": {}', "expected , or }"),
        ('{"properties": {"a": 1,}}', "a name in quotation marks"),
        ('{"properties": {"a": 1 "b": 2}}', "expected , or }"),
        ('{"properties": {"a": 1, "a": 2}}', "has the property 'a' twice"),
        ('{"properties": {"a": }}', "Expecting value"),
        ('{"properties": {"a": NaN}}', "NaN"),
        ('{"properties": {"a": "unterminated}}', "Unterminated"),
        ('{"properties": {"a": "\\x"}}', "escape"),
        ('{"properties": {"a": "line\nbreak"}}', "control character"),
        ('{"properties": {"a": {"$bytes": "%%"}}}', "$bytes"),
        ('{"properties": {"a": {"$float": "1"}}}', "$float"),
        ('{"properties": {"a": ' + "[" * 100_000 + "]" * 100_000 + "}}", "recursion"),
        ('{"properties": {"a": {"$number": "x"}}}', "$number"),
        ('{"properties": {"a": {"$number": 5}}}', "a property cannot hold"),
        ('{"properties": {"a": null}}', "a property cannot hold null"),
        ('{"properties": {"a": [[1.50]]}}', "a property cannot hold ["),
        ('{"properties": {"a": {"x": 1, "y": 2}}}', "a property cannot hold"),
        ('{"properties": {"": 1}}', "is not a valid name"),
        ('{"properties": []}', "expected {"),
        ('{"other": {}}', "'other'"),
        ('{"children": {}, "properties": {}}', "properties come before children"),
        ('{"children": {"a/b": {}}}', "'a/b' is not a valid name"),
        ('{"children": {"..": {}}}', "'..' is not a valid name"),
        ('{"children": {"a": {"children": {"b": 5}}}}', "/a/b"),
        ('{"children": {"a": {},}}', "a name in quotation marks"),
        ('{"children": {"' + "x" * 40_000 + '": {}}}', "32764"),
        ('{"properties": {"a": "\udcff"}}', "not UTF-8"),
        ("{" + " " * 5000 + "x", "at character 5001"),
        (
            '{"properties": {"first": 1}, "children": {"a": {"children": {' + '"b": {}, ' * 3000 + "x",
            "at character 27061",
        ),
    ],
    ids=range(32),
)
def test_a_file_that_is_not_an_export_is_rejected_and_changes_nothing(new: str, text: str, named: str) -> None:
    data = text.encode("utf-8", "surrogateescape")

    with pytest.raises(InvalidValueError) as raised:
        bring_in(new, io.BytesIO(data), name="a file", batch=1)

    assert "a file is not an exported tree" in str(raised.value)
    assert named in str(raised.value)
    assert not os.path.exists(new.removeprefix("sqlite:///"))


def test_a_truncated_export_changes_nothing(tmp_path: Path, new: str) -> None:
    old = url_of(tmp_path / "small.db")
    with connect(old, poll_interval=0) as repository:
        repository.run(lambda tx: [tx.add("/a", {"n": 1.5, "t": "x\n", "l": [1, b"x"]}), tx.add("/a/b"), tx.add("/c")])
        data = "".join(export_json(repository.refresh(), "/")).strip().encode()

    for end in range(len(data)):
        with pytest.raises(InvalidValueError):
            bring_in(new, io.BytesIO(data[:end]))
    assert not os.path.exists(new.removeprefix("sqlite:///"))
    assert bring_in(new, io.BytesIO(data)).differences.count == 0


def test_an_oversized_value_is_not_read_to_its_end(new: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "PIECE", 10)
    monkeypatch.setattr(reader, "LONGEST", 1000)
    source = io.BytesIO(b'{"properties": {"a": "' + b"x" * 100_000)

    with pytest.raises(InvalidValueError, match="more than 1000"):
        bring_in(new, source)
    assert source.tell() < 5000


def test_a_duplicate_node_with_other_properties_is_rejected(new: str) -> None:
    text = b'{"children": {"a": {"properties": {"n": 1}}, "b": {}, "a": {"properties": {"n": 2}}}}'

    for batch in (1, 10):
        with pytest.raises(HbasemkError, match="contains /a twice|/a already exists"):
            bring_in(new, io.BytesIO(text), batch=batch)


@pytest.mark.parametrize("url", ["memory://shared", "Memory://shared"])
def test_a_repository_in_memory_is_rejected(file: Path, url: str) -> None:
    with pytest.raises(InvalidValueError, match="(?i)memory"):
        bring_in(url, file)


# --- the command ------------------------------------------------------------------------------------------


def hbasemk(*arguments: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, "-m", "hbasemk", *arguments], capture_output=True, check=False, **options)


def test_the_command_moves_a_repository_to_a_later_epoch(tmp_path: Path, checked: Checked) -> None:
    old, new = checked(url_of(tmp_path / "old.db")), checked(url_of(tmp_path / "new.db"))
    with connect(old, poll_interval=0) as repository:
        repository.run(tree)
        repository.run(lambda tx: [tx.unset("/types", "blob"), tx.unset("/types", "list")])
    assert hbasemk("--url", new, "init", "--epoch", "2026-01-01").returncode == 0
    whole = hbasemk("--url", old, "export", "-f", "json", "/").stdout

    ran = hbasemk("--url", new, "--output", "json", "import", "-f", "json", "-", input=whole)

    assert (ran.returncode, ran.stderr) == (0, b"")
    result = json.loads(ran.stdout)
    assert (result["imported_to"], result["differences"], result["missing_blobs"]) == ("/", 0, 0)
    assert result["nodes"] == result["nodes_added"] + 1 == len(stored(new))
    assert stored(new) == stored(old)
    assert hbasemk("--url", new, "export", "-f", "json", "/").stdout == whole


def test_the_command_lists_missing_blobs_and_accepts_them_later(tmp_path: Path, checked: Checked) -> None:
    old, new = checked(url_of(tmp_path / "old.db")), checked(url_of(tmp_path / "new.db"))
    with connect(old, poll_interval=0) as repository:
        ref = repository.blobs.write(io.BytesIO(b"content"))
        repository.run(lambda tx: tx.add("/a", {"x": ref}))
    (tmp_path / "tree.json").write_bytes(hbasemk("--url", old, "export", "-f", "json", "/").stdout)

    import_ = ("--url", new, "import", "--format", "json", str(tmp_path / "tree.json"))
    ran = hbasemk(*import_)
    assert (ran.returncode, ran.stderr) == (1, f"hbasemk: missing blob: {ref.id}\n".encode())

    content = hbasemk("--url", old, "blob", "get", ref.id).stdout
    assert hbasemk("--url", new, "blob", "put", input=content).stdout.decode().strip() == ref.id
    assert hbasemk(*import_).returncode == 0
    assert hbasemk("--url", new, "check", "--blobs").returncode == 0


def test_the_command_reports_its_progress(tmp_path: Path, checked: Checked) -> None:
    url = checked(url_of(tmp_path / "new.db"))
    with connect(url, poll_interval=0) as repository:
        repository.run(lambda tx: tx.add("/c", {"by": "hand"}))
    text = b'{"children": {"a": {}, "b": {}, "c": {"properties": {"n": 1}}, "d": {}}}'

    ran = hbasemk("--url", url, "import", "-f", "json", "-b", "1", "-", input=text)

    assert ran.returncode == 1
    lines = ran.stderr.decode().splitlines()
    assert "3 of 5 nodes, the last one /b," in lines[0]
    assert lines[1].startswith("hbasemk: /c already exists")
    assert len(lines) == 2
    assert set(stored(url)) == {"/", "/a", "/b", "/c"}


def test_the_command_rejects_wrong_usage(tmp_path: Path, file: Path) -> None:
    url = url_of(tmp_path / "new.db")
    (tmp_path / "broken.json").write_bytes(b"{")
    for arguments in (
        (str(file),),
        ("-",),
        ("-f", "json", str(tmp_path)),
        ("-f", "json", "--workers", "2", str(file)),
        ("-f", "json", "--exclude", "x", str(file)),
        ("-f", "json", "--inline-limit", "5", str(file)),
        ("-f", "json", "--contents", "none", str(file)),
        ("-f", "json", str(tmp_path / "broken.json")),
        ("-f", "json", "--at", "relative", str(file)),
        ("-f", "json", str(tmp_path / "none.json")),
    ):
        ran = hbasemk("--url", url, "import", *arguments, stdin=subprocess.DEVNULL)
        assert (ran.returncode, ran.stdout) == (2, b""), arguments
        assert b"Traceback" not in ran.stderr
    assert not (tmp_path / "new.db").exists()

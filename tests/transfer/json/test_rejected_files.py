"""Imports of files that are not JSON exports."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from hbasemk import InvalidValueError, connect
from hbasemk.transfer.exporter import export_json
from hbasemk.transfer.json import reader
from tests.support.json_exports import bring_in, url_of


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
        ('{"properties": {"a": {"$bytes": "AP8=", "$bytes": "AA=="}}}', "an object has a name twice"),
        ('{"properties": {"a": [1, {"$bytes": "AP8=", "$bytes": "AP8="}]}}', "an object has a name twice"),
        ('{"properties": {"a": }}', "Expecting value"),
        ('{"properties": {"a": NaN}}', "NaN"),
        ('{"properties": {"a": "unterminated}}', "a string without an end"),
        ('{"properties": {"a": "\\x"}}', "escape"),
        ('{"properties": {"a": "line\nbreak"}}', "control character"),
        ('{"properties": {"a": {"$bytes": "%%"}}}', "$bytes"),
        ('{"properties": {"a": {"$float": "1"}}}', "$float"),
        ('{"properties": {"a": {"$integer": " 7 "}}}', "$integer cannot hold ' 7 '"),
        ('{"properties": {"a": {"$integer": "0x_1"}}}', "$integer cannot hold '0x_1'"),
        ('{"properties": {"a": {"$integer": "0x1\\n"}}}', "$integer cannot hold"),
        ('{"properties": {"a": {"$integer": "+0x1"}}}', "$integer cannot hold '+0x1'"),
        ('{"properties": {"a": {"$integer": "1f"}}}', "$integer cannot hold '1f'"),
        (
            '{"properties": {"a": ' + "[" * 100_000 + "]" * 100_000 + "}}",
            "cannot hold arrays or objects nested so deeply",
        ),
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
            '{"properties": {"first": 1}, "children": {"a": {"children": {'
            + "".join(f'"{number:04}": {{}}, ' for number in range(3000))
            + "x",
            "at character 36061",
        ),
    ],
    ids=range(39),
)
def test_a_file_that_is_not_an_export_is_rejected_and_changes_nothing(new: str, text: str, named: str) -> None:
    data = text.encode("utf-8", "surrogateescape")

    with pytest.raises(InvalidValueError) as raised:
        bring_in(new, io.BytesIO(data), name="a file", batch=1)

    assert "a file is not an exported tree" in str(raised.value)
    assert named in str(raised.value)
    assert not os.path.exists(new.removeprefix("sqlite:///"))


WHOLE = (
    '{"properties": {"a": "text", "b": [1, 2.5, true, 1.5e+20], "c": 12.5, "d": -1.5E-20}, '
    '"children": {"e": {"properties": {}}}}'
)


@pytest.mark.parametrize("length", range(len(WHOLE)))
def test_a_file_that_ends_too_early_is_called_cut_off(new: str, length: int) -> None:
    with pytest.raises(InvalidValueError, match="the file may be cut off$"):
        bring_in(new, io.BytesIO(WHOLE[:length].encode()), name="a file", batch=1)


@pytest.mark.parametrize(
    "text",
    [
        WHOLE + "}",
        WHOLE.replace("2.5,", "x,"),
        WHOLE.replace(":", "", 1),
        WHOLE.replace("12.5", "12."),
        WHOLE.replace("12.5", '"12".'),
    ],
)
def test_a_file_with_an_error_in_the_middle_is_not_called_cut_off(new: str, text: str) -> None:
    with pytest.raises(InvalidValueError) as raised:
        bring_in(new, io.BytesIO(text.encode()), name="a file", batch=1)
    assert "cut off" not in str(raised.value)


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


@pytest.mark.parametrize("batch", [1, 10])
@pytest.mark.parametrize(
    ("children", "name"),
    [
        ('{"a": {"properties": {"n": 1}}, "b": {}, "a": {"properties": {"n": 2}}}', "a"),
        ('{"a": {"properties": {"n": 1}}, "b": {}, "a": {"properties": {"n": 1}}}', "a"),
        ('{"a": {"children": {"x": {}}}, "b": {"children": {"x": {}, "y": {}, "x": {}}}}', "x"),
        ('{"b": {}, "n": {}}', "n"),
    ],
)
def test_a_name_that_a_node_uses_twice_is_rejected_before_anything_changes(
    new: str, batch: int, children: str, name: str
) -> None:
    text = f'{{"properties": {{"n": 1}}, "children": {children}}}'.encode()
    with pytest.raises(InvalidValueError, match=f"the name '{name}' occurs twice among its properties and children"):
        bring_in(new, io.BytesIO(text), batch=batch)
    with connect(new) as repository:
        assert repository.head.children("/") == []


@pytest.mark.parametrize("url", ["memory://shared", "Memory://shared"])
def test_a_repository_in_memory_is_rejected(file: Path, url: str) -> None:
    with pytest.raises(InvalidValueError, match="(?i)memory"):
        bring_in(url, file)


@pytest.mark.parametrize("piece", [1, 3, 1 << 20])
def test_the_error_for_a_byte_that_is_not_utf_8_has_its_position(
    new: str, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "PIECE", piece)
    data = '{"properties": {"a": "\u00e9\u00e9'.encode() + b"\xff"
    with pytest.raises(InvalidValueError, match="at character 24, .*not UTF-8"):
        bring_in(new, io.BytesIO(data), name="a file")

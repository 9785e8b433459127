"""Depth, lengths and digits of JSOP and of filters are bounded while the text is read."""

from __future__ import annotations

import json

import pytest

from hbasemk import (
    HbasemkError,
    InvalidPathError,
    JsopError,
    LimitError,
    MicroKernel,
    Repository,
)
from hbasemk.format import limits
from hbasemk.jsop import parse, parse_node, parse_value
from tests.support.memory_use import little_memory

LONG = "9" * (limits.MAX_DIGITS + 1)
FAR = "/" + "x" * 30_000
"""A path close to the limit."""


def nested(levels: int) -> str:
    return '{"a":' * levels + "{}" + "}" * levels


def test_deep_jsop_is_refused_while_it_is_read(repo: Repository) -> None:
    text = '+"/x":' + nested(100_000)
    assert len(text) > 600_000
    with little_memory(5_000_000), pytest.raises(JsopError, match=r"1001 levels deep; at most 1000") as raised:
        MicroKernel(repo).commit("", text)
    assert raised.value.offset < 6000


@pytest.mark.parametrize(
    "text", ['{"x":' + nested(1000) + "}", '{"x":' + nested(999)[:-1] + "," + '"b":1}}', nested(100_000), nested(1001)]
)
def test_deep_json_is_refused_while_it_is_read(text: str) -> None:
    with little_memory(5_000_000):
        try:
            parse_node(text)
        except JsopError as error:
            assert "at most 1000" in str(error)
            assert error.offset < 7000
        else:
            assert text.endswith('"b":1}}')


def test_the_deepest_node_can_be_added_and_no_deeper_one_by_any_operation(repo: Repository) -> None:
    mk = MicroKernel(repo)
    mk.commit("", '+"/d":' + nested(limits.MAX_DEPTH - 1))
    deepest = "/d" + "/a" * (limits.MAX_DEPTH - 1)
    assert mk.node_exists(deepest)
    mk.commit("", f'^"{deepest}/p":1')
    assert json.loads(str(mk.get_nodes(deepest)))["p"] == 1
    before = mk.get_head_revision()
    for text in (
        f'+"{deepest}/b":{{}}',
        f'>"/a":"{deepest}/b"',
        f'*"/a":"{deepest}/b"',
        '*"/d":"/a/b"',
        '>"/d":"/a/b"',
        f'+"{deepest}":{{"b":{{}}}}',
    ):
        with pytest.raises(HbasemkError, match=r"at most 1000 levels|1001 levels"):
            mk.commit("", text)
    assert mk.get_head_revision() == before


@pytest.mark.parametrize("kind", ["add", "move", "copy"])
def test_a_transaction_rejects_deep_paths_immediately(repo: Repository, kind: str) -> None:
    deep = "/a" * (limits.MAX_DEPTH + 1)
    with repo.transaction() as tx:
        with pytest.raises(InvalidPathError, match=r"1001 levels; .* at most 1000"):
            tx.add(deep) if kind == "add" else getattr(tx, kind)("/a", deep)
        tx.set("/a", "still", "fine")
    assert repo.head["/a"]["still"] == "fine"


@pytest.mark.parametrize(
    ("text", "root"),
    [
        (f'+"{FAR}":{{' + ",".join(f'"{n}":{{}}' for n in range(10_000)) + "}", ""),
        ("".join(f'-"{n}"' for n in range(10_000)), FAR),
        ("".join(f'>"{n}":"m{n}"' for n in range(10_000)), FAR),
    ],
    ids=["children", "relative paths", "relative targets"],
)
def test_short_texts_below_a_long_path_cannot_take_gigabytes(text: str, root: str) -> None:
    assert len(text) < 200_000
    with little_memory(limits.MAX_PATHS * 2), pytest.raises(JsopError, match="paths of this text have more than"):
        parse(text, root)


def test_neither_can_copies_to_a_long_path(repo: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    repo.run(lambda tx: [tx.add("/many"), *(tx.add(f"/many/{n}") for n in range(100))])
    repo.run(lambda tx: tx.add(FAR))
    monkeypatch.setattr(limits, "MAX_PATHS", 1_000_000)
    before = repo.head.revision
    with pytest.raises(LimitError, match=r"more than 1000000 bytes in total .*Split the change into several commits"):
        repo.run(lambda tx: tx.copy("/many", FAR + "/copy"))
    assert repo.refresh().revision == before


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        (f'+"/{"x" * 20_000}":{{"{"y" * 20_000}":{{}}}}', 32_765),
        (f'+"/{"x" * 20_000}":{{"{"y" * 20_000}":{{"z":1}}}}', 32_765),
        (f'+"/{"é" * 10_000}":{{"{"é" * 10_000}":{{}}}}', 32_765),
        (f'+"/a":{{"{"y" * 40_000}":1}}', 32_764),
        (f'+"/a":{{"{"é" * 20_000}":1}}', 32_764),
        (f'^"/a/{"y" * 40_000}":1', 32_765),
        (f'-"/a/{"y" * 40_000}"', 32_765),
    ],
    ids=range(7),
)
def test_long_paths_and_names_are_refused_with_a_short_message(repo: Repository, text: str, limit: int) -> None:
    with pytest.raises(JsopError, match=f"at most {limit}") as raised:
        MicroKernel(repo).commit("", text)
    assert len(str(raised.value)) < 500


@pytest.mark.parametrize(
    "text",
    [
        f'^"/a/n":{LONG}',
        f'^"/a/n":-{LONG}',
        f'^"/a/n":0.{LONG}',
        f'^"/a/n":1e{LONG}',
        f'^"/a/n":[1,{LONG}]',
        f'+"/b":{{"n":{LONG}}}',
        f'+"/b":{{"\\u006e":{LONG}}}',
        f'+"/b":{{"m":{{"n":[{LONG}]}}}}',
    ],
    ids=range(8),
)
def test_long_numbers_are_refused_in_jsop(repo: Repository, text: str) -> None:
    with pytest.raises(JsopError, match=r"the number .* characters; at most 4300") as raised:
        MicroKernel(repo).commit("", text)
    assert len(str(raised.value)) < 400
    with pytest.raises(JsopError, match="at most 4300"):
        parse_value(LONG)


@pytest.mark.parametrize("number", ["9" * limits.MAX_DIGITS, "-" + "9" * limits.MAX_DIGITS, "0." + "1" * 4298])
def test_longest_numbers_round_trip(repo: Repository, number: str) -> None:
    mk = MicroKernel(repo)
    mk.commit("", f'^"/a/n":{number}')
    assert f'"n":{number}' in str(mk.get_nodes("/a"))
    assert repr(repo.head["/a"]).startswith("<Node /a ")


@pytest.mark.parametrize(
    "filter",
    [
        '{"nodes":["' + "x" * limits.MAX_FILTER + '"]}',
        '{"nodes":[' + ",".join(['"a*b"'] * (limits.MAX_GLOBS + 1)) + "]}",
        '{"properties":[' + ",".join(['"a"'] * (limits.MAX_GLOBS + 1)) + "]}",
        nested(2000),
        '{"nodes":[' + LONG + "]}",
    ],
    ids=range(5),
)
def test_filters_are_bounded(repo: Repository, filter: str) -> None:
    with pytest.raises(HbasemkError, match="at most") as raised:
        MicroKernel(repo).get_nodes("/", filter=filter)
    assert len(str(raised.value)) < 400

"""Depth, lengths and digits are bounded on every way in, while the text is read; what is stored already stays readable."""

from __future__ import annotations

import io
import json
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from click.testing import CliRunner

from hbasemk import (
    BlobRef,
    HbasemkError,
    InvalidPathError,
    InvalidValueError,
    Json,
    JsopError,
    LimitError,
    MicroKernel,
    Repository,
    connect,
)
from hbasemk.cli.main import cli
from hbasemk.cli.session import Session
from hbasemk.format import limits, paths
from hbasemk.jsop import Number, parse, parse_node, parse_value
from hbasemk.store.memory import MemoryStore
from hbasemk.transfer.exporter import export_json
from hbasemk.transfer.json.reader import read_tree

LONG = "9" * (limits.MAX_DIGITS + 1)
MOST = 10**limits.MAX_DIGITS - 1
FAR = "/" + "x" * 30_000
"""A path close to the limit."""


@pytest.fixture
def repo(real_store: MemoryStore) -> Iterator[Repository]:
    with Repository(real_store, poll_interval=0) as made:
        made.run(lambda tx: tx.add("/a", {"n": 1}))
        yield made


@contextmanager
def little_memory(most: int) -> Iterator[None]:
    """Fails when the block needs more than so many bytes at once."""
    tracemalloc.start()
    try:
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < most, f"{peak} bytes"


# --- JSOP ------------------------------------------------------------------------------------------------


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


# --- the Python API --------------------------------------------------------------------------------------

BAD_VALUES: list[tuple[Any, type[HbasemkError], str]] = [
    (MOST + 1, LimitError, "an int of 14285 bits has more than 4300 digits"),
    (-MOST - 1, LimitError, "more than 4300 digits"),
    (1 << 33_000_000, LimitError, "an int of 33000001 bits"),
    ([1, 1 << 33_000_000], LimitError, "an int of 33000001 bits"),
    (Json(LONG), LimitError, "the number 9999"),
    ([Json("-" + LONG)], LimitError, "the number -9999"),
    ("x" * limits.MAX_VALUE, LimitError, "a str of 10484736 characters"),
    (bytes(limits.MAX_VALUE), LimitError, "10484736 bytes"),
    (["x" * 1_000_000] * 11, LimitError, "a list of 11 elements"),
    (["x" * 1000] * 20_000, LimitError, "a list of 20000 elements"),
    ([[1 << 33_000_000]], InvalidValueError, "cannot hold another one"),
    ({1: 1 << 33_000_000}, InvalidValueError, "cannot hold dict"),
    (BlobRef("a" * 40_000), InvalidValueError, "the id of a blob"),
    (BlobRef("\ud800"), InvalidValueError, "the id of a blob"),
    (BlobRef(None), InvalidValueError, "the id of a blob"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("value", "kind", "said"), BAD_VALUES, ids=range(len(BAD_VALUES)))
@pytest.mark.parametrize("how", ["set", "add", "update"])
def test_values_beyond_the_limits_are_refused_with_path_and_name(
    repo: Repository, value: Any, kind: type[HbasemkError], said: str, how: str
) -> None:
    calls: dict[str, Callable[[Any], None]] = {
        "set": lambda tx: tx.set("/a", "p", value),
        "add": lambda tx: tx.add("/b", {"p": value}),
        "update": lambda tx: tx.update("/a", {"p": value}),
    }
    before = repo.head.revision
    with pytest.raises(kind, match=said) as raised:
        repo.run(calls[how])
    assert len(str(raised.value)) < 500
    assert f"property 'p' of {'/b' if how == 'add' else '/a'}".replace("/b", "'/b'").replace("of /a", "of '/a'") in str(
        raised.value
    )
    assert (raised.value.path, raised.value.name) == ("/b" if how == "add" else "/a", "p")  # type: ignore[attr-defined]
    assert repo.refresh().revision == before


def test_a_list_in_a_list_in_a_list_is_refused_however_deep(repo: Repository) -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(InvalidValueError, match="cannot hold another one"):
        repo.run(lambda tx: tx.set("/a", "p", deep))


def test_an_increment_cannot_pass_the_limit(repo: Repository) -> None:
    repo.run(lambda tx: tx.set("/a", "n", MOST))
    for amount in (1, 1 << 33_000_000):
        with pytest.raises(LimitError, match=r"property 'n' of '/a': .* more than 4300 digits"):
            repo.run(lambda tx, amount=amount: tx.increment("/a", "n", amount))  # type: ignore[misc]
    with pytest.raises(HbasemkError, match="an int of 33000001 bits"):
        repo.run(lambda tx: [tx.set("/a", "n", 1.5), tx.increment("/a", "n", 1 << 33_000_000)])
    assert repo.head["/a"]["n"] == MOST


@pytest.mark.parametrize("name", ["n" * 32_765, "é" * 16_383, "n" * 10_000_000], ids=range(3))
def test_long_names_are_refused_with_a_short_message(repo: Repository, name: str) -> None:
    with repo.transaction() as tx:
        for call in (
            lambda: tx.set("/a", name, 1),
            lambda: tx.increment("/a", name),
            lambda: tx.add("/" + name),
            lambda: tx.remove("/" + name),
            lambda: repo.head["/" + name],
        ):
            with pytest.raises(InvalidPathError, match="at most 3276") as raised:
                call()
            assert len(str(raised.value)) < 400
    with pytest.raises(InvalidPathError, match="at most 32764"):
        repo.run(lambda tx: tx.add("/b", {name: 1}))


def test_longest_name_is_accepted(repo: Repository) -> None:
    name = "n" * limits.MAX_NAME
    repo.run(lambda tx: tx.set("/a", name, 1))
    repo.run(lambda tx: tx.add("/" + name))
    assert repo.head["/a"][name] == 1
    assert "/" + name in repo.head
    assert paths.check_new("/" + name)


MESSAGES = ["m" * (limits.MAX_MESSAGE + 1), "é" * (limits.MAX_MESSAGE // 2 + 1), "m" * 20_000_000]


@pytest.mark.parametrize("message", MESSAGES, ids=range(3))
def test_long_messages_are_rejected_before_any_call(repo: Repository, message: str) -> None:
    mk = MicroKernel(repo)
    branch = mk.commit("", '+"/b":{}', mk.branch())
    before = repo.refresh().revision
    for call in (
        lambda: repo.transaction(message),
        lambda: repo.run(lambda tx: tx.add("/never"), message),
        lambda: repo.branch(message),
        lambda: repo.branch().merge(message),
        lambda: repo.branch().run(lambda tx: tx.add("/never"), message),
        lambda: mk.commit("", '+"/never":{}', None, message),
        lambda: mk.commit("", '+"/never":{}', branch, message),
        lambda: mk.merge(branch, message),
    ):
        with pytest.raises(LimitError, match=r"the message .* bytes; at most 65536") as raised:
            call()
        assert len(str(raised.value)) < 400
    assert repo.refresh().revision == before


def test_longest_message_round_trips(repo: Repository) -> None:
    repo.run(lambda tx: tx.add("/b"), "m" * limits.MAX_MESSAGE)
    assert next(repo.log()).message == "m" * limits.MAX_MESSAGE


# --- filters ---------------------------------------------------------------------------------------------


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


# --- JSON ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        '{"children": {"d": ' * 100_000,
        '{"children": {"d": ' * (limits.MAX_DEPTH + 1),
        '{"properties": {"n": ' + LONG + "}}",
        '{"properties": {"n": [1, -' + LONG + "]}}",
        '{"properties": {"n": {"$number": "' + LONG + '"}}}',
        '{"properties": {"n": {"$integer": "0x' + "f" * 10_000_000 + '"}}}',
        '{"properties": {"' + "n" * 40_000 + '": 1}}',
        '{"children": {"' + "n" * 40_000 + '": {}}}',
        '{"properties": {"s": "' + "s" * limits.MAX_VALUE + '"}}',
    ],
    ids=range(9),
)
def test_exported_json_is_bounded_while_it_is_read(text: str) -> None:
    with pytest.raises(
        InvalidValueError, match=r"the-file is not an exported tree: at character \d+.*(at most|limit)"
    ) as raised:
        list(read_tree(io.BytesIO(text.encode()), "the-file", "/"))
    assert len(str(raised.value)) < 1000


def test_a_number_of_the_json_reader_is_bounded() -> None:
    with pytest.raises(LimitError, match="at most 4300"):
        Number(LONG)


# --- the command line ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "value", "said"),
    [
        ("integer", LONG, "at most 4300 digits"),
        ("json", LONG, "at most 4300 digits"),
        ("json", "[" * 100_000, "is not of the type json"),
        ("json", '{"a":' * 100_000, "is not of the type json"),
        ("float", "x" * 100_000, "is not of the type float"),
    ],
    ids=range(5),
)
def test_arguments_are_refused_with_a_short_message(url: str, kind: str, value: str, said: str) -> None:
    with connect(url, poll_interval=0) as repo:
        repo.run(lambda tx: tx.add("/a"))
    done = CliRunner().invoke(cli, ["--url", url, "set", "-t", kind, "/a", "n", value], obj=Session())
    assert done.exit_code == 2
    assert said in done.output
    assert len(done.output) < 600


# --- what is stored already ------------------------------------------------------------------------------


@pytest.fixture
def old(repo: Repository, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """A repository with values beyond the limits, as earlier versions stored them."""
    with monkeypatch.context() as earlier:
        earlier.setattr(limits, "is_long_int", lambda value: False)
        earlier.setattr(limits, "is_long_number", lambda text: False)
        earlier.setattr(limits, "MAX_DEPTH", 3000)
        repo.run(lambda tx: tx.add("/old", {"n": 1 << 33_000_000, "all": [-(1 << 33_000_000), 1], "j": Json(LONG)}))
        repo.run(lambda tx: [tx.add("/d" * level) for level in range(1, 1201)])
    return repo


def test_large_numbers_that_are_stored_show_in_json_without_decimal_digits(old: Repository) -> None:
    mk = MicroKernel(old)
    before = mk.commit("", '+"/new":{}')
    shown = json.loads(str(mk.get_nodes("/old")))
    assert shown["n"] == ":integer:" + hex(1 << 33_000_000)
    assert shown["all"] == [":integer:" + hex(-(1 << 33_000_000)), 1]
    assert shown["j"] == ":json:" + LONG
    mk.commit("", '-"/old"')
    assert hex(1 << 33_000_000) in mk.diff(None, before)
    assert '-"/old"' in json.loads(mk.get_journal(before, None))[-1]["changes"]


def test_large_numbers_that_are_stored_are_read_and_shown_by_python(old: Repository) -> None:
    node = old.head["/old"]
    assert node["n"] == 1 << 33_000_000
    assert node["j"] == Json(LONG)
    assert len(repr(node)) < 10_000
    exported = json.loads("".join(export_json(old.head, "/old")))
    assert int(exported["properties"]["n"]["$integer"], 16) == 1 << 33_000_000
    assert exported["properties"]["j"] == {"$number": LONG} or exported["properties"]["j"] == LONG
    old.run(lambda tx: tx.copy("/old", "/again"))
    assert old.head["/again"] == node


def test_deep_nodes_that_are_stored_are_read_changed_and_removed(old: Repository) -> None:
    deepest = "/d" * 1200
    assert deepest in old.head
    assert len(list(old.head.walk("/d"))) == 1200
    old.run(lambda tx: tx.set(deepest, "p", 1))
    assert old.head[deepest]["p"] == 1
    mk = MicroKernel(old)
    assert str(mk.get_nodes("/d", None, 1200)).count('"d":') == 1199
    old.run(lambda tx: tx.remove("/d"))
    assert "/d" not in old.head

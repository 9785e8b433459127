"""Depth, lengths and digits are bounded on every way in, while the text is read; what is stored already stays readable."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from click.testing import CliRunner

from hbasemk import (
    BlobRef,
    HbasemkError,
    InvalidPathError,
    InvalidValueError,
    Json,
    LimitError,
    MicroKernel,
    Repository,
    connect,
)
from hbasemk.cli.main import cli
from hbasemk.cli.session import Session
from hbasemk.format import limits, paths
from hbasemk.jsop import Number
from hbasemk.repository import instance_of
from hbasemk.transfer.exporter import export_json
from hbasemk.transfer.json.reader import read_tree
from tests.support.uncached import without_cache

LONG = "9" * (limits.MAX_DIGITS + 1)
MOST = 10**limits.MAX_DIGITS - 1
FAR = "/" + "x" * 30_000
"""A path close to the limit."""
BAD_VALUES: list[tuple[Any, type[HbasemkError], str]] = [
    (MOST + 1, LimitError, "an int of 14285 bits has more than 4300 digits"),
    (-MOST - 1, LimitError, "more than 4300 digits"),
    (1 << 33_000_000, LimitError, "an int of 33000001 bits"),
    ([1, 1 << 33_000_000], LimitError, "an int of 33000001 bits"),
    (Json(LONG), LimitError, "the number 9999"),
    ([Json("-" + LONG)], LimitError, "the number -9999"),
    ("x" * limits.MAX_VALUE, LimitError, "a str of 10484736 characters"),
    ("é" * (limits.MAX_VALUE // 2), LimitError, "a str of 10484736 bytes in UTF-8 has more than 10484735"),
    (bytes(limits.MAX_VALUE), LimitError, "10484736 bytes"),
    (["x" * 1_000_000] * 11, LimitError, "a list of 11 elements"),
    (["x" * 1000] * 20_000, LimitError, "a list of 20000 elements"),
    ([[1 << 33_000_000]], InvalidValueError, "cannot hold another one"),
    ({1: 1 << 33_000_000}, InvalidValueError, "cannot hold dict"),
    (BlobRef("a" * 40_000), InvalidValueError, "the id of a blob"),
    (BlobRef("\ud800"), InvalidValueError, "the id of a blob"),
    (BlobRef(None), InvalidValueError, "the id of a blob"),  # type: ignore[arg-type]
    (BlobRef(""), InvalidValueError, "the id of a blob is its SHA-256, a str of 64 hexadecimal digits"),
    (BlobRef("ab" * 31), InvalidValueError, "the id of a blob"),
    (BlobRef("AB" * 32), InvalidValueError, "the id of a blob"),
    ([1, BlobRef("a" * 63 + "\n")], InvalidValueError, "the id of a blob"),
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


@pytest.mark.parametrize(
    "text",
    [
        '{"children": {"d": ' * 100_000,
        '{"children": {"d": ' * (limits.MAX_DEPTH + 1),
        '{"properties": {"n": ' + LONG + "}}",
        '{"properties": {"n": [1, -' + LONG + "]}}",
        '{"properties": {"n": {"$number": "' + LONG + '"}}}',
        '{"properties": {"n": {"$integer": "0x' + "f" * 2 * limits.MAX_VALUE + '"}}}',
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


def test_a_long_json_number_that_is_stored_is_read_after_adjusts(
    repo: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as earlier:
        earlier.setattr(limits, "is_long_int", lambda value: False)
        earlier.setattr(limits, "is_long_number", lambda text: False)
        repo.run(lambda tx: tx.add("/old", {"n": Json(LONG)}))
        repo.run(lambda tx: tx.adjust("/old", "n", 1))
    with without_cache(instance_of(repo)):
        assert repo.head["/old"]["n"] == int(Decimal(LONG)) + 1
        repo.run(lambda tx: tx.copy("/old", "/again"))
        assert repo.head["/again"]["n"] == int(Decimal(LONG)) + 1
        repo.run(lambda tx: tx.adjust("/old", "n", -1))
        assert repo.head["/old"]["n"] == Json(LONG)
        for method in ("increment", "adjust"):
            with pytest.raises(LimitError, match=r"'n' of '/old': .* more than 4300 digits"):
                repo.run(lambda tx, method=method: getattr(tx, method)("/old", "n", 1))
        repo.run(lambda tx: tx.remove("/old"))


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

"""Errors name arguments of the wrong type or size; objects that are not streams do no harm."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import pytest

from hbasemk import HbasemkError, InvalidRevisionError, InvalidValueError, Repository
from hbasemk.maintenance import LiveInstance
from hbasemk.microkernel import MicroKernel
from hbasemk.store.memory import MemoryStore
from tests.support.microkernel import Cluster

Call = Callable[[Any, str], object]

WRONG_TYPES: list[tuple[str, Call]] = [
    ("path", lambda mk, _: mk.get_nodes(None)),
    ("path", lambda mk, _: mk.get_nodes(5)),
    ("path", lambda mk, _: mk.get_nodes(b"/f")),
    ("path", lambda mk, _: mk.node_exists(5)),
    ("path", lambda mk, _: mk.get_child_node_count(None)),
    ("path", lambda mk, _: mk.commit(5, "")),
    ("path", lambda mk, _: mk.get_revision_history(0, -1, 5)),
    ("path", lambda mk, head: mk.get_journal(head, None, b"")),
    ("path", lambda mk, head: mk.diff(head, None, 5)),
    ("filter", lambda mk, _: mk.get_nodes("/", None, 0, 0, -1, 5)),
    ("depth", lambda mk, _: mk.get_nodes("/", None, None)),
    ("depth", lambda mk, _: mk.get_nodes("/", None, "1")),
    ("depth", lambda mk, _: mk.get_nodes("/", None, True)),
    ("offset", lambda mk, _: mk.get_nodes("/", None, 0, 0.5)),
    ("max_child_nodes", lambda mk, _: mk.get_nodes("/", None, 0, 0, "x")),
    ("depth", lambda mk, head: mk.diff(head, None, "/", None)),
    ("jsop_diff", lambda mk, _: mk.commit("/", None)),
    ("jsop_diff", lambda mk, _: mk.commit("/", b'+"a":{}')),
    ("message", lambda mk, _: mk.commit("/", '+"a":{}', None, 5)),
    ("message", lambda mk, _: mk.merge(mk.branch(), 5)),
    ("lifetime_ms", lambda mk, _: mk.checkpoint(1.5)),
    ("lifetime_ms", lambda mk, _: mk.checkpoint(None)),
    ("timeout_ms", lambda mk, head: mk.wait_for_commit(head, None)),
    ("timeout_ms", lambda mk, head: mk.wait_for_commit(head, "1")),
    ("since_ms", lambda mk, _: mk.get_revision_history(None, -1)),
    ("max_entries", lambda mk, _: mk.get_revision_history(0, None)),
    ("max_entries", lambda mk, _: mk.get_revision_history(0, 1.5)),
    ("position", lambda mk, _: mk.read(mk.write(io.BytesIO(b"x")), None, 1)),
    ("position", lambda mk, _: mk.read(mk.write(io.BytesIO(b"x")), "0", 1)),
    ("length", lambda mk, _: mk.read(mk.write(io.BytesIO(b"x")), 0, None)),
    ("length", lambda mk, _: mk.read(mk.write(io.BytesIO(b"x")), 0, 1.0)),
    ("blob_id", lambda mk, _: mk.read(5, 0, 1)),
    ("blob_id", lambda mk, _: mk.get_length(None)),
    ("stream", lambda mk, _: mk.write(None)),
    ("stream", lambda mk, _: mk.write(b"content")),
]


@pytest.mark.parametrize(("name", "call"), WRONG_TYPES, ids=[str(number) for number in range(len(WRONG_TYPES))])
def test_a_type_error_names_the_argument(mk: Cluster, name: str, call: Call) -> None:
    head = str(mk.get_head_revision())
    with pytest.raises(TypeError, match=rf"^{name} "):
        call(mk, head)
    assert mk.get_head_revision() == head


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("lifetime_ms", lambda mk, _: mk.checkpoint(2**64)),
        ("since_ms", lambda mk, _: mk.get_revision_history(2**64, -1)),
        ("timeout_ms", lambda mk, head: mk.wait_for_commit(head, 2**64)),
        ("depth", lambda mk, _: mk.get_nodes("/", None, 2**64)),
    ],
)
def test_numbers_beyond_64_bits_are_value_errors(mk: Cluster, name: str, call: Call) -> None:
    with pytest.raises(ValueError, match=f"{name} .* out of range"):
        call(mk, str(mk.get_head_revision()))


def test_the_largest_numbers_are_accepted(mk: Cluster) -> None:
    most = 2**63 - 1
    head = str(mk.get_head_revision())
    new = mk.commit("", '+"/x":{}')
    assert mk.wait_for_commit(head, most) == new
    assert mk.checkpoint(most) == new
    assert mk.get_revision_history(most, most) == "[]"
    assert mk.get_nodes("/x", None, most, most, most) == '{":childNodeCount":0}'
    assert mk.diff(head, new, "/", most) == '+"/x":{}'
    assert mk.read(mk.write(io.BytesIO(b"abc")), 1, most) == b"bc"


@pytest.mark.parametrize("bad", [None, 5, b"0000000000000000", "x"])
def test_an_error_names_an_invalid_revision_id(mk: Cluster, bad: Any) -> None:
    for call in (
        lambda: mk.merge(bad),
        lambda: mk.rebase(bad),
        lambda: mk.reset(bad, bad),
        lambda: mk.commit("", "", bad if bad is not None else 0),
    ):
        with pytest.raises(HbasemkError, match="not a revision id"):
            call()


@pytest.mark.parametrize("token", [":hash", ":id"])
@pytest.mark.parametrize("bad", [5, b"0000000000000000", "x", ""])
def test_a_token_does_not_hide_an_invalid_revision_id(mk: Cluster, token: str, bad: Any) -> None:
    """The argument had no effect, and no error."""
    kernel = mk.kernels[0]
    kernel.repository.refresh()
    shown = json.loads(str(kernel.get_nodes("/test", filter=f'{{"properties":["{token}"]}}')))[token]
    assert kernel.get_nodes(shown) == kernel.get_nodes(shown, kernel.get_head_revision())
    with pytest.raises(InvalidRevisionError, match="^revision_id: .* is not a revision id"):
        kernel.get_nodes(shown, bad)


# --- streams ---------------------------------------------------------------------------------------------


class Source:
    """The minimal interface of a stream."""

    def __init__(self, *blocks: Any) -> None:
        self.blocks = list(blocks)
        self.closed = False

    def read(self, size: int) -> Any:
        return self.blocks.pop(0) if self.blocks else b""

    def close(self) -> None:
        self.closed = True


def test_any_object_with_read_and_close_is_a_stream(mk: Cluster) -> None:
    source = Source(b"ab", bytearray(b"c"), b"de")
    assert mk.read(mk.write(source), 0, 9) == b"abcde"
    assert source.closed

    class WithoutClose:
        def read(self, size: int) -> bytes:
            return b""

    assert mk.get_length(mk.write(WithoutClose())) == 0


@pytest.mark.parametrize("block", [None, "text", "", 5, 0])
def test_a_block_that_is_not_bytes_does_not_end_a_stream(mk: Cluster, block: Any) -> None:
    source = Source(b"begin", block, b"end")
    with pytest.raises(InvalidValueError, match="instead of bytes"):
        mk.write(source)
    assert source.closed


def test_waiting_does_not_take_a_checkpoint_for_a_new_head(
    real_store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Repository(real_store, poll_interval=0) as repo:
        mk = MicroKernel(repo)
        head = mk.checkpoint(60_000)
        asked: list[bool] = []
        monkeypatch.setattr(LiveInstance, "wait_for", lambda self, is_over, seconds: asked.append(is_over()))
        assert mk.wait_for_commit(head, 1000) == head
        assert asked == [False]
        mk.commit("/", '+"a":{}')
        mk.wait_for_commit(head, 1000)
        assert asked == [False, True]

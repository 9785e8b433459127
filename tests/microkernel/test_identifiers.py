"""``:hash`` and ``:id`` given as paths, and texts that are not revisions."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from hbasemk import Checkpoint, InvalidPathError, MicroKernel, Repository, UnknownRevisionError
from hbasemk.format.watermark import Watermark
from hbasemk.kernel.journal import known_revisions
from hbasemk.kernel.reading.subtree_hashes import SubtreeHashes
from hbasemk.microkernel import hash_index
from hbasemk.repository import instance_of
from hbasemk.store.memory import MemoryStore
from hbasemk.testing.wrapped import Call, FaultyStore
from tests.support.microkernel import Cluster
from tests.support.repositories import Checked, Instances

CHOSEN = '{"properties":["*",":hash",":id"]}'


def shown(kernel: MicroKernel, path: str, depth: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(str(kernel.get_nodes(path, None, depth, 0, -1, CHOSEN)))
    return found


def test_the_hash_returned_last_is_found_in_a_tree_of_any_size(
    opened: Instances, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hash_index, "LIMIT", 5)
    kernel = MicroKernel(opened())
    kernel.commit("", '+"/a":{"v":-1,' + ",".join(f'"n{n}":{{"v":{n},"c":{{"w":{n}}}}}' for n in range(30)) + "}")
    for depth in (0, 1, 2):
        top = shown(kernel, "/a", depth)
        assert json.loads(str(kernel.get_nodes(top[":hash"], None, 0)))["v"] == -1
        if depth:
            for number in range(30):
                assert json.loads(str(kernel.get_nodes(top[f"n{number}"][":hash"], None, 0)))["v"] == number
    last = shown(kernel, "/a/n1", 1)
    for number in range(4):
        shown(kernel, f"/a/n{number + 10}", 0)
    assert kernel.get_nodes(last["c"][":hash"], None, 0) == '{"w":1,":childNodeCount":0}'
    for number in range(5):
        shown(kernel, f"/a/n{number + 20}", 0)
    with pytest.raises(InvalidPathError):
        kernel.get_nodes(last["c"][":hash"], None, 0)


def test_many_threads_can_request_hashes(opened: Instances, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hash_index, "LIMIT", 1)
    kernel = MicroKernel(opened())
    kernel.commit("", "".join(f'+"/n{number}":{{"v":{number}}}' for number in range(4)))
    errors: list[BaseException] = []

    def ask(number: int) -> None:
        try:
            for _ in range(50):
                assert shown(kernel, f"/n{number}", 0)["v"] == number
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_fork_while_another_thread_shows_hashes_leaves_the_child_usable(opened: Instances) -> None:
    kernel = MicroKernel(opened())
    kernel.commit("", '+"/a":{"b":{"v":1}}')
    old = shown(kernel, "/a/b", 0)[":hash"]
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        # Another thread stays inside the hash index for as long as the test needs.
        with kernel._hashes._lock:
            held.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            signal.alarm(20)
            new = shown(kernel, "/a", 0)[":hash"]
            texts = [str(kernel.get_nodes(one, None, 1)) for one in (old, new)]
            os.write(writer, json.dumps([json.loads(text).get("v") for text in texts]).encode())
        except BaseException as error:
            os.write(writer, repr(error).encode()[:4000])
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as said:
        answer = said.read()
    os.waitpid(child, 0)
    done.set()
    thread.join()
    assert answer == b"[1, null]"


def test_the_error_names_an_id_without_a_valid_path(mk: Cluster) -> None:
    mk.commit("", '+"/a":{"b":{"p":1}} +"/n1":{}')
    kernel = mk.next
    found = shown(kernel, "/a", 0)[":id"]
    assert kernel.get_nodes(found + "/b", None, 0) == '{"p":1,":childNodeCount":0}'
    assert kernel.get_nodes(found + "/none", None, 0) is None
    for bad in (found + "/", found + "/../n1", found + "//b", found + "/./b"):
        with pytest.raises(InvalidPathError):
            kernel.get_nodes(bad, None, 0)


@pytest.mark.parametrize("bad", ["content:/a", ":/a", "ffff.1234:/a", "x", "x:a", ":", "", "z" * 300 + ":/a"])
def test_the_error_for_a_path_that_is_not_absolute_names_the_path(mk: Cluster, bad: str) -> None:
    """For a text such as content:/a it said: 'content' is not a revision id."""
    with pytest.raises(InvalidPathError, match="is not an absolute path; expected one, or a :hash or :id") as raised:
        mk.get_nodes(bad)
    assert repr(bad[:50])[:-1] in str(raised.value)
    assert len(str(raised.value)) < 300


@pytest.mark.parametrize("bad", ["7000000000000000", "0000000000000001", "7000000000000080"])
def test_a_missing_revision_is_unknown_to_branch_calls_too(mk: Cluster, bad: str) -> None:
    branch = mk.commit("", '+"/b":{}', mk.branch())
    for call in (
        lambda: mk.merge(bad),
        lambda: mk.rebase(bad),
        lambda: mk.rebase(branch, bad),
        lambda: mk.reset(bad, branch),
        lambda: mk.reset(branch, bad),
    ):
        with pytest.raises(UnknownRevisionError):
            call()
    assert mk.reset(branch, branch) == branch


class TwoViews:
    """Two commits that two instances see in different orders: ``first`` sees "m" before "n", and ``other`` the reverse.

    ``revision`` is that of the commit of "m", and ``shown`` the tree at /c in it, as ``first`` sees it.
    """

    def __init__(self, checked: Checked) -> None:
        self.store = checked(MemoryStore(transactions=False))
        faulty = FaultyStore(self.store)
        self.first = Repository(self.store, poll_interval=0, owns_store=False)
        self.kernel = MicroKernel(self.first)
        self.other = Repository(self.store, poll_interval=0, owns_store=False)
        self.first.run(lambda tx: tx.add("/c", {"n": 0, "m": 0}))
        self.other.refresh()
        with Repository(faulty, poll_interval=0, owns_store=False) as slow:

            def commit_meanwhile(call: Call) -> None:
                if call.method in ("write_if", "write") and call.table == "nodes":
                    faulty.before = None
                    self.first.run(lambda tx: tx.set("/c", "m", 1))
                    self.revision = self.kernel.get_head_revision()
                    self.shown = shown(self.kernel, "/c", 0)

            faulty.before = commit_meanwhile
            slow.run(lambda tx: tx.set("/c", "n", 1))
        assert (self.shown["m"], self.shown["n"]) == (1, 0)
        self.other.refresh()
        assert self.other.head.revision == self.revision
        assert (self.other.head["/c"]["m"], self.other.head["/c"]["n"]) == (1, 1)

    def checkpoint(self) -> Checkpoint:
        """Let ``other`` keep its view of the revision, which contains both commits."""
        made = self.other.checkpoint(3600)
        assert made.revision == self.revision
        self.first.refresh()
        assert self.first.at(self.revision)["/c"]["n"] == 1
        return made

    def drop_positions(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let ``first`` drop the position of the revision, as it does after 10,000 more."""
        monkeypatch.setattr(known_revisions, "KEPT", 2)
        for number in range(8):
            self.first.run(lambda tx, number=number: tx.set("/c", "later", number))
        journal = instance_of(self.first).journal
        with journal._lock:
            journal._shorten(Watermark(journal.head.revision, frozenset()), journal.head.revision)
        assert journal.view_of(int(self.revision, 16)) is None


@pytest.fixture
def views(checked: Checked) -> Iterator[TwoViews]:
    made = TwoViews(checked)
    yield made
    made.first.close()
    made.other.close()


@pytest.mark.parametrize("token", [":hash", ":id"])
def test_a_token_finds_its_snapshot_although_a_checkpoint_keeps_another_one_of_the_revision(
    views: TwoViews, token: str
) -> None:
    views.checkpoint()
    views.first.run(lambda tx: tx.set("/c", "later", 1))
    assert shown(views.kernel, views.shown[token], 0) == views.shown


@pytest.mark.parametrize("kept", [False, True])
def test_a_hash_whose_snapshot_is_known_costs_no_walk(
    opened: Instances, kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = MicroKernel(opened())
    kernel.commit("", '+"/a":{"b":{"p":1}}')
    if kept:
        kernel.checkpoint(3_600_000)
    found = [shown(kernel, "/a", 0), json.loads(str(kernel.get_nodes("/a", kernel.branch(), 0, 0, -1, CHOSEN)))]
    found.append(json.loads(str(kernel.get_nodes("/a", kernel.get_head_revision(), 0, 0, -1, CHOSEN))))
    kernel.commit("", '^"/a/b/p":2')
    kernel.checkpoint(3_600_000)
    monkeypatch.setattr(SubtreeHashes, "of", lambda *_: pytest.fail("a walk"))
    for one in found:
        assert kernel.get_nodes(one[":hash"], None, 2) == '{":childNodeCount":1,"b":{"p":1,":childNodeCount":0}}'


@pytest.mark.parametrize("kept", [False, True])
def test_a_token_of_a_dropped_position_never_shows_another_tree(
    views: TwoViews, kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kept:
        views.checkpoint()
    views.first.refresh()
    views.drop_positions(monkeypatch)
    assert views.first.at(views.revision)["/c"]["n"] == 1
    for token in (":hash", ":id"):
        with pytest.raises(UnknownRevisionError, match=views.revision):
            views.kernel.get_nodes(views.shown[token])
    views.first.run(lambda tx: (tx.set("/c", "n", 0), tx.set("/c", "later", None)))
    assert shown(views.kernel, views.shown[":hash"], 0)[":hash"] == views.shown[":hash"]


def test_the_tokens_of_a_checkpoint_that_ended_never_show_another_tree(views: TwoViews) -> None:
    made = views.checkpoint()
    kept = json.loads(str(views.kernel.get_nodes("/c", views.revision, 0, 0, -1, CHOSEN)))
    assert kept["n"] == 1
    assert kept[":id"] != views.shown[":id"]
    for token in (":hash", ":id"):
        assert shown(views.kernel, kept[token], 0) == kept
    made.release()
    views.first.refresh()
    assert views.first.at(views.revision)["/c"]["n"] == 0
    with pytest.raises(UnknownRevisionError, match=views.revision):
        views.kernel.get_nodes(kept[":id"])
    assert shown(views.kernel, kept[":hash"], 0)[":hash"] == kept[":hash"]
    assert shown(views.kernel, views.shown[":id"], 0) == views.shown

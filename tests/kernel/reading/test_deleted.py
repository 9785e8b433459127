"""Errors distinguish a deleted node from one that never existed, and name the revision that deleted it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hbasemk import MicroKernel, NodeDeletedError, NodeNotFoundError, NodeStatus, Repository, connect
from hbasemk.testing.wrapped import CountingStore
from tests.support.commands import run_captured
from tests.support.repositories import Instances


@pytest.fixture
def repo(opened: Instances) -> Repository:
    """A repository with /a and /a/b; /gone and /gone/below were deleted, and /back was deleted and added again."""
    made = opened()
    for change in (
        lambda tx: [tx.add(path) for path in ("/a", "/a/b", "/gone", "/gone/below", "/back")],
        lambda tx: (tx.remove("/gone"), tx.remove("/back")),
        lambda tx: tx.add("/back"),
    ):
        made.run(change)
    return made


def deleted_in(repo: Repository) -> str:
    """Return the revision that deleted /gone."""
    (_, deletion, *_) = repo.log()
    return deletion.revision


def test_the_status_of_many_paths_is_one_call(repo: Repository, opened: Instances) -> None:
    by = deleted_in(repo)
    paths = ["/a", "/gone", "/gone/below", "/none", "/a/none", "/back", "/", "/a"]
    other = opened(CountingStore(opened.new_store()))
    store = other.store
    assert isinstance(store, CountingStore)
    store.take()
    head = other.head
    found = head.status(paths)
    assert store.take() == {("read", "nodes"): 1}
    assert list(found) == list(dict.fromkeys(paths))
    assert found == {
        "/a": NodeStatus("present", head["/a"].revision),
        "/gone": NodeStatus("deleted", by),
        "/gone/below": NodeStatus("deleted", by),
        "/none": NodeStatus("absent", None),
        "/a/none": NodeStatus("absent", None),
        "/back": NodeStatus("present", head.revision),
        "/": NodeStatus("present", head.revision),
    }
    assert list(head.status(["/none", "/a", "/gone"])) == ["/none", "/a", "/gone"]
    store.take()
    # Present nodes that are cached need no call.
    assert head.status(["/a"]) == {"/a": found["/a"]}
    assert head.status([]) == {}
    assert store.take() == {}


def test_an_older_snapshot_shows_the_status_of_its_time(repo: Repository) -> None:
    history = [entry.revision for entry in repo.log()]
    added, first = history[2], history[3]
    assert repo.at(added).status(["/gone"])["/gone"] == NodeStatus("present", added)
    assert repo.at(first).status(["/gone", "/back"]) == dict.fromkeys(["/gone", "/back"], NodeStatus("absent", None))
    assert repo.at(history[1]).status(["/back"])["/back"] == NodeStatus("deleted", history[1])


def test_a_branch_shows_what_it_deleted(repo: Repository) -> None:
    branch = repo.branch()
    branch.run(lambda tx: tx.remove("/a"))
    assert branch.head.status(["/a", "/a/b", "/back"]) == {
        "/a": NodeStatus("deleted", branch.revision),
        "/a/b": NodeStatus("deleted", branch.revision),
        "/back": NodeStatus("present", repo.head["/back"].revision),
    }
    assert repo.head.status(["/a"])["/a"].status == "present"


def test_bad_paths_are_refused(repo: Repository) -> None:
    with pytest.raises(TypeError, match="paths must be a sequence of paths"):
        repo.head.status("/a")
    with pytest.raises(ValueError, match="relative"):
        repo.head.status(["relative"])


USES: dict[str, Callable[[Any, str], object]] = {
    "set": lambda tx, path: tx.set(path, "p", 1),
    "unset": lambda tx, path: tx.unset(path, "p"),
    "update": lambda tx, path: tx.update(path, {"p": 1}),
    "increment": lambda tx, path: tx.increment(path, "p"),
    "remove": lambda tx, path: tx.remove(path),
    "move": lambda tx, path: tx.move(path, "/moved"),
    "copy": lambda tx, path: tx.copy(path, "/copied"),
    "add below": lambda tx, path: tx.add(f"{path}/new"),
    "move below": lambda tx, path: tx.move("/a", f"{path}/new"),
    "properties": lambda tx, path: tx.properties(path),
    "children": lambda tx, path: tx.children(path),
    "item": lambda tx, path: tx[path, "p"],
}


@pytest.mark.parametrize("name", USES)
@pytest.mark.parametrize("where", ["head", "transaction", "branch"])
def test_every_operation_distinguishes_the_two(repo: Repository, name: str, where: str) -> None:
    def run(path: str) -> None:
        if where == "transaction":
            with repo.transaction() as tx:
                USES[name](tx, path)
        else:
            (repo if where == "head" else repo.branch()).run(lambda tx: USES[name](tx, path))

    with pytest.raises(
        NodeDeletedError, match=f"no node at /gone .*: revision {deleted_in(repo)} deleted it"
    ) as caught:
        run("/gone")
    assert caught.value.deleted_in == deleted_in(repo)
    with pytest.raises(NodeNotFoundError, match="no node at /none in revision .*, and there never was one") as other:
        run("/none")
    assert not isinstance(other.value, NodeDeletedError)


@pytest.mark.parametrize("name", ["properties", "children", "set", "copy"])
def test_what_the_transaction_itself_removed_is_neither(repo: Repository, name: str) -> None:
    tx = repo.transaction()
    tx.remove("/a")
    with pytest.raises(NodeNotFoundError, match="an earlier operation of this commit removed it") as caught:
        USES[name](tx, "/a")
        tx.exists("/")
    assert not isinstance(caught.value, NodeDeletedError)


def test_snapshots_tell_the_two_apart(repo: Repository) -> None:
    head = repo.head
    for use in (lambda path: head[path], head.children, head.child_count, lambda path: list(head.walk(path))):
        with pytest.raises(NodeDeletedError, match="deleted it"):
            use("/gone")
        with pytest.raises(NodeNotFoundError, match="never was one"):
            use("/none")


def test_the_microkernel_distinguishes_the_two(repo: Repository) -> None:
    mk = MicroKernel(repo)
    for jsop in ('-"{}"', '^"{}/p":1', '+"{}/new":{{}}', '>"{}":"/moved"', '*"{}":"/copied"'):
        with pytest.raises(NodeDeletedError, match=f"revision {deleted_in(repo)} deleted it"):
            mk.commit("", jsop.format("/gone"))
        with pytest.raises(NodeNotFoundError, match="never was one") as caught:
            mk.commit("", jsop.format("/none"))
        assert not isinstance(caught.value, NodeDeletedError)
    with pytest.raises(NodeDeletedError, match="deleted it"):
        mk.get_child_node_count("/gone")


COMMANDS = {
    "cat": (),
    "ls": (),
    "nodes": (),
    "rm": (),
    "set": ("p", "1"),
    "mv": ("/moved",),
    "cp": ("/copied",),
    "export": ("-f", "json", "-"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_tell_the_two_apart(name: str, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    with connect(url, poll_interval=0) as repo:
        repo.run(lambda tx: tx.add("/gone"))
        repo.run(lambda tx: tx.remove("/gone"))
        by = repo.head.revision
    for path, said in (("/gone", f"revision {by} deleted it"), ("/none", "never was one")):
        code, out, err = run_captured(capsys, "--url", url, name, path, *COMMANDS[name])
        assert (code, out) == (1, "")
        assert said in err

"""``:hash`` and ``:id`` given as paths, and revisions that are none."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from hbasemk import InvalidPathError, MicroKernel, UnknownRevisionError
from hbasemk.microkernel import microkernel
from tests.microkernel.conftest import Cluster
from tests.support.repositories import Instances

CHOSEN = '{"properties":["*",":hash",":id"]}'


def shown(kernel: MicroKernel, path: str, depth: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(str(kernel.get_nodes(path, None, depth, 0, -1, CHOSEN)))
    return found


def test_a_hash_that_was_shown_last_is_found_however_large_the_tree_is(
    opened: Instances, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(microkernel, "HASHES", 5)
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


def test_hashes_may_be_asked_for_by_many_threads(opened: Instances, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(microkernel, "HASHES", 1)
    kernel = MicroKernel(opened())
    kernel.commit("", "".join(f'+"/n{number}":{{"v":{number}}}' for number in range(4)))
    trouble: list[BaseException] = []

    def ask(number: int) -> None:
        try:
            for _ in range(50):
                assert shown(kernel, f"/n{number}", 0)["v"] == number
        except BaseException as error:
            trouble.append(error)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert trouble == []


def test_an_id_whose_path_is_none_is_told(mk: Cluster) -> None:
    mk.commit("", '+"/a":{"b":{"p":1}} +"/n1":{}')
    kernel = mk.next
    found = shown(kernel, "/a", 0)[":id"]
    assert kernel.get_nodes(found + "/b", None, 0) == '{"p":1,":childNodeCount":0}'
    assert kernel.get_nodes(found + "/none", None, 0) is None
    for bad in (found + "/", found + "/../n1", found + "//b", found + "/./b"):
        with pytest.raises(InvalidPathError):
            kernel.get_nodes(bad, None, 0)


@pytest.mark.parametrize("bad", ["7000000000000000", "0000000000000001", "7000000000000080"])
def test_a_revision_that_is_nowhere_is_unknown_to_branches_too(mk: Cluster, bad: str) -> None:
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

"""Every parameter of the public API rejects a wrong type by its name; no error comes from inside."""

from __future__ import annotations

import functools
import inspect
import io
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

import hbasemk
from hbasemk import (
    Branch,
    HbasemkError,
    InvalidPathError,
    InvalidValueError,
    MicroKernel,
    Repository,
    Settings,
    Snapshot,
    Transaction,
    connect,
)
from hbasemk.blobs import RepositoryBlobs
from hbasemk.format.limits import shown
from hbasemk.store.memory import MemoryStore


class _Other:
    """A type that no parameter accepts. Its name is the same in each process, as names of test cases require."""

    def __repr__(self) -> str:
        return "another object"


OTHER = _Other()
WRONG = [None, 1, b"", [], OTHER, 10**5000]

FINE: dict[str, Callable[[Any], bool]] = {
    # Parameters that accept one of the wrong values.
    "properties": lambda value: value is None,
    "value": lambda value: value is not OTHER,
    "default": lambda value: True,
    "amount": lambda value: value == 1,
    "by": lambda value: value == 1,
    "after": lambda value: value is None,
    "limit": lambda value: value is None or value in (1, 10**5000),
    "depth": lambda value: value is None or value in (1, 10**5000),
    "until": lambda value: value is None,
    "base": lambda value: value is None,
    "version": lambda value: value is None,
    "schema_version": lambda value: value is None or value == 1,
    "new": lambda value: value == 1,
    "expected": lambda value: False,
    "if_version": lambda value: value is None,
    "retry_timeout": lambda value: value is None or value == 1,
    "poll_interval": lambda value: value == 1,
    "cache_bytes": lambda value: value == 1 or value == 10**5000,
    "settings": lambda value: value is None,
    "timeout": lambda value: value is None or value == 1,
    "retention": lambda value: value == 1,
    "since": lambda value: value is None,
    "paths": lambda value: value == [],
    "position": lambda value: value == 1 or value == 10**5000,
    "length": lambda value: value is None or value == 1 or value == 10**5000,
    "content": lambda value: value == b"",
    "to_revision": lambda value: value is None,
    "lifetime": lambda value: value == 1,
    "snapshot": lambda value: value is None,
    "revision_id": lambda value: value is None,
    "old_head": lambda value: value is None,
    "filter": lambda value: value is None,
    "trunk_revision_id": lambda value: value is None,
    "new_base_revision_id": lambda value: value is None,
}
LENIENT: dict[tuple[str, str], Callable[[Any], bool]] = {
    ("Snapshot.get", "path"): lambda value: True,
    ("Branch.merge", "message"): lambda value: value is None,
    ("Repository.branch", "revision"): lambda value: value is None,
    ("Repository.diff", "after"): lambda value: value is None,
    ("diff", "after"): lambda value: False,
    ("MicroKernel.commit", "message"): lambda value: value is None,
    ("MicroKernel.merge", "message"): lambda value: value is None,
    ("MicroKernel.commit", "path"): lambda value: value is None,
    ("MicroKernel.diff", "path"): lambda value: value is None,
    ("MicroKernel.diff", "from_revision"): lambda value: value is None,
    ("MicroKernel.diff", "depth"): lambda value: value == 1,
    ("MicroKernel.get_nodes", "depth"): lambda value: value == 1,
    ("MicroKernel.get_journal", "path"): lambda value: value is None,
    ("MicroKernel.get_journal", "from_revision"): lambda value: value is None,
    ("MicroKernel.get_revision_history", "path"): lambda value: value is None,
    ("MicroKernel.get_nodes", "offset"): lambda value: value == 1,
    ("MicroKernel.get_nodes", "max_child_nodes"): lambda value: value == 1,
    ("MicroKernel.get_revision_history", "since_ms"): lambda value: value == 1,
    ("MicroKernel.get_revision_history", "max_entries"): lambda value: value == 1,
    ("MicroKernel.checkpoint", "lifetime_ms"): lambda value: value == 1,
    ("MicroKernel.wait_for_commit", "timeout_ms"): lambda value: value == 1,
    ("MicroKernel.read", "position"): lambda value: value == 1,
    ("MicroKernel.read", "length"): lambda value: value == 1,
    ("connect", "cache_bytes"): lambda value: value == 1 or value == 10**5000,
}
INSIDE = {"source", "staged", "ended", "begun", "own", "commit_on_head", "wait"}
"""Public by name only: the other parts of the package call them."""
SPELLED = {"value": "property 'n' of '/a'", "amount": ""}
"""The names of parameters in messages, if they differ from the parameter."""


@pytest.fixture
def repo(real_store: MemoryStore) -> Iterator[Repository]:
    with Repository(real_store, poll_interval=0) as made:
        made.run(lambda tx: tx.add("/a", {"n": 1}))
        yield made


def good(repo: Repository) -> dict[str, Any]:
    """Return a valid value for a parameter."""
    mk = MicroKernel(repo)
    return {
        "path": "/a",
        "name": "n",
        "value": 2,
        "amount": 1,
        "by": 1,
        "properties": {"n": 3},
        "source": "/a",
        "target": "/b",
        "paths": ["/a"],
        "change": lambda tx: None,
        "message": "why",
        "before": repo.head,
        "after": repo.head,
        "base": repo.head,
        "snapshot": repo.head,
        "revision": repo.head.revision,
        "until": repo.head.revision,
        "version": None,
        "new": 0,
        "expected": 0,
        "isolation": "snapshot",
        "ref": repo.blobs.write(b"content"),
        "content": b"content",
        "retention": 1e6,
        "lifetime": 60,
        "repository": repo,
        "store": MemoryStore(),
        "url": "memory://",
        "jsop_diff": "",
        "revision_id": repo.head.revision,
        "from_revision": repo.head.revision,
        "to_revision": repo.head.revision,
        "branch_revision_id": mk.branch(),
        "ancestor_revision_id": repo.head.revision,
        "trunk_revision_id": repo.head.revision,
        "blob_id": mk.write(io.BytesIO(b"x")),
        "position": 0,
        "length": 1,
        "lifetime_ms": 1000,
        "timeout_ms": 0,
        "old_head": repo.head.revision,
        "since_ms": 0,
        "max_entries": 1,
        "stream": io.BytesIO(b"x"),
        "to": repo.head.revision,
    }


SUBJECTS: dict[str, Callable[[Repository], Any]] = {
    "Repository": lambda repo: repo,
    "Snapshot": lambda repo: repo.head,
    "Node": lambda repo: repo.head["/a"],
    "Transaction": lambda repo: repo.transaction(),
    "Branch": lambda repo: repo.branch(),
    "Checkpoint": lambda repo: repo.checkpoint(60),
    "RepositoryBlobs": lambda repo: repo.blobs,
    "MicroKernel": MicroKernel,
}
CLASSES = (Repository, Snapshot, hbasemk.Node, Transaction, Branch, hbasemk.Checkpoint, RepositoryBlobs, MicroKernel)


def parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    return [
        one
        for one in inspect.signature(function).parameters.values()
        if one.name != "self" and one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL)
    ]


def _all() -> Iterator[tuple[str, str]]:
    for cls in CLASSES:
        for name, function in vars(cls).items():
            if inspect.isfunction(function) and not name.startswith("_") and name not in INSIDE:
                for one in parameters(function):
                    yield f"{cls.__name__}.{name}", one.name
    for one in parameters(Repository.__init__):
        yield "Repository", one.name
    yield "MicroKernel", "repository"
    for name in ("url", "create", "settings", "poll_interval", "retry_timeout", "cache_bytes", "schema_version"):
        yield "connect", name
    for name in ("before", "after", "path"):
        yield "diff", name


PUBLIC = sorted(_all())


def call(repo: Repository, what: str, name: str, value: object) -> None:
    subject, _, method = what.partition(".")
    given = good(repo)
    if method:
        function = getattr(SUBJECTS[subject](repo), method)
    else:
        function = {"Repository": Repository, "MicroKernel": MicroKernel, "connect": connect, "diff": hbasemk.diff}[
            subject
        ]
    wanted = [one for one in inspect.signature(function).parameters.values() if one.default is one.empty]
    options = {one.name: given[one.name] for one in wanted if one.kind is not one.VAR_KEYWORD}
    options[name] = value
    result = function(**options)
    if isinstance(result, Iterator) and what != "Repository.watch":
        for _ in result:
            pass
    if isinstance(result, Transaction):
        result.commit()
    if subject == "Transaction":
        # Values are validated when the transaction is staged.
        function.__self__.commit()
    if isinstance(result, Repository) and result is not repo:
        result.close()


@pytest.mark.parametrize("wrong", WRONG, ids=shown)
@pytest.mark.parametrize(("what", "name"), PUBLIC, ids=[".".join(one) for one in PUBLIC])
def test_a_wrong_type_is_refused_by_the_parameters_name(repo: Repository, what: str, name: str, wrong: Any) -> None:
    fine = LENIENT.get((what, name)) or FINE.get(name, lambda value: False)
    try:
        call(repo, what, name, wrong)
    except (TypeError, ValueError, HbasemkError) as error:
        assert not isinstance(error, UnicodeError)
        if fine(wrong) and isinstance(error, HbasemkError):
            return
        assert SPELLED.get(name, name) in str(error), f"{error!r} does not name {name}"
        assert len(str(error)) < 700
    else:
        assert fine(wrong), f"{what}({name}={shown(wrong)}) was taken"


def test_the_list_of_parameters_is_not_empty() -> None:
    assert len(PUBLIC) > 90


# --- mappings --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["x", "", "a/b", "//", "/a/", "/..", "/" + "x" * 40_000, None, 1, b"/a", [], ("/a",)], ids=shown
)
def test_a_snapshot_or_transaction_does_not_contain_invalid_paths(repo: Repository, text: Any) -> None:
    assert text not in repo.head
    assert repo.head.get(text) is None
    assert repo.head.get(text, 5) == 5
    with repo.transaction() as tx:
        assert text not in tx
    for isolated in (repo.transaction(isolation="serializable"),):
        assert text not in isolated


@pytest.mark.parametrize("name", [None, 1, b"n", [], ("n",), OTHER], ids=shown)
def test_a_node_does_not_contain_invalid_names(repo: Repository, name: Any) -> None:
    assert name not in repo.head["/a"]
    with pytest.raises(TypeError, match="name must be a str"):
        repo.head["/a"][name]


def test_a_snapshot_contains_existing_paths(repo: Repository) -> None:
    assert "/" in repo.head
    assert "/a" in repo.head
    assert "/b" not in repo.head
    assert repo.head.get("/a") == repo.head["/a"]
    assert repo.head.get("/b") is None
    assert "n" in repo.head["/a"]
    assert "m" not in repo.head["/a"]


def test_a_node_without_properties_is_truthy(repo: Repository) -> None:
    repo.run(lambda tx: tx.add("/empty"))
    node = repo.head.get("/empty")
    assert node
    assert dict(node) == {}
    assert bool(repo.head)
    assert repo.head.nodes(["/empty", "/none"]) == {"/empty": node, "/none": None}


def test_a_single_path_is_not_a_list_of_paths(repo: Repository) -> None:
    with pytest.raises(TypeError, match="paths must be a sequence of paths, got '/a'"):
        repo.head.nodes("/a")
    with repo.transaction() as tx, pytest.raises(TypeError, match="paths must be a sequence of paths, got '/a'"):
        tx.load("/a")


@pytest.mark.parametrize(
    ("name", "error"),
    [
        *((name, TypeError) for name in (None, 1, b"n", ("n",), OTHER)),
        *((name, InvalidPathError) for name in ("", "a/b", ".", "..", "x" * 40_000)),
    ],
    ids=shown,
)
def test_add_rejects_an_invalid_name_at_the_call(repo: Repository, name: Any, error: type[Exception]) -> None:
    with repo.transaction() as tx:
        with pytest.raises(error) as raised:
            tx.add("/new", {"fine": 1, name: 2})
        # The message names the node and the name; the transaction goes on without the rejected change.
        assert "/new" in str(raised.value)
        assert shown(name) in str(raised.value)
        assert not tx.exists("/new")
        tx.set("/a", "n", 2)
    assert repo.head["/a"]["n"] == 2
    assert "/new" not in repo.head


BY_NAME: dict[str, Callable[[Transaction, Any], None]] = {
    "set": lambda tx, name: tx.set("/a", name, 2),
    "unset": lambda tx, name: tx.unset("/a", name),
    "update": lambda tx, name: tx.update("/a", {"n": 5, name: 2}),
    "increment": lambda tx, name: tx.increment("/a", name),
    "adjust": lambda tx, name: tx.adjust("/a", name, 1),
}


@pytest.mark.parametrize("change", BY_NAME.values(), ids=BY_NAME)
@pytest.mark.parametrize(
    ("name", "error"), [(5, TypeError), *((name, InvalidPathError) for name in ("", "a/b", ".", "..", "x" * 40_000))]
)
def test_an_invalid_name_of_a_property_is_refused_with_the_path_of_its_node(
    repo: Repository, change: Callable[[Transaction, Any], None], name: Any, error: type[Exception]
) -> None:
    with repo.transaction() as tx:
        with pytest.raises(error) as raised:
            change(tx, name)
        assert "a property of '/a'" in str(raised.value)
        assert shown(name) in str(raised.value)
        tx.set("/a", "m", 2)
    assert dict(repo.head["/a"]) == {"n": 1, "m": 2}


@pytest.mark.parametrize("given", [{}, {"n": 2}], ids=["no property", "one property"])
def test_an_update_refuses_an_invalid_path(repo: Repository, given: dict[str, Any]) -> None:
    with repo.transaction() as tx:
        with pytest.raises(TypeError, match="path must be a path, such as '/a/b', got None"):
            tx.update(None, given)  # type: ignore[arg-type]
        with pytest.raises(InvalidPathError, match="'a' is not a valid path"):
            tx.update("a", given)


def test_arguments_are_validated_before_the_first_result_is_requested(repo: Repository) -> None:
    with pytest.raises(TypeError, match="path"):
        repo.head.walk(1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="before"):
        hbasemk.diff(None, repo.head)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="depth must be at least 0"):
        repo.head.walk("/a", -1)


def test_a_repository_accepts_only_settings_objects() -> None:
    with pytest.raises(TypeError, match="settings must be a hbasemk.Settings"):
        Repository(MemoryStore(), settings={"lease_ms": 1000})  # type: ignore[arg-type]
    Repository(MemoryStore(), settings=Settings(), poll_interval=0).close()


# --- the errors of the library ---------------------------------------------------------------------------


def _of_another_object(repo: Repository, use: Callable[[Snapshot], Any]) -> None:
    with connect("memory://", poll_interval=0) as other:
        use(other.head)


OUT_OF_RANGE: dict[str, Callable[[Repository], Any]] = {
    "the isolation of transaction": lambda repo: repo.transaction(isolation="none"),  # type: ignore[arg-type]
    "the isolation of run": lambda repo: repo.run(lambda tx: None, isolation="none"),  # type: ignore[arg-type]
    "the isolation of Branch.run": lambda repo: repo.branch().run(lambda tx: None, isolation="none"),  # type: ignore[arg-type]
    "the limit of children": lambda repo: repo.head.children("/", limit=-1),
    "the depth of walk": lambda repo: repo.head.walk("/", -1),
    "the number of adjust": lambda repo: repo.adjust("/a", "n", float("nan")),
    "the position of a blob": lambda repo: repo.blobs.read(repo.blobs.write(b"x"), -1),
    "the length of a blob": lambda repo: repo.blobs.stream(repo.blobs.write(b"x"), 0, -1),
    "the position in an open blob": lambda repo: repo.blobs.open(repo.blobs.write(b"x")).seek(-2, io.SEEK_END),
    "the snapshot of a transaction": lambda repo: _of_another_object(repo, lambda head: repo.transaction(base=head)),
    "the snapshot of a branch": lambda repo: _of_another_object(repo, lambda head: repo.branch(base=head)),
    "the snapshot of a rebase": lambda repo: _of_another_object(repo, lambda head: repo.branch().rebase(head)),
    "the snapshot of a checkpoint": lambda repo: _of_another_object(repo, lambda head: repo.checkpoint(60, head)),
    "the snapshot of a diff": lambda repo: _of_another_object(repo, repo.diff),
    "the snapshot of a watch": lambda repo: _of_another_object(repo, lambda head: repo.watch(since=head)),
    "the lifetime of a MicroKernel checkpoint": lambda repo: MicroKernel(repo).checkpoint(0),
    "the depth of a MicroKernel diff": lambda repo: MicroKernel(repo).diff(None, None, depth=-2),
    "the depth of get_nodes": lambda repo: MicroKernel(repo).get_nodes("/", depth=-2),
    "the offset of get_nodes": lambda repo: MicroKernel(repo).get_nodes("/", offset=1, filter='{"nodes":["*"]}'),
    "a number beyond 64 bits": lambda repo: MicroKernel(repo).get_nodes("/", depth=2**64),
    "the position of read": lambda repo: MicroKernel(repo).read(repo.blobs.write(b"x").id, -1, 1),
}


@pytest.mark.parametrize("use", OUT_OF_RANGE.values(), ids=OUT_OF_RANGE)
def test_a_value_out_of_range_raises_an_error_of_the_library(
    repo: Repository, use: Callable[[Repository], Any]
) -> None:
    with pytest.raises(ValueError, match=".") as raised:
        use(repo)
    assert isinstance(raised.value, InvalidValueError)


@pytest.mark.parametrize("wrong", [5, -1, "7d", float("nan"), 10**15])
def test_a_retention_that_is_not_possible_is_shown_with_what_is(repo: Repository, wrong: Any) -> None:
    before = repo.retention
    with pytest.raises(InvalidValueError) as raised:
        repo.retention = wrong
    assert "retention must be a number of seconds from 60 to 549755813, or None for no limit, got " in str(raised.value)
    assert shown(wrong) in str(raised.value)
    assert repo.retention == before


# --- functions that run too late -------------------------------------------------------------------------


async def _asynchronous(tx: Transaction) -> None:
    tx.set("/a", "n", 2)


def _generator(tx: Transaction) -> Iterator[None]:
    yield tx.set("/a", "n", 2)


async def _asynchronous_generator(tx: Transaction) -> AsyncIterator[None]:
    yield tx.set("/a", "n", 2)


class _Object:
    async def method(self, tx: Transaction) -> None:
        tx.set("/a", "n", 2)

    async def __call__(self, tx: Transaction) -> None:
        tx.set("/a", "n", 2)


class _Task:
    """Works when somebody awaits it, as a task of asyncio does."""

    def __init__(self, tx: Transaction) -> None:
        self.tx = tx

    def __await__(self) -> Iterator[None]:
        self.tx.set("/a", "n", 2)
        yield


LATE = {
    "async": _asynchronous,
    "generator": _generator,
    "generator of a lambda": lambda tx: (yield tx.set("/a", "n", 2)),
    "partial": functools.partial(functools.partial(_asynchronous)),
    "method": _Object().method,
    "asynchronous generator": _asynchronous_generator,
    "coroutine from a lambda": lambda tx: _asynchronous(tx),
    "generator from a lambda": lambda tx: (tx.set("/a", "n", number) for number in range(2, 4)),
    "asynchronous generator from a lambda": lambda tx: _asynchronous_generator(tx),
    "object": _Object(),
    "something to be awaited": lambda tx: _Task(tx),
}


@pytest.mark.parametrize("change", LATE.values(), ids=LATE)
@pytest.mark.filterwarnings("error")
def test_run_refuses_a_function_whose_changes_would_come_after_the_commit(repo: Repository, change: Any) -> None:
    branch = repo.branch()
    for run in (repo.run, branch.run):
        with pytest.raises(
            TypeError, match=r"^change must be a plain function.*asyncio\.to_thread\(repo\.run, change\)"
        ):
            run(change)
    assert repo.head["/a"]["n"] == branch.head["/a"]["n"] == 1


def test_run_accepts_every_other_callable(repo: Repository) -> None:
    class Callable:
        def __call__(self, tx: Transaction) -> str:
            tx.increment("/a", "n")
            return "called"

    assert repo.run(Callable()) == "called"
    assert repo.run(functools.partial(Transaction.get, path="/a", name="n")) == 2
    assert repo.run(lambda tx: list(tx.properties("/a"))) == ["n"]

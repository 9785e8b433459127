"""Commands on the MicroKernel interface: commit, nodes, diff, watch."""

from __future__ import annotations

import contextlib
import datetime
import json
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING

import click

from hbasemk.cli import output
from hbasemk.cli.edit import MESSAGE
from hbasemk.cli.files import standard_input
from hbasemk.cli.leading_hyphens import HyphenCommand
from hbasemk.cli.output import moment
from hbasemk.cli.session import NULL, Integer, Revision, Seconds, Session, at
from hbasemk.cli.signals import ended_by_signals
from hbasemk.cli.times import Since, When
from hbasemk.errors import HbasemkError
from hbasemk.format.limits import shortened

if TYPE_CHECKING:
    from hbasemk.jsop import Operation
    from hbasemk.kernel.diff import NodeChange

MOST = 2**63 - 1
"""The largest integer that the MicroKernel interface accepts."""
MANY, LARGE = 10_000, 1 << 20
"""The pieces, and their characters, of JSOP that are printed at once."""


class _JsopCommand(HyphenCommand):
    """A command that takes JSOP as an argument, which may begin with the removal of a node."""

    def is_argument(self, text: str) -> bool:
        return text[1] != "-" and not text[1].isalnum()


@click.command("commit", cls=_JsopCommand)
@click.argument("jsop", required=False)
@click.option("--path", "root", default="", metavar="PATH", help="The node at which relative paths in JSOP start.")
@click.option(
    "--on",
    "revision",
    type=Revision(),
    metavar="REVISION",
    help="The revision to which JSOP applies. With a branch's revision, commit to the branch.",
)
@MESSAGE
@click.pass_obj
def commit(session: Session, jsop: str | None, root: str, revision: str | None, message: str) -> None:
    """Apply JSOP and print the new revision.

    Reads JSOP, a list of changes, from the argument or from standard input. For example:

    hbasemk commit '+"/a":{"title":"x"} ^"/b/count":2 -"/c"'
    """
    from hbasemk.microkernel import MicroKernel

    text = _standard_input() if jsop is None else jsop
    with session.open() as repository:
        session.committed(MicroKernel(repository).commit(root, text, revision, message))


def _standard_input() -> str:
    try:
        return standard_input("JSOP", "JSOP as the argument").read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise click.UsageError(f"JSOP on standard input is not UTF-8: {error}") from None


@click.command("nodes")
@click.argument("path", default="/")
@click.option(
    "--at",
    "revision",
    type=When(),
    metavar="WHEN",
    help="Read this revision of trunk or a branch, or the newest one of trunk before a time, such as 2h, instead of the newest.",
)
@click.option(
    "-d",
    "--depth",
    type=Integer(-1, MOST),
    default=1,
    show_default=True,
    help="The number of levels below PATH. -1: no children.",
)
@click.option("--offset", type=Integer(0, MOST), default=0, help="Skip this many children of PATH.")
@click.option(
    "-n",
    "--limit",
    type=Integer(-1, MOST),
    default=-1,
    help="Show at most this many children of each node. -1: all.",
)
@click.option(
    "--filter",
    "filter_text",
    metavar="JSON",
    help='Show only matching names, for example {"properties":["*",":hash"],"nodes":["a*"]}.',
)
@click.pass_obj
def nodes(
    session: Session,
    path: str,
    revision: str | datetime.datetime | None,
    depth: int,
    offset: int,
    limit: int,
    filter_text: str | None,
) -> int:
    """Print the tree at PATH as JSON. The exit code is 1 if there is no node at PATH."""
    from hbasemk.microkernel import MicroKernel
    from hbasemk.microkernel.microkernel import get_nodes_of
    from hbasemk.snapshot import Snapshot

    with session.open() as repository:
        repository.refresh()
        kernel = MicroKernel(repository)
        shown = at(repository, revision) if isinstance(revision, datetime.datetime) else revision
        with _as_usage():
            if isinstance(shown, Snapshot):
                text = get_nodes_of(kernel, shown, path, depth, offset, limit, filter_text)
            else:
                text = kernel.get_nodes(path, shown, depth, offset, limit, filter_text)
        if text is None:
            if path.startswith("/"):
                # Another process cannot remove a node from this snapshot, so this raises the error that says why.
                (shown if isinstance(shown, Snapshot) else at(repository, shown))[path]
            output.complain(f"there is no node at {shortened(path)}")
            return 1
    output.print_json(text)
    return 0


@contextlib.contextmanager
def _as_usage() -> Iterator[None]:
    """Turn the MicroKernel's plain ValueError for arguments out of range into a usage error."""
    try:
        yield
    except HbasemkError:
        raise
    except ValueError as error:
        raise click.UsageError(str(error)) from error


@click.command("diff")
@click.argument("before", type=When())
@click.argument("after", type=When(), required=False)
@click.option("--path", default="/", metavar="PATH", help="Compare only this subtree.")
@click.option(
    "-d",
    "--depth",
    type=Integer(min=-1),
    default=-1,
    help="Show only this many levels below PATH; of a deeper change, only its node on the next level.",
)
@click.option("--paths", "paths_only", is_flag=True, help="Print only the paths of nodes that differ, one per line.")
@NULL
@click.pass_obj
def diff(
    session: Session,
    before: str | datetime.datetime,
    after: str | datetime.datetime | None,
    path: str,
    depth: int,
    paths_only: bool,
    null: bool,
) -> int:
    """Print the changes between two revisions as JSOP.

    Compares the revision BEFORE with AFTER (default: the newest). Each may also be a time, such as 2h. From the base of a branch
    (`hbasemk --output json branches`) to its newest revision, the command shows the changes of the branch. The exit code is 1
    if the two differ, or if neither has a node at PATH. JSOP does not show the names :hash, :id and :childNodeCount, which the
    MicroKernel interface reserves; --paths does.
    """
    from hbasemk.kernel import diff as kernel_diff
    from hbasemk.microkernel.jsop_diff import shows, subtree_operations
    from hbasemk.microkernel.reserved import RESERVED
    from hbasemk.repository import instance_of
    from hbasemk.snapshot import view_of

    if null:
        if not paths_only:
            raise click.UsageError("-0 needs --paths, since JSOP quotes every name; add --paths, or leave out -0")
        session.end_with_null()
    with session.open() as repository:
        repository.refresh()
        one, other = at(repository, before), at(repository, after)
        with _as_usage():
            if path not in one:
                # Raises the error for a missing node, which says whether it was deleted.
                _ = other[path]
        instance = instance_of(repository)
        views = view_of(instance, one), view_of(instance, other)
        if isinstance(before, str) and isinstance(after, str):
            # The snapshot of a time, and the newest one, can contain more than the base of a branch that they end with.
            views = kernel_diff.with_exact_base(instance, *views)
        shown = None if paths_only else shows
        changes = kernel_diff.diff(instance, *views, path, None if depth < 0 else depth, shown)
        if paths_only:
            return _print_paths(session, changes, path, None if depth < 0 else depth)
        # JSOP shows no reserved names, so trees without an operation can differ.
        first = list(islice(changes, 1))
        operations = subtree_operations(instance, views[0], chain(first, changes), path, depth)
        _print_jsop(session, operations)
        if first and not operations:
            output.complain(
                f"JSOP does not show the differences: they are only in the reserved names {', '.join(sorted(RESERVED))}; "
                "--paths shows their nodes"
            )
        return 1 if first else 0


def _print_jsop(session: Session, operations: Sequence[Operation]) -> None:
    """Print operations as JSOP."""
    from hbasemk.jsop import write
    from hbasemk.jsop.writer import pieces
    from hbasemk.store.sizes import by_size

    reader = output.Reader()
    if session.json:
        reader.print(partial(output.print_json, json.dumps({"diff": write(operations)})))
    elif operations:
        # In parts, since the text of a large tree takes much memory.
        for part in by_size(pieces(operations), len, MANY, LARGE):
            reader.print(partial(output.print_json, "".join(part), end=""))
        reader.print(partial(output.print_json, ""))


def _print_paths(session: Session, changes: Iterable[NodeChange], path: str, depth: int | None) -> int:
    """Print the paths of the nodes that JSOP of this depth shows; return the exit code."""
    from hbasemk.format import paths

    lowest = None if depth is None else paths.depth(path) + depth + 1
    on_lowest: set[str] = set()
    code = 0
    reader = output.Reader()
    for change in changes:
        code = 1
        if lowest is None or paths.depth(change.path) < lowest:
            reader.print(partial(session.rows, [[change.path]], ["path"]))
        else:
            on_lowest.add(paths.ancestor(change.path, lowest))
        if reader.has_ended:
            return code
    reader.print(partial(session.rows, [[one] for one in sorted(on_lowest, key=paths.key)], ["path"]))
    return code


@click.command("watch")
@click.argument("path", default="/")
@click.option("-n", "--limit", type=Integer(min=1), help="Exit after this many revisions.")
@click.option(
    "--timeout", type=Seconds(), metavar="SECONDS", help="Exit when no such revision has arrived for this long."
)
@click.option(
    "--since",
    type=Since(),
    metavar="TOKEN",
    help="Start after this token of an earlier watch, or after a revision (exact if it is some seconds old), or a time, such as "
    "2h.",
)
@click.pass_obj
def watch(
    session: Session, path: str, limit: int | None, timeout: float | None, since: str | datetime.datetime | None
) -> None:
    """Show each new revision that changes the subtree of PATH.

    Runs until Ctrl-C or SIGTERM ends it (exit codes 130 and 143) or its reader ends, also through outages of the store. The last
    line, on standard error, is a token. A later watch with --since TOKEN continues there, and misses and repeats no
    revision. The token covers the revisions that the command has written, also those that the reader of a pipe, such as `head`,
    has not read. With --output json each object has the token in "resume", so a program can store that of the last one it read.
    """
    from hbasemk.opening import connect

    token: str | None = None
    with ended_by_signals():
        try:
            with contextlib.ExitStack() as opened:
                repository = opened.enter_context(connect(session.url, create=False))
                after = repository.at(time=since) if isinstance(since, datetime.datetime) else since
                watching = opened.enter_context(repository.watch(path, timeout, since=after))
                token = watching.resume_token
                output.when_reader_ends(watching.close)
                for shown, entry in enumerate(watching, 1):
                    message = session.message(entry.message)
                    row = [entry.revision, moment(entry.time_ms), len(entry.changes), message]
                    names = ["revision", "time", "nodes", "message"]
                    if session.json:
                        row, names = [*row, watching.resume_token], [*names, "resume"]
                    session.rows([row], names)
                    output.flush()
                    token = watching.resume_token
                    if shown == limit:
                        break
        finally:
            if token is not None:
                output.complain(f"resume with --since {token}")


COMMANDS = (commit, nodes, diff, watch)

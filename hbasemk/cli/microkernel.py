"""Commands on the MicroKernel interface and branches: commit, nodes, diff, branch, merge, blob, watch."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from hbasemk.cli import output
from hbasemk.cli.output import NULL, Revision, Seconds, Session, first_line, moment
from hbasemk.errors import HbasemkError

if TYPE_CHECKING:
    from hbasemk.repository import Repository


@click.command("commit", context_settings={"ignore_unknown_options": True})
@click.argument("jsop", required=False)
@click.option("--path", "root", default="", metavar="PATH", help="Where relative paths in it start.")
@click.option(
    "--on",
    "revision",
    type=Revision(),
    metavar="REVISION",
    help="The revision it was made on; a branch's commits to the branch.",
)
@click.option("-m", "--message", default="", help="Told in the log.")
@click.pass_obj
def commit(session: Session, jsop: str | None, root: str, revision: str | None, message: str) -> None:
    """Apply the change text JSOP, or the one on standard input, and print the new revision.

    For example: hbasemk commit '+"/a":{"title":"x"} ^"/b/count":2 -"/c"'
    """
    from hbasemk.microkernel import MicroKernel

    text = _standard_input() if jsop is None else jsop
    with session.open() as repository:
        session.rows([[MicroKernel(repository).commit(root, text, revision, message)]], ["revision"])


def _standard_input() -> str:
    if sys.stdin is None:
        raise click.UsageError("standard input is closed: give JSOP as an argument, or on standard input")
    try:
        return sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise click.UsageError(f"the change text on standard input is not UTF-8: {error}") from None


@click.command("nodes")
@click.argument("path", default="/")
@click.option(
    "--at",
    "revision",
    type=Revision(),
    metavar="REVISION",
    help="This revision, of trunk or a branch, instead of the newest.",
)
@click.option(
    "-d", "--depth", type=click.IntRange(min=-1), default=1, show_default=True, help="So many levels; -1: no children."
)
@click.option("--offset", type=click.IntRange(min=0), default=0, help="Leave out so many children of PATH.")
@click.option(
    "-n", "--limit", type=click.IntRange(min=-1), default=-1, help="So many children of each node; -1 for all."
)
@click.option("--filter", "chosen", metavar="JSON", help='Such as {"properties":["*",":hash"],"nodes":["a*"]}.')
@click.pass_obj
def nodes(
    session: Session, path: str, revision: str | None, depth: int, offset: int, limit: int, chosen: str | None
) -> int:
    """Print the tree at PATH as JSON. The exit code is 1 if there is none."""
    from hbasemk.microkernel import MicroKernel

    with session.open() as repository:
        repository.refresh()
        with _as_usage():
            text = MicroKernel(repository).get_nodes(path, revision, depth, offset, limit, chosen)
    if text is None:
        output.complain(f"there is no node at {path}")
        return 1
    output.print_json(text)
    return 0


@contextlib.contextmanager
def _as_usage() -> Iterator[None]:
    """Turn a plain ValueError, which the MicroKernel raises for arguments out of range, into a usage error."""
    try:
        yield
    except HbasemkError:
        raise
    except ValueError as error:
        raise click.UsageError(str(error)) from error


@click.command("diff")
@click.argument("before", type=Revision())
@click.argument("after", type=Revision(), required=False)
@click.option("--path", default="/", metavar="PATH", help="Only this subtree.")
@click.option("-d", "--depth", type=click.IntRange(min=-1), default=-1, help="Only so many levels below it.")
@click.option("--paths", "paths_only", is_flag=True, help="Only the paths of nodes that differ, one a line.")
@NULL
@click.pass_obj
def diff(session: Session, before: str, after: str | None, path: str, depth: int, paths_only: bool, null: bool) -> int:
    """Print, as JSOP, what makes revision BEFORE into AFTER (the newest without one). The exit code is 1 if they differ."""
    from hbasemk.microkernel import MicroKernel

    if null:
        if not paths_only:
            raise click.UsageError("-0 is for paths: give --paths as well; JSOP quotes every name")
        session.end_with_null()
    with session.open() as repository:
        repository.refresh()
        if paths_only:
            return _diff_paths(session, repository, before, after, path, depth)
        with _as_usage():
            text = MicroKernel(repository).diff(before, after, path, depth)
    if session.json:
        output.print_json(json.dumps({"diff": text}))
    elif text:
        output.print_json(text)
    return 1 if text else 0


def _diff_paths(session: Session, repository: Repository, before: str, after: str | None, path: str, depth: int) -> int:
    from hbasemk.format import paths

    found = repository.diff(repository.at(before), output.at(repository, after), path)
    differ = 0
    for change in found:
        if depth < 0 or paths.depth(change.path) - paths.depth(path) <= depth:
            session.rows([[change.path]], ["path"])
            differ = 1
    return differ


@click.command("branch")
@click.argument("base", type=Revision(), required=False)
@click.option(
    "--rebase",
    "rebased",
    type=Revision(),
    metavar="REVISION",
    help="Move this branch to BASE (the newest without one) instead.",
)
@click.option(
    "--reset",
    "reset",
    type=Revision(),
    nargs=2,
    metavar="REVISION TO",
    help="Take this branch back to an earlier revision.",
)
@click.option("--sweep", type=Seconds(), metavar="SECONDS", help="Give up branches untouched for so long.")
@click.pass_obj
def branch(
    session: Session, base: str | None, rebased: str | None, reset: tuple[str, str] | None, sweep: float | None
) -> None:
    """Begin a private branch on the trunk revision BASE, or on the newest, and print its revision.

    Commit to it with `hbasemk commit --on REVISION`, each time on the revision that the last commit printed.

    Where trunk and a branch that is moved (--rebase) changed the same, trunk's is taken and a node :conflict holds the
    branch's; the paths of these go to standard error. Remove them, on the branch, before you merge it.
    """
    from hbasemk.microkernel import MicroKernel

    if sum(one is not None for one in (rebased, reset, sweep)) > 1:
        raise click.UsageError("--rebase, --reset and --sweep exclude each other")
    with session.open() as repository:
        repository.refresh()
        kernel = MicroKernel(repository)
        if sweep is not None:
            session.rows(([root] for root in repository.sweep_branches(sweep)), ["branch"])
            return
        if rebased is not None:
            moved = repository.resume_branch(rebased)
            markers = moved.rebase(None if base is None else repository.at(base))
            made = moved.revision
            for marker in markers:
                output.complain(f"conflict: {marker}")
        elif reset is not None:
            made = kernel.reset(*reset)
        else:
            made = kernel.branch(base)
        session.rows([[made]], ["revision"])


@click.command("merge")
@click.argument("revision", type=Revision())
@click.option("-m", "--message", default="", help="Told in the log.")
@click.pass_obj
def merge(session: Session, revision: str, message: str) -> None:
    """Merge the branch that stands at REVISION into trunk, as a whole or not at all.

    What trunk has changed meanwhile and the branch as well is a conflict (exit code 3): `hbasemk branch --rebase REVISION`
    brings both sides' changes together.
    """
    from hbasemk.errors import ConflictError
    from hbasemk.microkernel import MicroKernel

    with session.open() as repository:
        try:
            merged = MicroKernel(repository).merge(revision, message)
        except ConflictError as error:
            # Doing it again, as the error says, would end the same way.
            other = f"revision {error.other}" if error.other != error.revision else "another revision"
            raise ConflictError(
                f"the branch at {revision} cannot be merged: {other} changed {error.column} of "
                f"{error.path}, which the branch changed or relied on. Both are as they were. Run `hbasemk branch "
                f"--rebase {revision}`, remove the conflict markers that it tells, and merge the branch's newest revision.",
                path=error.path,
                column=error.column,
                revision=error.revision,
                other=error.other,
            ) from error
        session.rows([[merged]], ["revision"])


@click.group("blob")
def blob() -> None:
    """Keep and read large contents."""


@blob.command("put")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True), default="-")
@click.pass_obj
def blob_put(session: Session, file: str) -> None:
    """Keep the content of FILE, or of standard input, and print its id.

    A file of the repository itself is refused.
    """
    from hbasemk.transfer import own_files

    use = "kept as a blob"
    with contextlib.ExitStack() as stack:
        # Opened before the repository is, and closed after it.
        if file == "-":
            stream: BinaryIO = sys.stdin.buffer
            own_files.refuse_open(stream, "standard input", session.url, use)
        else:
            stream = stack.enter_context(own_files.open_other(file, session.url, use))
        repository = stack.enter_context(session.open())
        session.rows([[repository.blobs.write(stream).id]], ["blob"])


@blob.command("get")
@click.argument("blob_id", metavar="ID")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path), required=False)
@click.pass_obj
def blob_get(session: Session, blob_id: str, file: Path | None) -> None:
    """Write the content of the blob ID to FILE, or to standard output."""
    from hbasemk.transfer import own_files

    if file is not None:
        own_files.refuse(file, session.url, "overwritten")
    with session.open() as repository:
        pieces = repository.blobs.stream(blob_id)
        if file is None:
            output.print_bytes(pieces)
            return
        with file.open("wb") as target:
            target.writelines(pieces)


@click.command("watch")
@click.argument("path", default="/")
@click.option("-n", "--limit", type=click.IntRange(min=1), help="End after so many revisions.")
@click.option("--timeout", type=Seconds(), metavar="SECONDS", help="End when nothing has come for so long.")
@click.option(
    "--since",
    metavar="TOKEN",
    help="Begin after this: the token that an earlier watch printed, or a revision (exact for one some seconds old).",
)
@click.pass_obj
def watch(session: Session, path: str, limit: int | None, timeout: float | None, since: str | None) -> None:
    """Show each revision that anyone commits to the subtree of PATH from now on.

    Goes on until it is interrupted, also through outages of the store. The last line, on standard error, is the token with
    which --since resumes: nothing is missed and nothing shown twice. With --output json each object has the token in
    "resume".
    """
    from hbasemk.connect import connect

    with connect(session.url, create=False) as repository, repository.watch(path, timeout, since=since) as watching:
        token = watching.resume_token
        try:
            for shown, entry in enumerate(watching, 1):
                message = entry.message if session.json else first_line(entry.message)
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
            output.complain(f"resume with --since {token}")


COMMANDS = (commit, nodes, diff, branch, merge, watch)
GROUPS = ((blob, (blob_put, blob_get)),)

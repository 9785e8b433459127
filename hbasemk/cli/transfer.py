"""Commands that bring trees in and out: import, export."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from hbasemk.cli import output
from hbasemk.cli.output import Revision, Session
from hbasemk.errors import HbasemkError
from hbasemk.transfer.files.entries import DEFAULT_LIMIT, LARGEST_LIMIT, Contents
from hbasemk.transfer.summary import SHOWN, Sample

if TYPE_CHECKING:
    from rich.progress import Progress


@click.command("import")
@click.argument("source", metavar="SOURCE", type=click.Path(exists=True, allow_dash=True, path_type=Path))
@click.option(
    "-f",
    "--format",
    "form",
    type=click.Choice(["files", "json"]),
    default="files",
    show_default=True,
    help="What SOURCE is.",
)
@click.option(
    "--at",
    "target",
    metavar="PATH",
    help="The node to import to; default: the directory's name below the root, and for JSON the root.",
)
@click.option(
    "-b", "--batch", type=click.IntRange(1, 100_000), default=200, show_default=True, help="Nodes in a commit."
)
@click.option(
    "-w", "--workers", type=click.IntRange(1, 64), default=4, show_default=True, help="Processes that commit (files)."
)
@click.option(
    "-x",
    "--exclude",
    multiple=True,
    metavar="GLOB",
    help="Names or relative paths to leave out; may be repeated (files).",
)
@click.option(
    "--contents",
    type=click.Choice(["all", "small", "none"]),
    default="all",
    show_default=True,
    help="Which contents to keep: all, those of up to --inline-limit bytes, or none (files).",
)
@click.option(
    "--inline-limit",
    type=click.IntRange(0, LARGEST_LIMIT),
    default=DEFAULT_LIMIT,
    show_default=True,
    help="Keep contents of up to so many bytes in the node, larger ones as blobs (files).",
)
@click.option(
    "--retry-timeout", type=float, default=120, show_default=True, help="Seconds to wait for a store that is away."
)
@click.option("--verify/--no-verify", default=True, help="Compare the tree with SOURCE at the end.")
@click.pass_context
def import_(
    context: click.Context,
    source: Path,
    form: str,
    target: str | None,
    workers: int,
    batch: int,
    exclude: tuple[str, ...],
    contents: Contents,
    inline_limit: int,
    retry_timeout: float,
    verify: bool,
) -> int:
    """Bring the directory SOURCE in: a node for each directory and file, committed by several processes at once.

    A node keeps the entry's kind, mode, time, size, SHA-256 and content, as properties :kind, :mode and so on. `hbasemk export`
    writes all of it back. An entry whose name begins with a colon has one more of them in the tree. The files of the
    repository itself are skipped.

    With --format json, SOURCE is a file that `hbasemk export --format json` wrote (- for standard input), and the tree becomes
    the same to the last digit. The whole file is looked through before anything is changed. Nodes that are there already
    have to be the same. Blobs are referred to, not contained: the exit code is 1 if the repository does not hold one.

    Run again, it goes on where it was interrupted; for a directory it also takes over what changed since, and removes what is
    gone. At the end a fresh instance compares the tree with SOURCE; the exit code is 1 if anything differs or could not be read.
    """
    session: Session = context.obj
    if form == "json":
        for name in ("workers", "exclude", "contents", "inline_limit"):
            if context.get_parameter_source(name) is not ParameterSource.DEFAULT:
                raise click.UsageError(f"--{name.replace('_', '-')} is for files only")
        if source.is_dir():
            raise click.UsageError(f"{source} is a directory; --format json reads a file")
        return _import_json(session, source, target or "/", batch, retry_timeout, verify)
    if not source.is_dir():
        raise click.UsageError(f"{source} is no directory; a file that `export -f json` wrote needs --format json")
    return _import_files(
        session, source, target, workers, batch, exclude, contents, inline_limit, retry_timeout, verify
    )


def _import_json(session: Session, source: Path, at: str, batch: int, retry_timeout: float, verify: bool) -> int:
    from hbasemk.transfer.json.importer import JsonImport

    with _progress(f"import to {at}") as progress:
        job = JsonImport(
            session.url,
            sys.stdin.buffer if str(source) == "-" else source,
            at,
            name="standard input" if str(source) == "-" else str(source),
            batch=batch,
            retry_timeout=retry_timeout,
            tell=progress,
            note=output.complain,
        )
        try:
            result = job.run(verify=verify)
        except (HbasemkError, KeyboardInterrupt):
            done = job.result
            if done.last is not None or done.unknown:
                least = "at least " if done.unknown else ""
                last = "" if done.last is None else f", the last one {done.last},"
                output.complain(
                    f"{least}{done.done} of {done.nodes} nodes{last} were brought in and stay: {done.added} added and "
                    f"{done.changed} changed in {done.commits} commits. Run the same command again to go on."
                )
            raise
    missing, different = result.missing, result.differences
    _tell("missing blob", missing.first, missing.count)
    _tell("differs", different.first, different.count)
    facts = {
        "imported to": at,
        "nodes": result.nodes,
        "nodes added": result.added,
        "nodes changed": result.changed,
        "missing blobs": missing.count,
        "commits": result.commits,
        "retries": result.retries,
        "seconds": round(result.seconds, 2),
    }
    if verify:
        facts["compared at revision"] = result.compared_at
        facts["differences"] = different.count
    session.facts(facts)
    return 1 if missing.count or different.count else 0


@contextlib.contextmanager
def _progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """Shows on a terminal how many nodes of how many are done."""
    with _bar() as progress:
        task = progress.add_task(output.visible(what), total=None)

        def tell(more: int, total: int) -> None:
            progress.update(task, advance=more, total=total)

        yield tell


def _bar() -> contextlib.AbstractContextManager[Progress]:
    """A bar with counts, on a terminal."""
    from rich.progress import BarColumn, MofNCompleteColumn, TimeElapsedColumn

    return output.progress_bar(BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())


def _import_files(
    session: Session,
    directory: Path,
    target: str | None,
    workers: int,
    batch: int,
    exclude: tuple[str, ...],
    contents: Contents,
    limit: int,
    retry_timeout: float,
    verify: bool,
) -> int:
    from hbasemk.transfer.files import entries
    from hbasemk.transfer.files.importer import Import
    from hbasemk.transfer.files.verify import Verification
    from hbasemk.transfer.files.verify import verify as compare
    from hbasemk.transfer.files.worker import Report

    at = target or entries.default_target(directory)
    with _bar() as progress:
        task = progress.add_task(output.visible(f"import to {at}"), total=None)
        handled = 0

        def tell(report: Report, total: int) -> None:
            nonlocal handled
            handled += report.handled
            progress.update(task, completed=handled, total=max(total, handled))

        job = Import(
            session.url,
            str(directory),
            at,
            workers=workers,
            batch=batch,
            exclude=exclude,
            limit=limit,
            contents=contents,
            retry_timeout=retry_timeout,
            tell=tell,
            note=output.complain,
        )
        try:
            result = job.run()
        except KeyboardInterrupt:
            done = job.result
            least = "" if done.is_exact else "at least "
            output.complain(
                f"interrupted; {least}{done.added} nodes added, {done.changed} changed and {done.removed} removed in "
                f"{done.committed} commits stay. Run the same command again to go on."
            )
            return 130
        progress.update(task, description="compare with the directory", completed=0, total=None)
        began = time.monotonic()
        found = Verification()
        different = Sample()
        if verify:
            compared = compare(
                session.url,
                str(directory),
                at,
                found,
                exclude=exclude,
                limit=limit,
                contents=contents,
                retry_timeout=retry_timeout,
                note=output.complain,
            )
            for difference in compared:
                different.add(difference)
        took = time.monotonic() - began

    # What failed first, so that it is among those shown.
    skipped = sorted(result.skipped, key=lambda one: not one.failed)
    _tell("skipped", [f"{one.relative}: {one.reason}" for one in skipped[:SHOWN]], len(skipped))
    _tell("differs", different.first, different.count)
    failed = [one for one in result.skipped if one.failed]
    facts = {
        "imported to": at,
        "entries": result.entries,
        "nodes added": result.added,
        "nodes changed": result.changed,
        "nodes removed": result.removed,
        "contents not kept": result.bare,
        "contents in blobs": result.blobs,
        "skipped": len(result.skipped),
        "vanished": sum(one.vanished for one in result.skipped),
        "processes": workers,
        "commits": result.committed,
        "conflicts": result.conflicts,
        "retries": result.retries,
        "workers restarted": result.restarts,
        "seconds": round(result.seconds, 2),
        "commits per second": round(result.committed / result.seconds, 1) if result.seconds else 0,
    }
    if verify:
        facts["compared"] = f"{found.nodes} nodes at revision {found.revision} in {took:.2f} s"
        facts["contents compared"] = f"{found.contents} contents of {found.bytes} bytes"
        facts["differences"] = different.count
    session.facts(facts)
    return 1 if different.count or failed else 0


def _tell(what: str, lines: Sequence[str], count: int) -> None:
    for line in lines:
        output.complain(f"{what}: {line}")
    if count > len(lines):
        output.complain(f"{what}: and {count - len(lines)} more")


@click.command("export")
@click.argument("path")
@click.argument("target", type=click.Path(allow_dash=True, path_type=Path), required=False)
@click.option("-f", "--format", "form", type=click.Choice(["files", "json"]), default="files", show_default=True)
@click.option("--at", "revision", type=Revision(), metavar="REVISION", help="This revision instead of the newest.")
@click.option(
    "--retry-timeout", type=float, default=120, show_default=True, help="Seconds to wait for a store that is away."
)
@click.option(
    "--special-modes",
    is_flag=True,
    help="Also set the set-user-id, set-group-id and sticky bits that nodes have (files).",
)
@click.pass_obj
def export(
    session: Session,
    path: str,
    target: Path | None,
    form: str,
    revision: str | None,
    retry_timeout: float,
    special_modes: bool,
) -> int:
    """Write the subtree of PATH to the folder TARGET, or as JSON to the file TARGET (standard output without one, or for -).

    JSON holds all nodes with all their properties, in one revision; `hbasemk import --format json` makes the same tree of it.

    As files, a node that is a file or link becomes the file TARGET, or an entry of TARGET if that is a folder. The exit code
    is 1 if there was anything that could not be written, such as files whose content the import left out, or modes and
    times that no file can have.
    """
    from hbasemk.cli.output import at
    from hbasemk.transfer import own_files
    from hbasemk.transfer.exporter import export_files, export_json, write_json
    from hbasemk.transfer.retry import Patience

    if special_modes and form == "json":
        raise click.UsageError("--special-modes is for files only")
    to_stdout = target is None or str(target) == "-"
    if form == "files" and to_stdout:
        raise click.UsageError("to export files, give the folder to write to (./- for one with that name)")
    if target is not None:
        own_files.refuse(target, session.url, "overwritten")
    waiting = Patience(retry_timeout, output.complain)
    with waiting.opened(session.url, create=False, poll_interval=0) as repository:
        snapshot = waiting.call(lambda: at(repository, revision))
        if form == "json":
            if target is None or to_stdout:
                for piece in export_json(snapshot, path):
                    output.print_json(piece, end="")
                return 0
            write_json(snapshot, path, target)
            return 0
        assert target is not None
        done = export_files(snapshot, path, target, special_modes=special_modes)
    for what, found in (("skipped", done.skipped), ("incomplete", done.incomplete)):
        _tell(what, [f"{where}: {reason}" for where, reason in found[:SHOWN]], len(found))
    if done.masked:
        output.complain(
            f"{done.masked} entries have set-user-id, set-group-id or sticky bits, which were left out; "
            "--special-modes sets them"
        )
    session.facts(
        {
            "directories": done.directories,
            "files": done.files,
            "links": done.links,
            "skipped": len(done.skipped),
            "incomplete": len(done.incomplete),
        }
    )
    return 1 if done.skipped or done.incomplete else 0


COMMANDS = (import_, export)

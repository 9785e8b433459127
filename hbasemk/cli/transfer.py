"""Commands that transfer trees between the repository and files: import, export."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from hbasemk.cli import output
from hbasemk.cli.files import STREAM, DiskPath, require_file_name, standard_input
from hbasemk.cli.session import Decorated, Integer, Seconds, Session
from hbasemk.cli.signals import EndedBySignal
from hbasemk.cli.times import When
from hbasemk.errors import HbasemkError
from hbasemk.format.limits import check_message
from hbasemk.format.plural import counted
from hbasemk.transfer.files.entries import DEFAULT_LIMIT, FILE, KIND, LARGEST_LIMIT, LINK, Contents
from hbasemk.transfer.summary import SHOWN, Sample

if TYPE_CHECKING:
    from rich.progress import Progress


_RETRY_TIMEOUT = click.option(
    "--retry-timeout",
    type=Seconds(endless=True),
    metavar="SECONDS",
    help="Retry for this long while the store is unreachable. Default: the retry_timeout of the URL, else 120.",
)


def _retry_seconds(given: float | None, url: str) -> float:
    """Return how long a command retries: as its option says, else as the URL does."""
    from hbasemk.opening import retry_timeout_of
    from hbasemk.transfer.retry import RETRY_SECONDS

    return retry_timeout_of(url, RETRY_SECONDS) if given is None else given


def _form_option(about: str) -> Callable[[Decorated], Decorated]:
    """Return the option ``--format`` of a command that transfers files or JSON."""
    return click.option(
        "-f",
        "--format",
        "form",
        type=click.Choice(["files", "json"]),
        default="files",
        show_default=True,
        help=about,
    )


@click.command("import")
@click.argument("source", metavar="SOURCE", type=DiskPath(exists=True, allow_dash=True))
@_form_option("The kind of SOURCE: a directory, or a JSON file.")
@click.option(
    "--at",
    "target",
    metavar="PATH",
    help="The node to import to. Default: the directory's name below the root; for JSON the root.",
)
@click.option("-b", "--batch", type=Integer(1, 100_000), default=200, show_default=True, help="Nodes per commit.")
@click.option("-w", "--workers", type=Integer(1, 64), default=4, show_default=True, help="Worker processes (files).")
@click.option(
    "-x",
    "--exclude",
    multiple=True,
    metavar="GLOB",
    help="Leave out entries whose name or relative path matches, and remove nodes that an earlier import made of them; may be "
    "repeated (files).",
)
@click.option(
    "--contents",
    type=click.Choice(["all", "small", "none"]),
    default="all",
    show_default=True,
    help="The contents to store: all, only those of up to --inline-limit bytes, or none (files).",
)
@click.option(
    "--inline-limit",
    type=Integer(0, LARGEST_LIMIT),
    default=DEFAULT_LIMIT,
    show_default=True,
    help="Store contents of up to this many bytes in the node, larger ones as blobs (files).",
)
@click.option(
    "--blobs-from",
    metavar="URL",
    help="Copy blobs that the repository lacks from the repository at this URL (JSON).",
)
@_RETRY_TIMEOUT
@click.option("--verify/--no-verify", default=True, help="Compare the imported tree with SOURCE at the end.")
@click.option("-m", "--message", help="The message of each commit. Default: a text about the import.")
@click.pass_context
def import_(
    context: click.Context,
    source: str,
    form: str,
    target: str | None,
    workers: int,
    batch: int,
    exclude: tuple[str, ...],
    contents: Contents,
    inline_limit: int,
    blobs_from: str | None,
    retry_timeout: float | None,
    verify: bool,
    message: str | None,
) -> int:
    """Import a directory or a JSON file.

    Several processes create and commit a node for each directory and file below the directory SOURCE. A node stores the entry's
    kind, mode, time, size, SHA-256 and content in the properties :kind, :mode and so on. `hbasemk export` writes all of it
    back. An entry whose name begins with a colon gets one more colon in the tree. The import skips the files of the repository
    itself.

    With --format json, SOURCE is a file that `hbasemk export --format json` wrote (- for standard input). The import creates
    the nodes of the file exactly. It checks the whole file before it changes anything. An existing node must have the
    properties that it has in the file, or none. The import removes nothing: nodes that the file does not contain stay, and
    each child that only the tree has is a difference. The file refers to blobs but does not contain them: the exit code is 1
    if the repository lacks one. --blobs-from names the repository of the export, from which missing blobs are copied.

    After an interruption, run the same command again to continue. For a directory it also imports later changes and removes
    the nodes of deleted entries. At the end a new instance compares the tree with SOURCE. The exit code is 1 if it finds a
    difference, or if the command could not read an entry.
    """
    session: Session = context.obj
    if message is not None:
        check_message(message)
    if form == "json":
        for name in ("workers", "exclude", "contents", "inline_limit"):
            if context.get_parameter_source(name) is not ParameterSource.DEFAULT:
                raise click.UsageError(
                    f"--{name.replace('_', '-')} is for files only; leave it out, or leave out --format json"
                )
        if Path(source).is_dir():
            raise click.UsageError(f"{source} is a directory; --format json expects a file")
        seconds = _retry_seconds(retry_timeout, session.url)
        return _import_json(
            session, source, "/" if target is None else target, batch, blobs_from, seconds, verify, message
        )
    if blobs_from is not None:
        raise click.UsageError("--blobs-from is for --format json only; leave it out, or add --format json")
    if source == STREAM or not Path(source).is_dir():
        raise click.UsageError(
            f"{source} is not a directory; expected one (for a file that `export -f json` wrote, add --format json)"
        )
    seconds = _retry_seconds(retry_timeout, session.url)
    return _import_files(
        session, Path(source), target, workers, batch, exclude, contents, inline_limit, seconds, verify, message
    )


def _import_json(
    session: Session,
    source: str,
    at: str,
    batch: int,
    blobs_from: str | None,
    retry_timeout: float,
    verify: bool,
    message: str | None,
) -> int:
    from hbasemk.transfer.json.importer import JsonImport

    stream = standard_input("the JSON file") if source == STREAM else None
    with _progress(f"import to {at}") as progress:
        job = JsonImport(
            session.url,
            Path(source) if stream is None else stream,
            at,
            name=source if stream is None else "standard input",
            batch=batch,
            blobs_from=blobs_from,
            retry_timeout=retry_timeout,
            message=message,
            on_progress=progress,
            note=output.complain,
        )
        try:
            result = job.run(verify=verify)
        except (HbasemkError, OSError, KeyboardInterrupt):
            done = job.result
            if done.last is not None or done.unknown:
                least = "at least " if done.unknown else ""
                last = "" if done.last is None else f", the last one {done.last}"
                output.complain(
                    f"imported and kept: {least}{done.done} of {counted(done.nodes, 'node')}{last}; {done.added} added "
                    f"and {done.changed} changed in {counted(done.commits, 'commit')}. Run the same command again to "
                    "continue."
                )
            raise
    missing, different = result.missing, result.differences
    _print_sample("missing blob", missing.first, missing.count)
    _print_sample("differs", different.first, different.count)
    facts = {
        "imported to": at,
        "nodes": result.nodes,
        "nodes added": result.added,
        "nodes changed": result.changed,
        **({} if blobs_from is None else {"blobs copied": result.copied}),
        "missing blobs": missing.count,
        "commits": result.commits,
        "retries": result.retries,
        "seconds": round(result.seconds, 2),
    }
    if verify:
        facts["compared at revision"] = result.compared_at
        facts["differences"] = different.count
    return _ended(session, facts, failed=bool(missing.count or different.count))


@contextlib.contextmanager
def _progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """Show on a terminal how many of the nodes are imported."""
    with _bar() as progress:
        task = progress.add_task(output.visible(what), total=None)

        def report(advance: int, total: int) -> None:
            progress.update(task, advance=advance, total=total)

        yield report


def _bar() -> contextlib.AbstractContextManager[Progress]:
    """Create a progress bar with counts; it appears only on a terminal."""
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
    message: str | None,
) -> int:
    from hbasemk.transfer.files import entries
    from hbasemk.transfer.files.importer import Import
    from hbasemk.transfer.files.verify import Verification
    from hbasemk.transfer.files.verify import verify as compare
    from hbasemk.transfer.files.worker import Report

    at = entries.default_target(directory) if target is None else target
    with _bar() as progress:
        task = progress.add_task(output.visible(f"import to {at}"), total=None)
        handled = 0

        def on_report(report: Report, total: int) -> None:
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
            message=message,
            on_report=on_report,
            note=output.complain,
        )
        try:
            result = job.run()
        except (HbasemkError, OSError, KeyboardInterrupt) as error:
            done = job.result
            is_interrupted = isinstance(error, KeyboardInterrupt)
            if is_interrupted or done.committed or not done.is_exact:
                least = "" if done.is_exact else "at least "
                output.complain(
                    f"{'interrupted' if is_interrupted else 'not complete'}; {least}{counted(done.added, 'node')} added, "
                    f"{done.changed} changed and {done.removed} removed in {counted(done.committed, 'commit')} stay. Run "
                    "the same command again to continue."
                )
            if not is_interrupted:
                raise
            raise EndedBySignal from None
        progress.update(task, description="compare with the directory", completed=0, total=None)
        started = time.monotonic()
        verification = Verification()
        different = Sample()
        if verify:
            differences = compare(
                session.url,
                str(directory),
                at,
                verification,
                exclude=exclude,
                limit=limit,
                contents=contents,
                retry_timeout=retry_timeout,
                note=output.complain,
            )
            try:
                for difference in differences:
                    different.add(difference)
            except (HbasemkError, OSError, KeyboardInterrupt) as error:
                is_interrupted = isinstance(error, KeyboardInterrupt)
                output.complain(
                    f"{'interrupted' if is_interrupted else 'an error'} during the comparison; the import is complete: "
                    f"{counted(result.added, 'node')} added, {result.changed} changed and {result.removed} removed in "
                    f"{counted(result.committed, 'commit')} stay."
                )
                if not is_interrupted:
                    raise
                raise EndedBySignal from None
        elapsed = time.monotonic() - started

    # List failures first, so that the sample includes them.
    skipped = sorted(result.skipped, key=lambda one: not one.failed)
    _print_sample("skipped", [f"{one.relative}: {one.reason}" for one in skipped[:SHOWN]], len(skipped))
    _print_sample("differs", different.first, different.count)
    failed = [one for one in result.skipped if one.failed]
    facts = {
        "imported to": at,
        "entries": result.entries,
        "nodes added": result.added,
        "nodes changed": result.changed,
        "nodes removed": result.removed,
        "contents not kept": result.without_content,
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
        facts["compared"] = (
            f"{counted(verification.nodes, 'node')} at revision {verification.revision} in {elapsed:.2f} s"
        )
        facts["contents compared"] = (
            f"{counted(verification.contents, 'content')} of {counted(verification.bytes, 'byte')}"
        )
        facts["differences"] = different.count
    return _ended(session, facts, failed=bool(different.count or failed))


def _ended(session: Session, facts: dict[str, Any], *, failed: bool) -> int:
    """Print the result of a transfer; return its exit code. A failure stays one if the reader of the output has ended."""
    try:
        session.facts(facts)
    except BrokenPipeError:
        if not failed:
            raise
    return 1 if failed else 0


def _print_sample(what: str, lines: Sequence[str], count: int) -> None:
    for line in lines:
        output.complain(f"{what}: {line}")
    if count > len(lines):
        output.complain(f"{what}: and {count - len(lines)} more")


@click.command("export")
@click.argument("path")
@click.argument("target", type=DiskPath(readable=False, allow_dash=True), required=False)
@_form_option("The kind of TARGET: files, or one JSON file.")
@click.option(
    "--at",
    "revision",
    type=When(),
    metavar="WHEN",
    help="Export this revision, or the newest one before a time: an ISO date and time (UTC), or a duration ago, such as 2h.",
)
@_RETRY_TIMEOUT
@click.option(
    "--special-modes",
    is_flag=True,
    help="Also set the set-user-id, set-group-id and sticky bits of the nodes (files).",
)
@click.pass_obj
def export(
    session: Session,
    path: str,
    target: str | None,
    form: str,
    revision: str | datetime | None,
    retry_timeout: float | None,
    special_modes: bool,
) -> int:
    """Write a subtree to a folder or a JSON file.

    Writes the subtree of PATH to the folder TARGET, or as JSON to the file TARGET (default and -: standard output). JSON
    contains all nodes of one revision with all their properties; `hbasemk import --format json` creates the same tree where
    there are no other nodes.

    As files, a node that is a file or link becomes the file TARGET, or an entry of TARGET if that is an existing folder. The exit
    code is 1 if the command could not write an entry exactly: for example, a file whose content the import left out, or a mode or
    time that no file can have. Bits that need --special-modes do not change it.
    """
    from hbasemk.cli.session import at
    from hbasemk.transfer import own_files
    from hbasemk.transfer.exporter import export_files, write_json
    from hbasemk.transfer.json.exporter import export_json
    from hbasemk.transfer.retry import StoreRetry

    if special_modes and form == "json":
        raise click.UsageError("--special-modes is for files only; leave it out, or leave out --format json")
    place = None if target is None or target == STREAM else Path(target)
    if form == "json" and target is not None:
        require_file_name(target)
    if place is None and form == "files":
        raise click.UsageError("no folder to export the files to; give TARGET (./- for a folder named -)")
    retry = StoreRetry(_retry_seconds(retry_timeout, session.url), output.complain)
    with retry.opened(session.url, create=False, poll_interval=0) as repository:
        snapshot = retry.call(lambda: at(repository, revision))
        if place is not None:
            # SQLite has made all its files by now.
            own_files.refuse(place, session.url, "overwritten")
        if form == "json":
            if place is None:
                for piece in export_json(snapshot, path):
                    output.print_json(piece, end="")
                return 0
            write_json(snapshot, path, place)
            return 0
        assert place is not None
        assert target is not None
        if not place.is_dir() and snapshot[path].get(KIND) in (FILE, LINK):
            # It becomes the file TARGET.
            require_file_name(target)
        done = export_files(snapshot, path, place, special_modes=special_modes)
    for what, entries in (("skipped", done.skipped), ("incomplete", done.incomplete)):
        _print_sample(what, [f"{where}: {reason}" for where, reason in entries[:SHOWN]], len(entries))
    if done.masked:
        output.complain(
            f"{counted(done.masked, 'entry has', 'entries have')} set-user-id, set-group-id or sticky bits, "
            "which were left out; --special-modes sets them"
        )
    facts = {
        "directories": done.directories,
        "files": done.files,
        "links": done.links,
        "skipped": len(done.skipped),
        "incomplete": len(done.incomplete),
    }
    return _ended(session, facts, failed=bool(done.skipped or done.incomplete))


COMMANDS = (import_, export)

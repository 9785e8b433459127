"""Commands that look after a repository: check, recover, upgrade."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from hbasemk.cli import output
from hbasemk.cli.session import NULL, Integer, Seconds, Session
from hbasemk.errors import FormatError, NodeNotFoundError
from hbasemk.format.limits import shortened
from hbasemk.format.paths import ROOT
from hbasemk.options import CENTURY

if TYPE_CHECKING:
    from hbasemk.check import Problem
    from hbasemk.kernel.rollback import RecoveryResult

SHOWN = 100
"""So many problems of one kind are shown; the others are counted."""
MOST_WORKERS = 8
"""The largest number of worker processes of a check that does not name it."""
FIELDS = ("severity", "kind", "path", "revision", "detail")


@click.command("check")
@click.option(
    "--path",
    metavar="PATH",
    help="Check only the nodes at and below PATH, and no other table. /: all tables, as without this option.",
)
@click.option("--blobs", is_flag=True, help="Read the contents of all blobs as well; not with the --path of a subtree.")
@click.option("--repair", is_flag=True, help="Repair what can be repaired without losing committed data.")
@click.option("--all", "everything", is_flag=True, help=f"Show each problem, also beyond {SHOWN} of the same kind.")
@click.option(
    "-w",
    "--workers",
    type=Integer(1, 64),
    help=f"Processes that check the nodes of a large table. Default: one for each processor, at most {MOST_WORKERS}.",
)
@NULL
@click.pass_obj
def check(
    session: Session, path: str | None, blobs: bool, repair: bool, everything: bool, workers: int | None, null: bool
) -> int:
    """Check the tables for corruption and stale data.

    Other processes may write at the same time. Each line shows one problem: severity, kind, path, revision, details, and whether
    --repair can repair it (with --repair: the repair). The exit code is 0 if the check finds no problem or repairs all of them,
    else 1. Notes do not count. The exit code is also 1 if there has never been a node at PATH. Of many problems of one kind, the
    command shows the first ones and the number of the others. If the reader of a pipe ends, such as `head`, a check ends with the
    next problem that remains; --repair goes on without output.
    """
    from hbasemk.check import DAMAGE, LEFTOVER, NOTE, IntegrityCheck, Repair, Workers, check_unopened
    from hbasemk.opening import open_store, opened_instance
    from hbasemk.processes import usable_processors
    from hbasemk.repository import instance_of
    from hbasemk.system import SystemRuntime

    if null:
        session.end_with_null()
    if blobs and path is not None and path != ROOT:
        raise click.UsageError(
            f"--blobs cannot be combined with --path {shortened(path)}, which checks only nodes; leave out one of them"
        )
    found: Counter[str] = Counter()
    alike: Counter[str] = Counter()
    repaired = left = 0
    reader = output.Reader()
    counted: dict[str, int] = {}
    with output.row_progress("check") as progress, contextlib.ExitStack() as stack:
        repair_problem: Callable[[Problem], str | None] | None = None
        try:
            repository = stack.enter_context(session.open())
        except FormatError as error:
            if error.format is not None:
                # A repository of another format is not damaged, and this version cannot check it.
                raise
            store, owned, _ = open_store(session.url)
            if owned:
                stack.callback(store.close)
            problems = check_unopened(store, SystemRuntime(), error)
        else:
            run = IntegrityCheck(
                instance_of(repository),
                path=path,
                blobs=blobs,
                notes=True,
                live=True,
                progress=progress,
                workers=Workers(
                    min(usable_processors(), MOST_WORKERS) if workers is None else workers,
                    partial(opened_instance, session.url),
                ),
            )
            problems, counted = run.run(), run.counted
            if repair:
                repair_problem = Repair(instance_of(repository)).repair
        # Workers end before the repository closes.
        stack.enter_context(contextlib.closing(problems))
        for problem in problems:
            found[problem.severity] += 1
            done = None if repair_problem is None else repair_problem(problem)
            repaired += done is not None
            left += done is None and problem.severity != NOTE
            alike[problem.kind] += 1
            if everything or alike[problem.kind] <= SHOWN:
                reader.print(partial(_show, session, problem, done, repair=repair_problem is not None))
            if reader.has_ended and left and repair_problem is None:
                return 1
        if path is not None and not found and counted and not counted["nodes"]:
            raise NodeNotFoundError(
                f"there is no node at {shortened(path)}, and no trace of an earlier one", path=path, revision=None
            )
    for kind, count in alike.items():
        if not everything and count > SHOWN:
            output.complain(f"{kind}: {count - SHOWN} more; use --all to show them")
    facts = {f"{table} checked": rows for table, rows in counted.items() if rows}
    facts.update({"damage": found[DAMAGE], "leftovers": found[LEFTOVER], "notes": found[NOTE]})
    if repair:
        facts.update({"repaired": repaired, "left": left})
    reader.print(partial(_summarise, session, facts))
    return 1 if left else 0


def _summarise(session: Session, facts: dict[str, Any]) -> None:
    if session.json:
        output.print_json(json.dumps({"summary": {name.replace(" ", "_"): value for name, value in facts.items()}}))
    else:
        session.facts(facts)


def _show(session: Session, problem: Problem, done: str | None, *, repair: bool) -> None:
    row = [getattr(problem, name) for name in FIELDS]
    if repair:
        session.rows([[*row, done]], [*FIELDS, "done"])
    elif session.json:
        session.rows([[*row, problem.repairable]], [*FIELDS, "repairable"])
    else:
        session.rows([[*row, "can be repaired" if problem.repairable else ""]], [*FIELDS, "repairable"])
    output.flush()


@click.command("recover")
@click.option(
    "--branches",
    type=Seconds(CENTURY),
    metavar="SECONDS",
    help="Also abandon branches that received no commit for this long.",
)
@click.pass_obj
def recover(session: Session, branches: float | None) -> None:
    """Roll back unfinished work of dead writers now.

    Every instance does the same in the background. The command lists each revision: it aborted the revision, swept it (deleted
    its cells), found it committed, or must wait because the lease of its writer has not expired. Several processes may recover
    at the same time, and you may interrupt the command. If the reader of a pipe ends, it goes on without output.
    """
    from hbasemk.format import revisions
    from hbasemk.kernel import rollback
    from hbasemk.kernel.status import read_watermark
    from hbasemk.repository import instance_of

    counted: Counter[str] = Counter()
    reader = output.Reader()
    with session.open() as repository:
        for one in rollback.recover(instance_of(repository), None if branches is None else round(branches * 1000)):
            counted[one.result] += 1
            reader.print(partial(_show_recovered, session, one))
        watermark = read_watermark(instance_of(repository))
    facts: dict[str, Any] = {what: counted[what] for what in rollback.ALL}
    facts["watermark"] = None if watermark is None else revisions.to_text(watermark.revision)
    reader.print(partial(_summarise, session, facts))


def _show_recovered(session: Session, one: RecoveryResult) -> None:
    session.rows([[one.result, one.revision, one.holder]], ["result", "revision", "holder"])
    output.flush()


@click.command("upgrade")
@click.option(
    "--to", "wanted", type=Integer(min=1), metavar="FORMAT", help="Upgrade to this format. Default: the newest one."
)
@click.pass_obj
def upgrade(session: Session, wanted: int | None) -> None:
    """Upgrade the repository to the format of this version.

    First end all processes that use the repository. While a process holds a lease, the command changes nothing and names the
    process. It changes no data. You may interrupt it and run it again. Older versions of hbasemk cannot open the repository
    afterwards, so make a backup first.
    """
    from hbasemk.kernel.upgrade import upgrade as run
    from hbasemk.opening import open_store
    from hbasemk.system import DEFAULT_RETRY_TIMEOUT, SystemRuntime

    store, owned, options = open_store(session.url)
    with contextlib.ExitStack() as stack:
        if owned:
            stack.callback(store.close)
        runtime = SystemRuntime(options.get("retry_timeout", DEFAULT_RETRY_TIMEOUT))
        done = run(store, runtime, output.complain, wanted)
        location = store.location
    if done.before == done.after:
        what = f"nothing to do: the repository has format {done.after}"
    else:
        what = f"upgraded from format {done.before} to format {done.after}"
    facts: dict[str, Any] = {"location": location, "format": done.after, "done": what}
    if session.json or done.numbered or done.aborted:
        facts.update({"revisions numbered": done.numbered, "pending revisions aborted": done.aborted})
    session.facts(facts)


COMMANDS = (check, recover, upgrade)

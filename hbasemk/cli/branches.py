"""Commands on branches: branch, branches, merge."""

from __future__ import annotations

import click

from hbasemk.cli import output
from hbasemk.cli.session import Revision, Seconds, Session
from hbasemk.options import CENTURY


@click.command("branch")
@click.argument("base", type=Revision(), required=False)
@click.option(
    "--rebase",
    "to_rebase",
    type=Revision(),
    metavar="REVISION",
    help="Instead of creating a branch, move this one to BASE (default: the newest).",
)
@click.option(
    "--reset",
    "reset",
    type=Revision(),
    nargs=2,
    metavar="REVISION TO",
    help="Instead, reset this branch to its earlier revision TO.",
)
@click.option(
    "--abandon", type=Revision(), metavar="REVISION", help="Instead, end this branch without a merge. Print nothing."
)
@click.option(
    "--sweep",
    type=Seconds(CENTURY),
    metavar="SECONDS",
    help="Instead, abandon branches that received no commit for this long, and delete the data of branches that ended an hour "
    "ago, or this long ago if that is shorter. Print the branches that are abandoned, or whose data is deleted.",
)
@click.option(
    "-m",
    "--message",
    help="The branch's message: `hbasemk branches` shows it, and it describes the merge. A rebase keeps it.",
)
@click.pass_obj
def branch(
    session: Session,
    base: str | None,
    to_rebase: str | None,
    reset: tuple[str, str] | None,
    abandon: str | None,
    sweep: float | None,
    message: str | None,
) -> None:
    """Create a private branch of trunk and print its revision.

    The branch begins at the trunk revision BASE (default: the newest). Commit to it with `hbasemk commit --on REVISION`, each
    time with the revision that the last commit printed.

    If trunk and a branch changed the same data, --rebase keeps trunk's version and stores the branch's in a node :conflict. It
    prints the paths of these nodes to standard error. Remove them on the branch before you merge it.
    """
    from hbasemk.microkernel import MicroKernel

    if sum(option is not None for option in (to_rebase, reset, abandon, sweep)) > 1:
        raise click.UsageError("expected at most one of --rebase, --reset, --abandon and --sweep")
    for option, value in (("--rebase", to_rebase), ("--reset", reset), ("--abandon", abandon), ("--sweep", sweep)):
        if message is not None and value is not None:
            raise click.UsageError(
                f"-m is the message of a new branch, and {option} creates none; leave out one of them"
            )
    for option, value in (("--reset", reset), ("--abandon", abandon), ("--sweep", sweep)):
        if base is not None and value is not None:
            raise click.UsageError(f"{option} takes no BASE, got {base}; leave it out")
    with session.open() as repository:
        repository.refresh()
        if sweep is not None:
            session.rows(([root] for root in repository.sweep_branches(sweep)), ["branch"])
            return
        if abandon is not None:
            repository.resume_branch(abandon).abandon()
            return
        if to_rebase is not None:
            rebased = repository.resume_branch(to_rebase)
            markers = rebased.rebase(None if base is None else repository.at(base))
            revision = rebased.revision
            for marker in markers:
                output.complain(f"conflict: {marker}")
        elif reset is not None:
            revision = MicroKernel(repository).reset(*reset)
        else:
            revision = repository.branch(message or "", base=None if base is None else repository.at(base)).revision
        session.rows([[revision]], ["revision"])


@click.command("branches")
@click.pass_obj
def branches(session: Session) -> None:
    """List the branches that have not ended, of all processes.

    Prints a line for each: its newest revision, the time of that revision, the process that made it, and the branch's message.
    JSON output has the fields revision, first, base, begun, time, writer and message. `hbasemk merge REVISION` merges a branch,
    and `hbasemk branch --abandon REVISION` ends it without a merge.
    """
    with session.open() as repository:
        for one in repository.branches():
            shown: dict[str, str | None] = {"revision": one.revision}
            if session.json:
                shown |= {"first": one.first, "base": one.base, "begun": output.moment(one.begun.timestamp() * 1000)}
            shown |= {
                "time": output.moment(one.time.timestamp() * 1000),
                "writer": one.writer,
                "message": session.message(one.message),
            }
            session.rows([list(shown.values())], list(shown))


@click.command("merge")
@click.argument("revision", type=Revision())
@click.option("-m", "--message", help="The commit message; `hbasemk log` shows it. Default: the branch's message.")
@click.pass_obj
def merge(session: Session, revision: str, message: str | None) -> None:
    """Merge a branch into trunk, as a whole or not at all.

    REVISION is the newest revision of the branch. The command prints the new trunk revision, and the branch ends.

    A branch without effect makes no revision and stays open. The command then prints the newest trunk revision. `hbasemk branch
    --abandon REVISION` ends such a branch; without it the branch stays open for a day.

    If trunk has changed the same data since, that is a conflict (exit code 3). Then `hbasemk branch --rebase REVISION` combines
    the changes of both.
    """
    from hbasemk.errors import ConflictError
    from hbasemk.microkernel import MicroKernel

    with session.open() as repository:
        try:
            merged = MicroKernel(repository).merge(revision, message)
        except ConflictError as error:
            # The error advises to try again, which would fail in the same way.
            other = f"revision {error.other}" if error.other != error.revision else "another revision"
            raise ConflictError(
                f"the branch at {revision} cannot be merged: {other} changed {error.column} of "
                f"{error.path}, which the branch changed or depends on. Neither was changed. Run `hbasemk branch "
                f"--rebase {revision}`, remove the conflict markers that it prints, and merge the branch's newest revision.",
                path=error.path,
                column=error.column,
                revision=error.revision,
                other=error.other,
            ) from error
        session.committed(merged)


COMMANDS = (branch, branches, merge)

"""Ending what dead writers left, all of it at once and told: ``hbasemk recover``.

Every instance does the same in the background, as far as it meets it. Each step is a compare-and-set or may be done twice, so
several may do this at the same time, and it may be interrupted anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from hbasemk.kernel import revision, schema
from hbasemk.kernel.calls import again
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.lease import record_of
from hbasemk.kernel.outcome import Outcome
from hbasemk.store.abc import Get

ENDED: Final = "aborted"
COMMITTED: Final = "committed"
SWEPT: Final = "swept"
WAITING: Final = "waiting"
BRANCH: Final = "branch"
ALL: Final = (ENDED, SWEPT, COMMITTED, BRANCH, WAITING)


class Ended(NamedTuple):
    """One revision that was looked after.

    ``what``: ENDED (it was pending; it is aborted now and its cells are deleted), COMMITTED (it was pending and turned out
    committed), SWEPT (it was aborted; its cells are deleted now), BRANCH (the first revision of a branch that was given up or
    had ended; what it left is deleted now), or WAITING (its writer's lease goes on, so nothing may be done yet). ``holder``
    names the machine id's present lease holder.
    """

    revision: str
    what: str
    holder: str


def recover(instance: Instance, branches_ms: int | None = None) -> Iterator[Ended]:
    """End what ended writers left, telling each revision; then the watermark moves as far as it can.

    ``branches_ms``: give up branches, too, that nobody has touched for so many ms. Raises StoreError; what was done until
    then stays done.
    """
    instance.poll()
    outcomes, journal = instance.outcomes, instance.journal
    for which in sorted(journal.pending - set(outcomes.left)):
        over = again(instance.runtime, lambda which=which: outcomes.recover_if_over(which))  # type: ignore[misc]
        found = outcomes.of(which)
        if over or found is not Outcome.ABORTED:
            # Whoever was faster has told it, or will.
            what = {Outcome.COMMITTED: COMMITTED, Outcome.ABORTED: ENDED}.get(found, WAITING)
            yield Ended(revision.to_text(which), what, _holder(instance, which))
    for which in journal.unswept(0.0):
        # Whose writer lives it rolls back itself; without a lease nobody is about to.
        if outcomes.is_swept(which):
            continue
        over = again(instance.runtime, lambda which=which: outcomes.recover_if_over(which))  # type: ignore[misc]
        if over:
            journal.is_swept(which)
        yield Ended(revision.to_text(which), SWEPT if over else WAITING, _holder(instance, which))
    for which in instance.recovery.recover_late():
        yield Ended(revision.to_text(which), ENDED, _holder(instance, which))
    if branches_ms is not None:
        for root in instance.branches.sweep(branches_ms):
            yield Ended(revision.to_text(root), BRANCH, _holder(instance, root))
    instance.poll()
    instance.recovery.advance()


def _holder(instance: Instance, which: int) -> str:
    get = Get(schema.machine_key(revision.machine_of(which)), columns=(schema.LEASE,))
    record = record_of(again(instance.runtime, lambda: instance.store.read(schema.CLUSTER, [get]))[0])
    return "" if record is None else record.holder

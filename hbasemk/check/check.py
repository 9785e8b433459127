"""One run of the integrity check, over the view at the head of an instance."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Generator, Iterator

from hbasemk.check import problem as kinds
from hbasemk.check.blobs import BlobsCheck
from hbasemk.check.child_counts import CountsCheck
from hbasemk.check.cluster import ClusterCheck, Leases
from hbasemk.check.context import CheckContext
from hbasemk.check.journal import JournalCheck
from hbasemk.check.links import Links
from hbasemk.check.logs import Logs
from hbasemk.check.nodes import NodesCheck
from hbasemk.check.problem import Problem
from hbasemk.check.workers import NodesWorkers, Workers
from hbasemk.errors import CHECK_ADVICE, FormatError
from hbasemk.format import paths, schema
from hbasemk.kernel.inspection import HeadInspection, Inspection
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.retrying_store import RetryingStore
from hbasemk.kernel.runtime import Runtime
from hbasemk.kernel.settings import Settings
from hbasemk.store.abc import Get, Store

Progress = Callable[[str, int], None]
"""A function that receives the table and the number of its checked rows, or of checked blobs, after each batch."""


class IntegrityCheck:
    """One run over one instance.

    ``path`` restricts the check to one subtree. ``blobs`` reads the contents of all blobs; otherwise the check only verifies
    that referenced blobs exist. ``notes`` also yields findings that are not problems. ``live``: other instances may work
    meanwhile, so a rollback that is still possible for its writer is not a problem; otherwise every aborted revision that is
    not rolled back is one. ``rows`` counts the nodes checked so far, ``revisions`` the journal rows.
    """

    def __init__(
        self,
        instance: Instance,
        *,
        path: str | None = None,
        blobs: bool = True,
        notes: bool = False,
        live: bool = False,
        progress: Progress | None = None,
        workers: Workers | None = None,
    ) -> None:
        self._instance = instance
        self._path = None if path is None or path == paths.ROOT else paths.check_path(path)
        self._blobs = blobs
        self._notes = notes
        self._live = live
        self._progress = progress
        self._workers = workers
        self.counted = dict.fromkeys((schema.CLUSTER, schema.NODES, schema.JOURNAL, schema.BLOBS), 0)

    @property
    def rows(self) -> int:
        """The number of nodes checked so far."""
        return self.counted[schema.NODES]

    def run(self) -> Generator[Problem, None, None]:
        """Yield every problem as it is found; none means that the repository is intact.

        It checks the view at its beginning; later commits may be missing from it. Each worker checks the view at the worker's
        beginning, and the problems come in any order. Memory is bounded. Raises StoreError, HbasemkError if a worker ends
        unexpectedly, and RevisionCollectedError if the view becomes older than the retention meanwhile; a checkpoint made before
        prevents that.
        """
        problems = self._run()
        # The workers end with the last problem that the caller takes.
        with contextlib.closing(problems):
            for problem in problems:
                if self._notes or problem.severity != kinds.NOTE:
                    yield _without_advice(problem)

    def _run(self) -> Generator[Problem, None, None]:
        inspection = HeadInspection(self._instance)
        context = CheckContext(inspection, live=self._live)
        links = Links(context, inspection.cells)
        nodes = self._nodes(context, NodesCheck(context, links, self._progress_for(schema.NODES)))
        if self._path is not None:
            yield from nodes
            return
        counts = CountsCheck(context, inspection)
        now_ms = inspection.now_ms if self._blobs else None
        yield from _tables(context, self._progress_for, nodes, counts, now_ms)

    def _nodes(self, context: CheckContext, nodes: NodesCheck) -> Iterator[Problem]:
        if self._workers is None or self._workers.number < 2:
            yield from nodes.run(self._path)
            return
        with NodesWorkers(self._workers, context, nodes, self._progress_for(schema.NODES)) as several:
            yield from nodes.run(self._path, several)

    def _progress_for(self, table: str) -> Callable[[int], None]:
        def progress(rows: int) -> None:
            self.counted[table] += rows
            if self._progress is not None:
                self._progress(table, self.counted[table])

        return progress


def _tables(
    context: CheckContext,
    progress_for: Callable[[str], Callable[[int], None]],
    nodes: Iterator[Problem],
    counts: CountsCheck | None,
    now_ms: Callable[[], float] | None,
) -> Iterator[Problem]:
    """Check all tables; ``nodes`` are the problems of that one. Without ``now_ms``, leave out the blobs."""
    leases, logs = Leases(context), Logs(context)
    yield from ClusterCheck(context, leases, logs, progress_for(schema.CLUSTER)).run()
    if counts is not None:
        yield from counts.run()
    yield from nodes
    yield from JournalCheck(context, leases, logs, progress_for(schema.JOURNAL)).run()
    if now_ms is not None:
        yield from BlobsCheck(context, now_ms, progress_for(schema.BLOBS)).run()


def check_unopened(store: Store, runtime: Runtime, why: FormatError) -> Generator[Problem, None, None]:
    """Check the cluster table and the journal of a repository that cannot be opened because of ``why``.

    If the settings cannot be read, yield only that problem.
    """
    get = Get(schema.SETTINGS_ROW, columns=(schema.SETTINGS,))
    row = RetryingStore(store, runtime).read(schema.CLUSTER, [get])[0]
    try:
        settings = Settings.decode(b"".join(cell.value for cell in row.cells), store)
    except FormatError:
        yield _without_advice(Problem(kinds.SETTINGS, schema.SETTINGS_ROW.decode(), "", str(why)))
        return
    context = CheckContext(Inspection.unopened(store, runtime, settings), live=True)
    seen = False
    for problem in _tables(context, lambda _: lambda _: None, iter(()), None, None):
        seen = seen or problem.severity == kinds.DAMAGE
        yield _without_advice(problem)
    if getattr(why, "table", None) in {schema.NODES, schema.BLOBS}:
        # These tables have not been checked.
        yield _without_advice(Problem(kinds.VALUE, store.location, "", str(why)))
    elif not seen:
        yield _without_advice(Problem(kinds.SETTINGS, store.location, "", str(why)))


def _without_advice(problem: Problem) -> Problem:
    """Remove the advice of an error message to run the check, which is what reports the problem."""
    if CHECK_ADVICE not in problem.detail:
        return problem
    return dataclasses.replace(problem, detail=problem.detail.replace(CHECK_ADVICE, ""))

"""Import of exported JSON: validated first, then committed in batches, then compared.

The text is read once. Its validated nodes, with encoded values, are in a temporary file, from which they are committed and
compared.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final, TypeAlias

from hbasemk.errors import BlobNotFoundError, HbasemkError, InvalidChangeError, InvalidValueError
from hbasemk.format import paths, revisions
from hbasemk.format.journal_row import Outcome
from hbasemk.format.limits import shortened
from hbasemk.format.node import NodeState, decode_properties
from hbasemk.format.values import Encoded, blobs_of
from hbasemk.interrupts import Deferred
from hbasemk.kernel.retry import TimeLimit
from hbasemk.repository import Repository, instance_of
from hbasemk.snapshot import view_of
from hbasemk.transaction import Transaction, add_encoded, load_encoded, set_encoded
from hbasemk.transfer import own_files
from hbasemk.transfer.json.blob_copy import copy_blobs
from hbasemk.transfer.json.node_file import NodeFile
from hbasemk.transfer.json.reader import read_tree
from hbasemk.transfer.json.surplus import Surplus
from hbasemk.transfer.json.values import encode_any
from hbasemk.transfer.retry import RETRY_SECONDS, StoreRetry
from hbasemk.transfer.summary import Sample

Batch: TypeAlias = dict[str, Encoded]
"""The nodes of one commit by path, parents first."""

ANSWER_WITHIN: Final = 10.0
"""The seconds for which a failed import tries to read the outcome of its last commit."""


@dataclass(slots=True)
class JsonResult:
    """The result of a JSON import. ``done`` of ``nodes`` nodes are in the tree, up to the path ``last``.

    ``missing`` are the blobs that nodes refer to and that the repository does not hold, each once for every batch that needs
    it. ``copied`` is the number of blobs that the import has copied. ``differences`` are those of the final comparison.
    ``seconds`` excludes that comparison. ``unknown`` are the nodes of an interrupted batch whose outcome could not be read;
    they are not counted.
    """

    nodes: int = 0
    added: int = 0
    changed: int = 0
    done: int = 0
    last: str | None = None
    commits: int = 0
    unknown: int = 0
    retries: int = 0
    copied: int = 0
    seconds: float = 0.0
    missing: Sample = field(default_factory=Sample)
    differences: Sample = field(default_factory=Sample)
    compared_at: str | None = None
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Try:
    """The result of one call of the change in its transaction."""

    tx: Transaction
    added: int
    changed: int

    @property
    def writes(self) -> bool:
        """Whether the call changed anything."""
        return bool(self.added or self.changed)


class JsonImport:
    """One import of exported JSON from a file, or from a stream that is named ``name``, to the node ``at``.

    Existing nodes with the same properties stay, and those without properties receive them. So a failed import resumes when
    it runs again. Nodes that the file does not contain stay; the comparison reports those whose parent it contains. A commit
    takes at most ``batch`` nodes. If ``blobs_from`` is the URL of another repository, the import first copies blobs from there
    that are missing here. ``retry_timeout`` is the number of seconds for which calls are retried. ``on_progress`` receives the
    number of nodes that a batch adds and their total, and ``note`` the reason of each wait. ``message`` is that of each
    commit; None: the name of the source.
    """

    def __init__(
        self,
        url: str,
        source: Path | BinaryIO,
        at: str,
        *,
        name: str = "",
        batch: int = 200,
        blobs_from: str | None = None,
        retry_timeout: float = RETRY_SECONDS,
        message: str | None = None,
        on_progress: Callable[[int, int], None] | None = None,
        note: Callable[[str], None] | None = None,
    ) -> None:
        if url.lower().startswith("memory:"):
            raise InvalidValueError(
                f"cannot import to {url!r}: the repository disappears when the import ends; use a sqlite:/// or hbase:// URL"
            )
        self._url = url
        self._source = source
        self._start: int | None = None
        self._at = paths.check_path(at)
        self._name = name or str(source)
        self._message = f"import of {Path(self._name).name}" if message is None else message
        self._size = batch
        self._blobs_from = blobs_from
        self._retry = StoreRetry(retry_timeout, self._done_again)
        self._note = note
        self._on_progress = on_progress
        self._revisions: set[int] = set()
        """The revisions that this import committed."""
        self.result = JsonResult()

    def run(self, *, verify: bool = True) -> JsonResult:
        """Import everything; after an error ``result`` shows how far the import came.

        Raises OSError and InvalidValueError for an unreadable source, before it changes anything; OSError for the temporary
        file; InvalidChangeError for an existing node with other properties; and HbasemkError for errors of the store.
        """
        began = time.monotonic()
        result = self.result
        with ExitStack() as stack:
            stack.callback(self._count_retries)
            source = self._opened(stack)
            nodes = stack.enter_context(NodeFile(self._size))
            for count in nodes.write(read_tree(source, self._name, self._at)):
                result.nodes += count
            origin = None
            if self._blobs_from is not None:
                origin = stack.enter_context(self._retry.opened(self._blobs_from, create=False, poll_interval=0))
            with self._retry.opened(self._url) as repository:
                for batch in map(dict, nodes.batches()):
                    if origin is not None:
                        result.copied += copy_blobs(_missing(repository, batch.values()), origin, repository)
                    self._bring(repository, batch)
            result.seconds = time.monotonic() - began
            if verify:
                self._compare(nodes)
        return result

    def _opened(self, stack: ExitStack) -> BinaryIO:
        """Return the source as an open file."""
        use = "imported"
        if isinstance(self._source, Path):
            return stack.enter_context(own_files.open_other(self._source, self._url, use))
        own_files.refuse_open(self._source, self._name, self._url, use)
        if self._source.seekable():
            # The next run reads the same again: standard input can begin in the middle of a file.
            if self._start is None:
                self._start = self._source.tell()
            self._source.seek(self._start)
        return self._source

    # --- commits -------------------------------------------------------------------------------------

    def _bring(self, repository: Repository, batch: Batch) -> None:
        result = self.result
        tries: list[_Try] = []

        def change(tx: Transaction) -> _Try:
            tries.clear()
            tries.append(_Try(tx, *self._apply(tx, batch)))
            return tries[0]

        # Until the batch is counted, for interrupts at any point.
        result.unknown = len(batch)
        try:
            self._count(batch, self._retry.run(repository, change, self._message))
        except BaseException:
            if result.unknown:
                self._read_outcome(repository, batch, tries)
            raise
        for blob in _missing(repository, batch.values()):
            result.missing.add(blob)
        if self._on_progress is not None:
            self._on_progress(len(batch), result.nodes)

    def _count(self, batch: Batch, committed: _Try | None) -> None:
        result = self.result
        with Deferred():
            # In one step: an interrupt finds the batch counted or not.
            if committed is not None:
                result.added += committed.added
                result.changed += committed.changed
                result.commits += committed.writes
                if committed.tx.attempted is not None:
                    self._revisions.add(revisions.from_text(committed.tx.attempted))
                result.done += len(batch)
                result.last = list(batch)[-1]
            result.unknown = 0

    def _read_outcome(self, repository: Repository, batch: Batch, tries: list[_Try]) -> None:
        """Read the outcome of the interrupted batch, and count it if it is committed."""
        newest = tries[0] if tries else None
        try:
            with TimeLimit(instance_of(repository).runtime, ANSWER_WITHIN):
                committed = newest is not None and self._is_committed(repository, batch, newest)
        except HbasemkError as error:
            self.result.notes.append(f"the outcome of the last batch is not known: {error}")
            return
        self._count(batch, newest if committed else None)

    @staticmethod
    def _is_committed(repository: Repository, batch: Batch, newest: _Try) -> bool:
        if newest.writes:
            attempted = newest.tx.attempted
            return attempted is not None and repository.outcome(attempted) is Outcome.COMMITTED
        instance = instance_of(repository)
        states = instance.nodes(view_of(instance, repository.refresh()), list(batch))
        return all(state is not None and _is_same(path, state.encoded, batch[path]) for path, state in states.items())

    def _count_retries(self) -> None:
        self.result.retries = self._retry.retries

    def _done_again(self, why: str) -> None:
        self.result.notes.append(why)
        if self._note is not None:
            self._note(why)

    def _apply(self, tx: Transaction, batch: Batch) -> tuple[int, int]:
        above = []
        if self._at in batch and self._at != paths.ROOT:
            above = [paths.parent(self._at)]
            while above[-1] != paths.ROOT:
                above.append(paths.parent(above[-1]))
        # Nothing is below a missing node. So the rest is read only if one of these is there.
        topmost = [path for path in batch if path == paths.ROOT or paths.parent(path) not in batch]
        parents = [paths.parent(path) for path in topmost if path != paths.ROOT]
        found = load_encoded(tx, list(dict.fromkeys([*topmost, *parents, *above])))
        found.update(load_encoded(tx, [path for path in batch if path not in found]))
        for path in reversed(above):
            if found[path] is None:
                tx.add(path)
        added = changed = 0
        for path, wanted in batch.items():
            there = found[path]
            if there is None:
                add_encoded(tx, path, wanted)
                added += 1
                continue
            if not there and wanted:
                changed += 1
            elif not _is_same(path, there, wanted):
                raise InvalidChangeError(
                    f"{shortened(path)} already exists with other properties, and an import does not replace them. Import "
                    "to another path (--at), or remove the node.",
                    path=path,
                )
            # For equal values this writes nothing, but the commit depends on them.
            for name, data in wanted.items():
                set_encoded(tx, path, name, data)
        return added, changed

    # --- the comparison ---------------------------------------------------------------------------------------

    def _compare(self, nodes: NodeFile) -> None:
        """Let a fresh instance read every node, and the names of the children that others may have added.

        One round trip for each batch, and another one if some nodes of the batch may have such children.
        """
        differences = self.result.differences
        surplus = Surplus()
        with self._retry.opened(self._url, create=False, poll_interval=0) as repository:
            snapshot = self._retry.call(repository.refresh)
            self.result.compared_at = snapshot.revision
            instance = instance_of(repository)
            view = view_of(instance, snapshot)
            for batch in map(dict, nodes.batches()):
                found = instance.nodes(view, list(batch))
                shared = [state for state in found.values() if state is not None and not self._is_own(state)]
                children = instance.children_of(view, shared)
                for path, wanted in batch.items():
                    state = found[path]
                    if state is None:
                        differences.add(f"{path}: is not there")
                    elif not _is_same(path, state.encoded, wanted):
                        there = _normal(path, state.encoded)
                        names = sorted(name for name in {*there, *wanted} if there.get(name) != wanted.get(name))
                        differences.add(f"{path}: {', '.join(names)}")
                    for extra in surplus.begin(path, children[path].names if path in children else ()):
                        differences.add(_surplus(extra))
            for extra in surplus.end():
                differences.add(_surplus(extra))

    def _is_own(self, state: NodeState) -> bool:
        """Return whether one commit of this import added a node, and no other commit touched it or its set of children."""
        return state.created == state.revision and state.created in self._revisions


def _surplus(path: str) -> str:
    return f"{path}: is in the tree, but not in the file; the import leaves it there"


def _is_same(path: str, there: Encoded, wanted: Encoded) -> bool:
    """Return whether stored properties have the wanted values."""
    return there == wanted or _normal(path, there) == wanted


def _normal(path: str, stored: Encoded) -> Encoded:
    """Return stored properties as this version encodes them; raise FormatError for a damaged one."""
    return {name: encode_any(value) for name, value in decode_properties(path, stored).items()}


def _missing(repository: Repository, nodes: Iterable[Encoded]) -> Iterator[str]:
    wanted = {blob: None for node in nodes for data in node.values() for blob in blobs_of(data)}
    instance = instance_of(repository)
    for blob in wanted:
        try:
            instance.keep_blob(blob)
        except BlobNotFoundError:
            yield blob

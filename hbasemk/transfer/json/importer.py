"""Import of exported JSON: validated first, then committed in batches, then compared."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final, TypeAlias

from hbasemk.errors import BlobNotFoundError, HbasemkError, InvalidChangeError, InvalidValueError
from hbasemk.format import paths
from hbasemk.format.journal_row import Outcome
from hbasemk.format.values import BlobRef, PropertyValue, encode
from hbasemk.interrupts import Deferred
from hbasemk.kernel.retry import time_limit
from hbasemk.repository import Repository, instance_of
from hbasemk.transaction import Transaction
from hbasemk.transfer import own_files
from hbasemk.transfer.json.reader import read_tree
from hbasemk.transfer.retry import StoreRetry
from hbasemk.transfer.summary import Sample

Encoded: TypeAlias = dict[str, bytes]
"""Properties as they are stored, so that 1, 1.0 and true differ."""
Batch: TypeAlias = dict[str, dict[str, PropertyValue]]

ANSWER_WITHIN: Final = 10.0
"""The seconds for which a failed import tries to read the outcome of its last commit."""
LARGEST: Final = 4 << 20
"""The bytes of values above which a batch takes no further node."""


@dataclass(slots=True)
class JsonResult:
    """The result of a JSON import. ``done`` of ``nodes`` nodes are in the tree, up to the path ``last``.

    ``missing`` are the blobs that nodes refer to and that the repository does not hold, each once for every batch that needs
    it; ``differences`` are those of the final comparison. ``seconds`` excludes that comparison. ``unknown`` are the nodes
    of an interrupted batch whose outcome could not be read; they are not counted.
    """

    nodes: int = 0
    added: int = 0
    changed: int = 0
    done: int = 0
    last: str | None = None
    commits: int = 0
    unknown: int = 0
    retries: int = 0
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
    it runs again. A commit takes at most ``batch`` nodes. ``retry_timeout`` is the number of seconds for which calls are
    retried. ``on_progress`` receives the number of nodes that a batch adds and their total, and ``note`` the reason of each
    wait.
    """

    def __init__(
        self,
        url: str,
        source: Path | BinaryIO,
        at: str,
        *,
        name: str = "",
        batch: int = 200,
        retry_timeout: float = 120.0,
        on_progress: Callable[[int, int], None] | None = None,
        note: Callable[[str], None] | None = None,
    ) -> None:
        if url.lower().startswith("memory:"):
            raise InvalidValueError(
                f"cannot import to {url!r}: the repository disappears when the import ends; use a sqlite:/// or hbase:// URL"
            )
        self._url = url
        self._source = source
        self._at = paths.check_path(at)
        self._name = name or str(source)
        self._size = batch
        self._retry = StoreRetry(retry_timeout, self._done_again)
        self._note = note
        self._on_progress = on_progress
        self.result = JsonResult()

    def run(self, *, verify: bool = True) -> JsonResult:
        """Import everything; after an error ``result`` shows how far the import came.

        Raises OSError and InvalidValueError for an unreadable source, before it changes anything; InvalidChangeError for an
        existing node with other properties; and HbasemkError for errors of the store.
        """
        began = time.monotonic()
        result = self.result
        with ExitStack() as stack:
            file = self._seekable(stack)
            for _ in self._read(file):
                result.nodes += 1
            with self._retry.opened(self._url) as repository:
                for batch in self._batches(file):
                    self._bring(repository, batch)
            result.seconds = time.monotonic() - began
            if verify:
                self._compare(file)
        return result

    def _seekable(self, stack: ExitStack) -> BinaryIO:
        """Return the source as a file that can be read several times."""
        use = "imported"
        if isinstance(self._source, Path):
            given = stack.enter_context(own_files.open_other(self._source, self._url, use))
        else:
            own_files.refuse_open(self._source, self._name, self._url, use)
            given = self._source
        if given.seekable():
            return given
        kept = tempfile.TemporaryFile()  # noqa: SIM115 - it is closed with the stack
        stack.enter_context(kept)
        shutil.copyfileobj(given, kept)
        return kept

    def _read(self, file: BinaryIO) -> Iterator[tuple[str, dict[str, PropertyValue]]]:
        file.seek(0)
        return read_tree(file, self._name, self._at)

    def _batches(self, file: BinaryIO) -> Iterator[Batch]:
        batch: Batch = {}
        size = 0
        for path, found in self._read(file):
            if path in batch:
                raise InvalidChangeError(f"{self._name} contains {path} twice; remove one of them", path=path)
            batch[path] = found
            size += sum(map(_size, found.values()))
            if len(batch) >= self._size or size >= LARGEST:
                yield batch
                batch, size = {}, 0
        if batch:
            yield batch

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
            self._count(batch, self._retry.run(repository, change, f"import of {Path(self._name).name}"))
        except BaseException:
            if result.unknown:
                self._find_out(repository, batch, tries)
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
                result.done += len(batch)
                result.last = list(batch)[-1]
            result.unknown = 0

    def _find_out(self, repository: Repository, batch: Batch, tries: list[_Try]) -> None:
        """Read the outcome of the interrupted batch, and count it if it is committed."""
        newest = tries[0] if tries else None
        try:
            with time_limit(instance_of(repository).runtime, ANSWER_WITHIN):
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
        nodes = repository.refresh().nodes(list(batch))
        return all(node is not None and _encoded(node) == _encoded(batch[path]) for path, node in nodes.items())

    def _done_again(self, why: str) -> None:
        self.result.notes.append(why)
        self.result.retries += 1
        if self._note is not None:
            self._note(why)

    def _apply(self, tx: Transaction, batch: Batch) -> tuple[int, int]:
        above = []
        if self._at in batch and self._at != paths.ROOT:
            above = [paths.parent(self._at)]
            while above[-1] != paths.ROOT:
                above.append(paths.parent(above[-1]))
        parents = {paths.parent(path): None for path in batch if path != paths.ROOT}
        found = tx.load(list({**dict.fromkeys(batch), **parents, **dict.fromkeys(above)}))
        for path in reversed(above):
            if found[path] is None:
                tx.add(path)
        added = changed = 0
        for path, wanted in batch.items():
            there = found[path]
            if there is None:
                tx.add(path, wanted)
                added += 1
            elif not there and wanted:
                tx.update(path, wanted)
                changed += 1
            elif _encoded(there) != _encoded(wanted):
                raise InvalidChangeError(
                    f"{path} already exists with other properties, and an import does not replace them. Import to another path "
                    "(--at), or remove the node.",
                    path=path,
                )
            else:
                # This writes nothing, but the commit depends on these values.
                tx.update(path, wanted)
        return added, changed

    # --- the comparison ---------------------------------------------------------------------------------------

    def _compare(self, file: BinaryIO) -> None:
        """Let a fresh instance read every node."""
        with self._retry.opened(self._url, create=False, poll_interval=0) as repository:
            snapshot = self._retry.call(repository.refresh)
            self.result.compared_at = snapshot.revision
            for batch in self._batches(file):
                for path, node in snapshot.nodes(list(batch)).items():
                    if node is None:
                        self.result.differences.add(f"{path}: is not there")
                    elif (there := _encoded(node)) != (wanted := _encoded(batch[path])):
                        names = sorted(name for name in {*there, *wanted} if there.get(name) != wanted.get(name))
                        self.result.differences.add(f"{path}: {', '.join(names)}")


def _encoded(properties: Mapping[str, PropertyValue]) -> Encoded:
    return {name: encode(value) for name, value in properties.items()}


def _size(value: PropertyValue) -> int:
    """Return about how many bytes a value takes."""
    return len(value) if isinstance(value, str) and value.isascii() else len(encode(value))


def _missing(repository: Repository, nodes: Iterable[dict[str, PropertyValue]]) -> Iterator[str]:
    wanted: dict[str, None] = {}
    for node in nodes:
        for value in node.values():
            for one in value if isinstance(value, list) else [value]:
                if isinstance(one, BlobRef):
                    wanted[one.id] = None
    instance = instance_of(repository)
    for blob in wanted:
        try:
            instance.keep_blob(blob)
        except BlobNotFoundError:
            yield blob

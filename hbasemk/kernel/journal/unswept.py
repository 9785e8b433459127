"""The aborted revisions whose cells may still be stored, as polls of one instance found them."""

from __future__ import annotations

from hbasemk.kernel.runtime import Runtime


class Unswept:
    """The aborted revisions that nobody has swept, each with the time at which a poll found it first. Thread-safe."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._lock = runtime.lock()
        self._since: dict[int, float] = {}

    def add(self, revision: int) -> None:
        """Record that a poll found an aborted revision that is not swept."""
        with self._lock:
            self._since.setdefault(revision, self._runtime.monotonic())

    def remove(self, revision: int) -> None:
        """Record that the cells of an aborted revision have been deleted."""
        with self._lock:
            self._since.pop(revision, None)

    def remove_up_to(self, revision: int) -> None:
        """Record that the cells of all aborted revisions up to one have been deleted."""
        if self._since:
            with self._lock:
                for one in [one for one in self._since if one <= revision]:
                    del self._since[one]

    def waiting_for(self, seconds: float) -> list[int]:
        """Return the revisions that have stayed unswept for at least ``seconds`` since a poll found them."""
        since = self._runtime.monotonic() - seconds
        with self._lock:
            return sorted(revision for revision, found_at in self._since.items() if found_at <= since)

    def wait_again(self, revision: int) -> None:
        """Let :meth:`waiting_for` return a revision only after the same time has passed again."""
        with self._lock:
            if revision in self._since:
                self._since[revision] = self._runtime.monotonic()

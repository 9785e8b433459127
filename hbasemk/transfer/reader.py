"""Reading files in a process of its own, which has no connection of the repository.

A file can be swapped for one of the repository's between the look at it and its opening. In a process that uses the
repository, opening and closing such a file drops SQLite's locks (:mod:`hbasemk.transfer.own_files`). So the content of
files is read only here, and goes through a pipe in bounded pieces.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import multiprocessing
import os
import signal
import stat
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Final, Literal, NoReturn, TypeAlias

from hbasemk.errors import HbasemkError
from hbasemk.transfer import own_files
from hbasemk.transfer.entries import DIRECTORY, FILE, LINK, Answer, Seen, Skipped, from_disk, to_disk, unreadable

BLOCK: Final = 1024 * 1024
"""Bytes that are read and sent at once."""

Mode: TypeAlias = Literal["content", "digest"]
"""Whether contents up to the limit are wanted, or only the digests of all contents."""


@dataclass(frozen=True, slots=True)
class ReaderJob:
    """The repository's URL, the directory to read in, and the size in bytes up to which contents come at once."""

    url: str
    top: str
    limit: int


class ReaderDiedError(HbasemkError):
    """The process that reads files is gone."""


class FileReader:
    """A process that reads files for this one. Close it, or use it as a context manager."""

    def __init__(self, pipe: Connection, join: Callable[[], None]) -> None:
        self._pipe = pipe
        self._join = join

    @classmethod
    def forked(cls, job: ReaderJob, others: Sequence[Connection] = ()) -> FileReader:
        """Fork the process; only for a caller that has no other thread and has opened no repository yet.

        ``others`` are pipes of the caller's that the new process must not keep open.
        """
        ours, theirs = multiprocessing.Pipe()
        pid = os.fork()
        if not pid:
            _live_and_exit(job, theirs, [ours, *others])
        theirs.close()

        def join() -> None:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)

        return cls(ours, join)

    @classmethod
    def spawned(cls, job: ReaderJob) -> FileReader:
        """Start the process anew; for any caller."""
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=serve, args=(job, theirs), daemon=True)
        # The child inherits that SIGINT is blocked, until it ignores it: Ctrl-C is the parent's to handle.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()
        return cls(ours, process.join)

    def look(self, wanted: Iterable[str], mode: Mode) -> Iterator[tuple[str, Answer]]:
        """Ask what each entry is on disk; the answers come by relative path and in this order.

        The process works while this one does not wait for it. The next call may be made when the last answer has been
        taken. Raises ReaderDiedError, also while answers are taken.
        """
        asked = list(wanted)
        self._send((mode, asked))
        return ((relative, self._receive()) for relative in asked)

    def _send(self, request: object) -> None:
        try:
            self._pipe.send(request)
        except OSError as error:
            raise _died() from error

    def _receive(self) -> Answer:
        try:
            answer: Answer = self._pipe.recv()
        except (EOFError, OSError) as error:
            raise _died() from error
        return answer

    def close(self) -> None:
        """End the process; idempotent."""
        self._pipe.close()
        self._join()

    def __enter__(self) -> FileReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _died() -> ReaderDiedError:
    return ReaderDiedError(
        "the process that reads files died; look for what killed it (out of memory?) and run the command again"
    )


# --- in the process --------------------------------------------------------------------------------------


def _live_and_exit(job: ReaderJob, pipe: Connection, others: Sequence[Connection]) -> NoReturn:
    """The whole life of a forked process. It must not return into its parent's code."""
    code = 1
    try:
        for other in others:
            other.close()
        serve(job, pipe)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def serve(job: ReaderJob, pipe: Connection) -> None:
    """Answer requests until the other end of the pipe is closed."""
    # Ctrl-C reaches the whole group; the process that asks decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    files = Files(job)
    try:
        while True:
            mode, wanted = pipe.recv()
            for relative in wanted:
                pipe.send(files.look(relative, mode))
    except (EOFError, OSError):
        # Nobody listens any more. Errors about files do not come here.
        return


class Files:
    """The entries below a directory. Opens regular files, and none of the repository's."""

    def __init__(self, job: ReaderJob) -> None:
        self._own = own_files.of(job.url)
        self._top = job.top
        self._limit = job.limit

    def look(self, relative: str, mode: Mode) -> Answer:
        """What an entry is on disk now, or why it is not read."""
        try:
            return self._look(relative, mode)
        except OSError as error:
            return unreadable(relative, error)

    def _look(self, relative: str, mode: Mode) -> Answer:
        where = to_disk(self._top, relative)
        status = os.lstat(where)
        if stat.S_ISLNK(status.st_mode):
            return _seen(LINK, status)._replace(target=from_disk(os.readlink(where)))
        if stat.S_ISDIR(status.st_mode):
            return _seen(DIRECTORY, status)
        if not stat.S_ISREG(status.st_mode):
            return _neither(relative)
        if own_files.is_own(status, self._own()):
            return Skipped(relative, own_files.REASON, failed=False)
        # It may be another entry by now: no link is followed, and no pipe is waited for.
        try:
            number = os.open(where, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            if error.errno == errno.ELOOP and stat.S_ISLNK(os.lstat(where).st_mode):
                return self._look(relative, mode)
            raise
        try:
            return self._read(relative, number, mode)
        finally:
            os.close(number)

    def _read(self, relative: str, number: int, mode: Mode) -> Answer:
        status = os.fstat(number)
        if not stat.S_ISREG(status.st_mode):
            return _neither(relative)
        if own_files.is_own(status, self._own()):
            return Skipped(relative, own_files.REASON, failed=False)
        seen = _seen(FILE, status)
        content = None if mode == "digest" or status.st_size > self._limit else _up_to(number, self._limit)
        if content is None:
            os.lseek(number, 0, os.SEEK_SET)
            size, digest = _digest(number)
            return seen._replace(size=size, digest=digest)
        return seen._replace(size=len(content), digest=hashlib.sha256(content).hexdigest(), content=content)


def _seen(kind: str, status: os.stat_result) -> Seen:
    return Seen(kind, stat.S_IMODE(status.st_mode), status.st_mtime_ns)


def _neither(relative: str) -> Skipped:
    return Skipped(relative, "is neither file, directory nor link", failed=False)


def _digest(number: int) -> tuple[int, str]:
    """Size and SHA-256 of an open file."""
    digest = hashlib.sha256()
    size = 0
    while block := os.read(number, BLOCK):
        digest.update(block)
        size += len(block)
    return size, digest.hexdigest()


def _up_to(number: int, limit: int) -> bytes | None:
    """The content of an open file; None if it is larger than that."""
    content = bytearray()
    while len(content) <= limit:
        block = os.read(number, min(BLOCK, limit + 1 - len(content)))
        if not block:
            return bytes(content)
        content += block
    return None

"""Reading of files in a separate process, which has no connection to the repository.

A file can be swapped for one of the repository's between its check and its opening. In a process that uses the
repository, opening and closing such a file drops SQLite's locks (:mod:`hbasemk.transfer.own_files`). So only this
process reads the content of files, and sends it through a pipe in bounded pieces.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import multiprocessing
import os
import stat
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from types import TracebackType
from typing import BinaryIO, Final, NoReturn, cast

from hbasemk.errors import HbasemkError
from hbasemk.processes import ignore_interrupts, spawn
from hbasemk.transfer import own_files
from hbasemk.transfer.files.entries import (
    DIRECTORY,
    FILE,
    LINK,
    Answer,
    Contents,
    Seen,
    Skipped,
    from_disk,
    to_disk,
    unreadable,
)

BLOCK: Final = 1024 * 1024
"""The bytes of one read, and of the content in one message."""
TOGETHER: Final = 64
"""The maximal number of states in one message. The requesting process works on them while this one reads the next ones."""
_GOOD: Final = b"+"
_BAD: Final = b"-"
"""The first byte of a piece says whether reading the file succeeded so far."""


@dataclass(frozen=True, slots=True)
class ReaderJob:
    """The repository's URL, the directory to read in, and the size in bytes up to which contents come at once."""

    url: str
    top: str
    limit: int


class ReaderDiedError(HbasemkError):
    """The process that reads files has died."""


class FileReader:
    """A process that reads files for this one. Close it, or use it as a context manager."""

    def __init__(self, pipe: Connection, join: Callable[[], None]) -> None:
        self._pipe = pipe
        self._join = join

    @classmethod
    def forked(cls, job: ReaderJob, others: Sequence[Connection] = ()) -> FileReader:
        """Fork the process. The caller must have no other thread and no open repository.

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
        """Start the process without a fork of the caller; for any caller."""
        process, pipe = spawn(serve, job)
        return cls(pipe, process.join)

    def states(self, relatives: Iterable[str], mode: Contents) -> Iterator[tuple[str, Answer]]:
        """Request the state of each entry on disk; yield relative paths with answers, in this order.

        ``mode`` selects the contents in the answers. For ``all``, a file above the limit is not read, and has no digest:
        request it with :meth:`stream`. For ``small`` and ``none`` every file has its digest. The process works while this one
        does not wait for it. The next call may be made when the last answer has been taken. Raises ReaderDiedError, also
        while answers are taken.
        """
        requested = list(relatives)
        self._send((mode, requested))
        return zip(requested, self._states(len(requested)), strict=True)

    def _states(self, count: int) -> Iterator[Answer]:
        while count:
            answers = self._receive()
            count -= len(answers)
            yield from answers

    def stream(self, relative: str, known: str | None, keep: Callable[[BinaryIO], object]) -> Answer:
        """Read one file of any size; ``keep`` gets its content as a stream, unless its digest is ``known``.

        ``keep`` is not called either when there is no file any more. Raises ReaderDiedError, and what ``keep`` raises; then
        this may be called again.
        """
        self._send(("stream", [(relative, known)]))
        answer = self._state()
        if isinstance(answer, Skipped) or answer.kind != FILE or answer.digest is not None:
            return answer
        pieces = _Pieces(self._piece)
        try:
            keep(cast(BinaryIO, pieces))
        except _CutOffError:
            # The last answer has the reason.
            return self._state()
        except BaseException:
            pieces.drain()
            self._state()
            raise
        pieces.drain()
        return self._state()

    def _state(self) -> Answer:
        return next(self._states(1))

    def _piece(self) -> bytes | None:
        """Return the next piece; empty at the end, None if the file cannot be read to its end."""
        try:
            piece = self._pipe.recv_bytes()
        except (EOFError, OSError) as error:
            raise _died() from error
        return piece[1:] if piece[:1] == _GOOD else None

    def _send(self, request: object) -> None:
        try:
            self._pipe.send(request)
        except OSError as error:
            raise _died() from error

    def _receive(self) -> Sequence[Answer]:
        try:
            answers: Sequence[Answer] = self._pipe.recv()
        except (EOFError, OSError) as error:
            raise _died() from error
        return answers

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


class _CutOffError(Exception):
    """A file could not be read to its end."""


class _Pieces:
    """The content from the pipe as a readable stream."""

    def __init__(self, following: Callable[[], bytes | None]) -> None:
        self._following = following
        self._left = b""
        self._ended = False

    def read(self, size: int = -1) -> bytes:
        """Return at most ``size`` bytes, none at the end."""
        if not self._left:
            self._left = self._next()
        if size < 0 or size >= len(self._left):
            found, self._left = self._left, b""
        else:
            found, self._left = self._left[:size], self._left[size:]
        return found

    def _next(self) -> bytes:
        if self._ended:
            return b""
        piece = self._following()
        self._ended = not piece
        if piece is None:
            raise _CutOffError
        return piece

    def drain(self) -> None:
        """Read the rest, so that the pipe is ready for the next request."""
        with contextlib.suppress(_CutOffError):
            while self._next():
                pass


# --- in the process --------------------------------------------------------------------------------------


def _live_and_exit(job: ReaderJob, pipe: Connection, others: Sequence[Connection]) -> NoReturn:
    """Run the forked process. It must not return into its parent's code."""
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
    ignore_interrupts()
    files = Files(job)
    try:
        while True:
            try:
                mode, requested = pipe.recv()
            except (EOFError, OSError) as error:
                raise _RequesterGoneError from error
            if mode == "stream":
                for relative, known in requested:
                    files.stream(relative, known, pipe)
                continue
            _put_states(pipe, (files.state(relative, mode) for relative in requested))
    except _RequesterGoneError:
        return


class Files:
    """The entries below a directory. Opens regular files only, and reads no file of the repository.

    The repository's files are listed once for each file, after it was opened. The list that was made for the previous file
    keeps this one from opening most files of the repository at all.
    """

    def __init__(self, job: ReaderJob) -> None:
        self._own = own_files.of(job.url)
        self._last_own = self._own()
        self._top = job.top
        self._limit = job.limit

    def state(self, relative: str, mode: Contents) -> Answer:
        """Return the present state of an entry on disk, or the reason why it is skipped."""
        return self._state(relative, lambda number, seen: self._read(number, seen, mode))

    def stream(self, relative: str, known: str | None, pipe: Connection) -> None:
        """Send the state of an entry and, for a file whose digest is not ``known``, its content and then its final state."""
        sent = False

        def read(number: int, seen: Seen) -> Seen:
            nonlocal sent
            if known is not None:
                size, digest = _digest(number)
                if digest == known:
                    return seen._replace(size=size, digest=digest)
                os.lseek(number, 0, os.SEEK_SET)
            _put(pipe, [seen])
            sent = True
            size, digest = _digest(number, lambda block: _put_piece(pipe, block))
            return seen._replace(size=size, digest=digest)

        answer = self._state(relative, read)
        if sent:
            _put_piece(pipe, b"" if isinstance(answer, Seen) else None)
        _put(pipe, [answer])

    def _state(self, relative: str, read: Callable[[int, Seen], Seen]) -> Answer:
        try:
            return self._entry(relative, read)
        except OSError as error:
            return unreadable(relative, error)

    def _entry(self, relative: str, read: Callable[[int, Seen], Seen]) -> Answer:
        where = to_disk(self._top, relative)
        status = os.lstat(where)
        if stat.S_ISLNK(status.st_mode):
            return _seen(LINK, status)._replace(target=from_disk(os.readlink(where)))
        if stat.S_ISDIR(status.st_mode):
            return _seen(DIRECTORY, status)
        if not stat.S_ISREG(status.st_mode):
            return _neither(relative)
        if own_files.is_own(status, self._last_own):
            return Skipped(relative, own_files.REASON, failed=False)
        # It may be another entry by now: do not follow a link, and do not wait for a pipe.
        try:
            number = os.open(where, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            if error.errno == errno.ELOOP and stat.S_ISLNK(os.lstat(where).st_mode):
                return self._entry(relative, read)
            raise
        try:
            status = os.fstat(number)
            if not stat.S_ISREG(status.st_mode):
                return _neither(relative)
            self._last_own = self._own()
            if own_files.is_own(status, self._last_own):
                return Skipped(relative, own_files.REASON, failed=False)
            return read(number, _seen(FILE, status)._replace(size=status.st_size))
        finally:
            os.close(number)

    def _read(self, number: int, seen: Seen, mode: Contents) -> Seen:
        assert seen.size is not None
        content = None if mode == "none" or seen.size > self._limit else _up_to(number, self._limit)
        if content is not None:
            return seen._replace(size=len(content), digest=hashlib.sha256(content).hexdigest(), content=content)
        if mode == "all":
            return seen
        os.lseek(number, 0, os.SEEK_SET)
        size, digest = _digest(number)
        return seen._replace(size=size, digest=digest)


class _RequesterGoneError(Exception):
    """The other end of the pipe is closed."""


def _put_states(pipe: Connection, answers: Iterable[Answer]) -> None:
    """Send states in messages of bounded size."""
    together: list[Answer] = []
    size = 0
    for answer in answers:
        together.append(answer)
        size += len(answer.content or b"") if isinstance(answer, Seen) else 0
        if len(together) == TOGETHER or size >= BLOCK:
            _put(pipe, together)
            together, size = [], 0
    if together:
        _put(pipe, together)


def _put(pipe: Connection, answers: Sequence[Answer]) -> None:
    try:
        pipe.send(answers)
    except OSError as error:
        raise _RequesterGoneError from error


def _put_piece(pipe: Connection, block: bytes | None) -> None:
    """Send a piece of a file; empty at its end, None if it cannot be read to its end."""
    try:
        pipe.send_bytes(_BAD if block is None else _GOOD + block)
    except OSError as error:
        raise _RequesterGoneError from error


def _seen(kind: str, status: os.stat_result) -> Seen:
    return Seen(kind, stat.S_IMODE(status.st_mode), status.st_mtime_ns)


def _neither(relative: str) -> Skipped:
    return Skipped(relative, "is neither file, directory nor link", failed=False)


def _digest(number: int, also: Callable[[bytes], None] = lambda _: None) -> tuple[int, str]:
    """Return size and SHA-256 of an open file; ``also`` receives each block."""
    digest = hashlib.sha256()
    size = 0
    while block := os.read(number, BLOCK):
        digest.update(block)
        size += len(block)
        also(block)
    return size, digest.hexdigest()


def _up_to(number: int, limit: int) -> bytes | None:
    """Return the content of an open file; None if it is above the limit."""
    content = bytearray()
    while len(content) <= limit:
        block = os.read(number, min(BLOCK, limit + 1 - len(content)))
        if not block:
            return bytes(content)
        content += block
    return None

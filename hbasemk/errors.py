"""Every error that hbasemk raises, as one small tree.

A message says what happened, where, and what to do next. The facts are attributes too, so that programs need not parse
messages. UTF-8 can encode each message, though names may contain lone surrogates. All errors can be pickled and copied.
"""

from __future__ import annotations

import re
from typing import Any, Final

CHECK_ADVICE: Final = ". `hbasemk check` lists what is damaged."
"""The end of each message about damaged data; the check itself leaves it out."""
_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def escaped(char: str) -> str:
    """Return a character as ``\\u0085`` or ``\\U0001f600``; an undecodable byte of a file name or an argument as ``\\xff``."""
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _rebuild(cls: type[HbasemkError], message: str, fields: dict[str, Any]) -> HbasemkError:
    error = cls.__new__(cls)
    Exception.__init__(error, message)
    error.message = message
    error.__dict__.update(fields)
    return error


class HbasemkError(Exception):
    """The root of all errors of this package."""

    def __init__(self, message: str, **fields: Any) -> None:
        super().__init__(message)
        self.message = message
        self.__dict__.update(fields)

    @property
    def message(self) -> str:
        """The text of the error. UTF-8 can encode it: lone surrogates are escaped."""
        return self._message

    @message.setter
    def message(self, text: str) -> None:
        self._message = _LONE_SURROGATE.sub(lambda found: escaped(found[0]), text)
        self.args = (self._message,)

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, dict(self.__dict__))


# --- impossible requests -----------------------------------------------------------------------------------


class InvalidPathError(HbasemkError, ValueError):
    """A path or name that no node can have."""


class InvalidValueError(HbasemkError, ValueError):
    """A property value that cannot be stored; or an argument, an option, a setting or a URL that is not valid."""


class LimitError(HbasemkError, ValueError):
    """A value, path, message or commit exceeds a limit; nothing was written.

    If a value exceeds a limit only together with its name and its path, ``path`` and ``name`` are those of the property. The
    error of a store has ``row``, ``column`` and ``size`` instead.
    """

    path: str
    name: str
    row: bytes
    column: tuple[bytes, bytes]
    size: int


class NodeNotFoundError(HbasemkError, KeyError):
    """There is no node at ``path`` in ``revision``."""

    path: str
    revision: str | None


class NodeDeletedError(NodeNotFoundError):
    """The node existed; revision ``deleted_in`` deleted it."""

    deleted_in: str


class NodeExistsError(HbasemkError):
    """There already is a node at ``path`` in ``revision``."""

    path: str
    revision: str | None


class PropertyNotFoundError(HbasemkError, KeyError):
    """The node at ``path`` has no property ``name``."""

    path: str
    name: str


class InvalidChangeError(HbasemkError, ValueError):
    """A change that is never possible, such as moving a node below itself."""

    path: str


# --- revisions -------------------------------------------------------------------------------------------


class RevisionError(HbasemkError):
    """The root of the errors about revision ids."""


class InvalidRevisionError(RevisionError, ValueError):
    """A text or number that is not a revision id, or not a resume token of the repository."""


class UnknownRevisionError(RevisionError, LookupError):
    """The repository has no such revision, or no longer records it."""

    revision: str


class RevisionCollectedError(UnknownRevisionError):
    """The snapshot is older than the retention of the repository, and parts of it have been deleted.

    ``oldest`` is the oldest revision that can be read. A checkpoint or a branch keeps a snapshot readable.
    """

    oldest: str


class RevisionOverflowError(RevisionError):
    """The repository has no revision ids left; create a repository with a later epoch."""


class ClockSkewError(HbasemkError):
    """This machine's clock and the store's differ by more than the repository allows.

    It does not occur on SQLite, where both are the same clock.
    """

    local_ms: int
    server_ms: int
    allowed_ms: int


class LeaseLostError(HbasemkError):
    """Another process has ended the lease of this instance's machine id; nothing was committed."""

    machine: int


class BranchError(RevisionError):
    """The revision does not suit the call: trunk instead of a branch or the reverse, not the newest, or an ended branch.

    If ``revision`` is not the newest of its branch, ``continues_at`` is a newer one in text form, for
    :meth:`Repository.resume_branch`: the newest one, or the first after a rebase. If a rebase has not ended, it is the
    revision to rebase again. It is None if the branch has ended.
    """

    revision: str
    continues_at: str | None = None


class CheckpointError(RevisionError):
    """A checkpoint of ``revision`` has been released or has expired, or checkpoints keep another snapshot of it."""

    revision: str


# --- commits ---------------------------------------------------------------------------------------------


class ConflictError(HbasemkError):
    """Another revision changed a column that this commit wrote or depends on; nothing of the commit remains.

    ``path`` and ``column`` name the first conflict. ``column`` is a text such as ``property 'title'`` or ``child 'news'``, or
    ``existence`` if the other revision added or removed the node, or ``content`` if it changed a node that this commit removes
    or adds again. ``revision`` is this commit's id, None for a commit that changes nothing, such as a
    serializable transaction that only read; ``other`` is the id of the revision that won. Both are in text form. If the other
    commit has aborted this one, ``other`` is ``revision``, ``path`` is the first path that this commit changes, and ``column`` is
    ``content``: the error does not know where the conflict is.
    """

    path: str
    column: str
    revision: str | None
    other: str


class VersionMismatchError(ConflictError):
    """The node at ``path`` does not have the version that the commit expected; nothing of the commit remains.

    ``column`` is ``version``, and ``revision`` is None. ``expected`` is the expected version, ``found`` the node's; None means
    that there is no node. ``other`` is the newest revision that changed the node's properties, or that deleted it; if there
    never was a node, the snapshot's revision. :meth:`Repository.run` does not repeat the change.
    """

    expected: str | None
    found: str | None


class CommitUnknownError(HbasemkError):
    """The store failed during the decision. ``Repository.outcome(error.revision)`` returns whether it is committed."""

    revision: str


# --- the store -------------------------------------------------------------------------------------------


class StoreError(HbasemkError):
    """A call to the store failed; the subclass says what is known about its effect.

    ``cause`` describes the failure without its consequence for the call; it is empty if the message is only the cause.
    """

    cause: str = ""

    @property
    def reason(self) -> str:
        """Return the cause if there is one, else the whole message."""
        return self.cause or self.message


class StoreNotAppliedError(StoreError):
    """The call had no effect; retrying it is safe."""


class StoreUnknownError(StoreError):
    """The call may have been applied; only idempotent calls may be retried."""


class StoreUnusableError(StoreError):
    """The store cannot be used as it is: schema, permission, version, or wrong server. Never retried."""


class FormatError(StoreUnusableError):
    """Stored data is damaged, or the repository has a format that this version of hbasemk does not use.

    ``format`` is that format; None for damage.
    """

    format: int | None = None


class SchemaVersionError(HbasemkError):
    """The schema number of the application is ``found``, not ``expected`` (an int, or a range); nothing was committed."""

    found: int
    expected: int | range


class ClosedError(HbasemkError):
    """The repository, store or transaction has ended, or the transaction cannot be committed here."""


# --- the MicroKernel interface ---------------------------------------------------------------------------


class JsopError(HbasemkError, ValueError):
    """A JSOP text that is not valid; ``offset`` (in characters) and ``context`` say where."""

    offset: int
    context: str


class BlobNotFoundError(HbasemkError, KeyError):
    """There is no blob with this id, or a part of it is missing."""

    blob: str

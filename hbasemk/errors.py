"""Every error that hbasemk raises, as one small tree.

Each error says what happened, where, and what to do next; the facts are also attributes, so that
programs need not read messages. All of them can be pickled and copied.
"""

from __future__ import annotations

from typing import Any


def _rebuild(cls: type[HbasemkError], message: str, fields: dict[str, Any]) -> HbasemkError:
    error = cls.__new__(cls)
    Exception.__init__(error, message)
    error.message = message
    error.__dict__.update(fields)
    return error


class HbasemkError(Exception):
    """The root of all errors of this package."""

    message: str

    def __init__(self, message: str, **fields: Any) -> None:
        super().__init__(message)
        self.message = message
        self.__dict__.update(fields)

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, dict(self.__dict__))


# --- what a caller asked for is not possible -------------------------------------------------------------


class InvalidPathError(HbasemkError, ValueError):
    """A path or name that no node can have."""


class InvalidValueError(HbasemkError, ValueError):
    """A property value that cannot be stored."""


class LimitError(HbasemkError, ValueError):
    """Something is larger than the store can keep; nothing was written."""


class NodeNotFoundError(HbasemkError, KeyError):
    """There is no node at ``path`` in ``revision``."""

    path: str
    revision: str | None


class NodeDeletedError(NodeNotFoundError):
    """The node was there once; ``deleted_in`` is the revision that deleted it."""

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
    """A change that is wrong by itself, such as moving a node below itself."""

    path: str


# --- revisions -------------------------------------------------------------------------------------------


class RevisionError(HbasemkError):
    """Something is wrong with a revision id."""


class InvalidRevisionError(RevisionError, ValueError):
    """A text or number that is not a revision id."""


class UnknownRevisionError(RevisionError, LookupError):
    """No poll can find this revision in the repository's journal."""

    revision: str


class RevisionOverflowError(RevisionError):
    """The repository's epoch leaves no more revision ids; a repository with a later epoch does."""


class ClockSkewError(HbasemkError):
    """This machine's clock and the store's differ by more than the repository allows."""

    local_ms: int
    server_ms: int
    allowed_ms: int


class LeaseLostError(HbasemkError):
    """Another process holds this instance's machine id now; the commit was not made."""

    machine: int


class BranchError(RevisionError):
    """A branch revision where trunk's is needed or the reverse, an old one where the newest is, or a branch that ended."""

    revision: str


# --- commits ---------------------------------------------------------------------------------------------


class ConflictError(HbasemkError):
    """Another revision changed what this commit wrote or relied on; nothing of the commit remains.

    ``path`` and ``column`` say where they met, ``revision`` is this commit's id (None for a serializable transaction
    that only read) and ``other`` the one it lost to (both in text form).
    """

    path: str
    column: str
    revision: str | None
    other: str


class CommitUnknownError(HbasemkError):
    """The store went away while it decided; ``revision`` is the id to ask ``Repository.outcome`` about."""

    revision: str


# --- the store -------------------------------------------------------------------------------------------


class StoreError(HbasemkError):
    """A store could not do what it was asked; the subclass says what is known about the effect.

    ``cause`` is what happened, without what it means for the call; empty where the message does not tell them apart.
    """

    cause: str = ""

    @property
    def reason(self) -> str:
        """What happened: the cause, else the whole message."""
        return self.cause or self.message


class StoreNotAppliedError(StoreError):
    """The call had no effect and can safely be made again."""


class StoreUnknownError(StoreError):
    """The call may or may not have been applied: only calls that do no harm twice may be made again."""


class StoreUnusableError(StoreError):
    """The store cannot be used as it is (schema, permission, version, wrong server): never retried."""


class FormatError(StoreUnusableError):
    """Stored data is damaged, or was written by a newer version of hbasemk."""


class ClosedError(HbasemkError):
    """The repository or store has been closed."""


# --- the MicroKernel interface ---------------------------------------------------------------------------


"""What clients of the MicroKernel interface know the root of all errors as."""


class JsopError(HbasemkError, ValueError):
    """A change text that cannot be read; ``offset`` (in characters) and ``context`` say where."""

    offset: int
    context: str


class BlobNotFoundError(HbasemkError, KeyError):
    """There is no blob with this id, or a part of it is missing."""

    blob: str

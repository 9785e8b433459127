"""What the first row of a branch holds: its head, the claim on its effect, and the branch that it continues after a rebase."""

from __future__ import annotations

from typing import Final, NamedTuple

from hbasemk.format import revisions

MERGED: Final = b"m"
REBASED: Final = b"r"
ABANDONED: Final = b"a"


class BranchClaim(NamedTuple):
    """The merge, or the first revision of the rebased branch, that may apply the adjusts of a branch up to ``revision``.

    ``is_final``: a rebase is about to end the branch, and its claim can no longer be replaced.
    """

    claimant: int
    revision: int
    is_final: bool = False

    def encode(self) -> bytes:
        """Return the value of the cell."""
        return _encode(*self)

    @classmethod
    def decode(cls, data: bytes) -> BranchClaim | None:
        """Decode the value of the cell; return None if it is damaged."""
        found = _decode(data)
        return None if found is None else cls(*found)


class RebaseOf(NamedTuple):
    """The branch that a new one continues, in the first row of the new one: its first revision, and the rebased ``revision``.

    ``is_over``: the rebase has ended the old branch, so the new one may take effect.
    """

    root: int
    revision: int
    is_over: bool = False

    def encode(self) -> bytes:
        """Return the value of the cell."""
        return _encode(*self)

    @classmethod
    def decode(cls, data: bytes) -> RebaseOf | None:
        """Decode the value of the cell; return None if it is damaged."""
        found = _decode(data)
        return None if found is None else cls(*found)


class BranchHead(NamedTuple):
    """The branch's ``newest`` revision and, once the branch has ended, how it ended.

    ``how`` is empty before the end. ``into`` is the revision that it was merged as or rebased to. ``newest`` is None if an
    older version of this library, which did not store it, ended the branch.
    """

    how: bytes
    newest: int | None
    into: int | None = None

    def encode(self) -> bytes:
        """Return the value of the cell."""
        return self.how + revisions.to_bytes(one for one in (self.into, self.newest) if one is not None)

    @classmethod
    def decode(cls, data: bytes) -> BranchHead | None:
        """Decode the value of the cell; return None if it is damaged."""
        how = b"" if len(data) == 8 else data[:1]
        try:
            ids = revisions.from_bytes(data[len(how) :])
        except ValueError:
            return None
        if not how or (how == ABANDONED and len(ids) < 2):
            return cls(how, ids[0] if ids else None)
        if how in (MERGED, REBASED) and 1 <= len(ids) <= 2:
            return cls(how, ids[1] if len(ids) == 2 else None, ids[0])
        return None

    @property
    def continues_at(self) -> int | None:
        """The newest revision of a live branch, or the revision to which the branch was rebased; None after any other end."""
        return self.newest if not self.how else self.into if self.how == REBASED else None

    def __str__(self) -> str:
        """Describe the state of the branch."""
        if self.how == ABANDONED:
            return "its branch was abandoned"
        if self.into is not None:
            how = "merged into trunk as" if self.how == MERGED else "rebased to"
            return f"its branch has been {how} {revisions.to_text(self.into)}"
        if self.newest is None:
            return "its branch has moved on"
        return f"its branch continues at {revisions.to_text(self.newest)}"


def _encode(first: int, second: int, flag: bool) -> bytes:
    return revisions.to_bytes((first, second)) + b"\x01" * flag


def _decode(data: bytes) -> tuple[int, int, bool] | None:
    try:
        first, second = revisions.from_bytes(data.removesuffix(b"\x01") if len(data) == 17 else data)
    except ValueError:
        return None
    return first, second, len(data) == 17

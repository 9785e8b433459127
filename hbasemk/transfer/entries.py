"""Directory entries as nodes: what an import keeps of each, and how a node is compared with the disk."""

from __future__ import annotations

import errno
import fnmatch
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias, Union

from hbasemk.kernel import paths
from hbasemk.kernel.values import PropertyValue
from hbasemk.store.abc import FileIdentity
from hbasemk.transfer import own_files
from hbasemk.transfer.own_files import OwnFiles

FILE: Final = "file"
DIRECTORY: Final = "directory"
LINK: Final = "link"
DEFAULT_TEXT_LIMIT: Final = 64 * 1024
"""Bytes up to which a text file's content is kept."""
VANISHED: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ESTALE})
"""Errors that say that an entry, or a directory that it was in, is gone."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One directory entry: its path relative to the imported directory ('' for that itself) and its kind."""

    relative: str
    kind: str

    @property
    def depth(self) -> int:
        """How many names the relative path has."""
        return 0 if not self.relative else self.relative.count("/") + 1


@dataclass(frozen=True, slots=True)
class Skipped:
    """An entry that is not imported, and why; ``failed`` when it should have been."""

    relative: str
    reason: str
    failed: bool


class Seen(NamedTuple):
    """One entry as it is on disk.

    ``target`` is a link's. A file has ``size`` and ``digest`` (SHA-256 in hexadecimal digits). ``content`` is None where it
    was not asked for, or is above the limit.
    """

    kind: str
    mode: int
    mtime: int
    target: str | None = None
    size: int | None = None
    digest: str | None = None
    content: bytes | None = None


Answer: TypeAlias = Union[Seen, Skipped]  # noqa: UP007 - evaluated at run time


def unreadable(relative: str, error: OSError) -> Skipped:
    """The entry that an error was met at; one that is gone meanwhile is not to be imported, so that is no failure."""
    return Skipped(relative, f"cannot be read: {error.strerror}", error.errno not in VANISHED)


def from_disk(name: bytes) -> str:
    """A name or relative path as text; bytes that are not UTF-8 become lone surrogates, whatever the locale is."""
    return name.decode("utf-8", "surrogateescape")


def to_disk(top: str, relative: str) -> bytes:
    """Where an entry is on disk; raises ValueError for a name that no entry can have."""
    where = os.path.join(os.fsencode(top), relative.encode("utf-8", "surrogateescape"))
    if b"\0" in where:
        raise ValueError(f"{relative!r} contains a zero byte")
    return where


def walk(top: str, exclude: Sequence[str], skipped: Callable[[Skipped], None], own: OwnFiles = dict) -> Iterator[Entry]:
    """Every entry below ``top``, parents before children; links are not followed, and no file is opened.

    ``exclude`` holds glob patterns for names and for relative paths. The repository's ``own`` files, what is neither file,
    directory nor link, and what cannot be read, goes to ``skipped``. Raises OSError if ``top`` itself cannot be listed.
    """
    pending = [""]
    while pending:
        relative = pending.pop()
        try:
            with os.scandir(to_disk(top, relative)) as found:
                listed = sorted(found, key=lambda one: one.name)
        except OSError as error:
            if not relative:
                raise
            skipped(unreadable(relative, error))
            continue
        ours = own()
        for one in listed:
            name = from_disk(one.name)
            below = f"{relative}/{name}" if relative else name
            if _matches(below, exclude):
                continue
            if one.is_symlink():
                yield Entry(below, LINK)
            elif one.is_dir(follow_symlinks=False):
                yield Entry(below, DIRECTORY)
                pending.append(below)
            elif one.is_file(follow_symlinks=False):
                if ours and _is_own(one, ours):
                    skipped(Skipped(below, own_files.REASON, False))
                else:
                    yield Entry(below, FILE)
            else:
                skipped(Skipped(below, "is neither file, directory nor link", False))


def _is_own(one: os.DirEntry[bytes], own: Mapping[FileIdentity, str]) -> bool:
    try:
        return own_files.is_own(one.stat(follow_symlinks=False), own)
    except OSError:
        # Who reads it looks again.
        return False


def is_excluded(relative: str, exclude: Sequence[str]) -> bool:
    """Whether an entry, or a directory that it is in, is left out."""
    names = relative.split("/")
    return any(_matches("/".join(names[:count]), exclude) for count in range(1, len(names) + 1))


def _matches(relative: str, exclude: Sequence[str]) -> bool:
    name = relative.rpartition("/")[2]
    return any(fnmatch.fnmatchcase(name, glob) or fnmatch.fnmatchcase(relative, glob) for glob in exclude)


def properties(name: str, seen: Seen) -> dict[str, PropertyValue]:
    """What a node keeps of an entry as it is on disk now."""
    kept: dict[str, PropertyValue] = {
        "kind": seen.kind,
        "name": name,
        "mode": seen.mode,
        "mtime": seen.mtime,
    }
    if seen.target is not None:
        kept["target"] = seen.target
    if seen.size is not None:
        kept["size"] = seen.size
    if seen.digest is not None:
        kept["sha256"] = seen.digest
    text = None if seen.content is None else _text(seen.content)
    if text is not None:
        kept["text"] = text
    return kept


def keeps_content(kept: Mapping[str, PropertyValue]) -> bool:
    """Whether the node of an entry says all of what the entry holds; a file that is no text, or too large, does not."""
    return kept.get("kind") != FILE or "text" in kept


def _text(data: bytes) -> str | None:
    if b"\0" in data:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def node_path(at: str, entry: Entry) -> str:
    """The path of an entry's node in an import at ``at``."""
    return at if not entry.relative else paths.join(at, entry.relative)


def counts(kept: Mapping[str, PropertyValue]) -> dict[str, int]:
    """What the node of one entry adds to the totals at the import's root."""
    kind = kept.get("kind")
    size = kept.get("size", 0)
    return {
        "nodes": 1,
        "files": int(kind == FILE),
        "directories": int(kind == DIRECTORY),
        "links": int(kind == LINK),
        "bytes": size if isinstance(size, int) else 0,
    }


TOTALS: Final = ("nodes", "files", "directories", "links", "bytes")


def default_target(directory: Path) -> str:
    """Where a directory is imported when nothing is said."""
    return paths.join(paths.ROOT, directory.resolve().name or "import")

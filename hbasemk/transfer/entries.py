"""Directory entries as nodes: what an import keeps of each, and how a node is compared with the disk."""

from __future__ import annotations

import fnmatch
import hashlib
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hbasemk.kernel import paths
from hbasemk.kernel.values import PropertyValue

FILE: Final = "file"
DIRECTORY: Final = "directory"
LINK: Final = "link"
DEFAULT_TEXT_LIMIT: Final = 64 * 1024
"""Bytes up to which a text file's content is kept."""
_BLOCK: Final = 1024 * 1024


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


def unreadable(relative: str, error: OSError) -> Skipped:
    """The entry that an error was met at; one that is gone meanwhile is not to be imported, so that is no failure."""
    return Skipped(relative, f"cannot be read: {error.strerror}", not isinstance(error, FileNotFoundError))


def walk(top: str, exclude: Sequence[str], skipped: Callable[[Skipped], None]) -> Iterator[Entry]:
    """Every entry below ``top``, parents before children; links are not followed.

    ``exclude`` holds glob patterns for names and for relative paths. What is neither file, directory nor link, and what
    cannot be read, goes to ``skipped``. Raises OSError if ``top`` itself cannot be listed.
    """
    pending = [""]
    while pending:
        relative = pending.pop()
        try:
            with os.scandir(os.path.join(top, relative)) as found:
                listed = sorted(found, key=lambda one: one.name)
        except OSError as error:
            if not relative:
                raise
            skipped(unreadable(relative, error))
            continue
        for one in listed:
            below = f"{relative}/{one.name}" if relative else one.name
            if _matches(below, exclude):
                continue
            if one.is_symlink():
                yield Entry(below, LINK)
            elif one.is_dir(follow_symlinks=False):
                yield Entry(below, DIRECTORY)
                pending.append(below)
            elif one.is_file(follow_symlinks=False):
                yield Entry(below, FILE)
            else:
                skipped(Skipped(below, "is neither file, directory nor link", False))


def is_excluded(relative: str, exclude: Sequence[str]) -> bool:
    """Whether an entry, or a directory that it is in, is left out."""
    names = relative.split("/")
    return any(_matches("/".join(names[:count]), exclude) for count in range(1, len(names) + 1))


def _matches(relative: str, exclude: Sequence[str]) -> bool:
    name = relative.rpartition("/")[2]
    return any(fnmatch.fnmatchcase(name, glob) or fnmatch.fnmatchcase(relative, glob) for glob in exclude)


def on_disk(top: str, relative: str) -> Entry | None:
    """The entry as it is on disk; None if it is of a kind that is not imported. Raises OSError."""
    mode = os.lstat(os.path.join(top, relative)).st_mode
    for kind, check in ((FILE, stat.S_ISREG), (DIRECTORY, stat.S_ISDIR), (LINK, stat.S_ISLNK)):
        if check(mode):
            return Entry(relative, kind)
    return None


def properties(top: str, entry: Entry, text_limit: int) -> dict[str, PropertyValue]:
    """What a node keeps of an entry as it is on disk now; raises OSError."""
    where = os.path.join(top, entry.relative)
    status = os.lstat(where)
    kept: dict[str, PropertyValue] = {
        "kind": entry.kind,
        "name": os.path.basename(entry.relative),
        "mode": stat.S_IMODE(status.st_mode),
        "mtime": status.st_mtime_ns,
    }
    if entry.kind == LINK:
        kept["target"] = os.readlink(where)
    elif entry.kind == FILE:
        digest = hashlib.sha256()
        size = 0
        beginning = b""
        with open(where, "rb") as file:
            while block := file.read(_BLOCK):
                digest.update(block)
                if size <= text_limit:
                    beginning += block
                size += len(block)
        kept["size"] = size
        kept["sha256"] = digest.hexdigest()
        text = _text(beginning) if size <= text_limit else None
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

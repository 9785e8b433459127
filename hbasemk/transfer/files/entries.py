"""Directory entries as nodes: the properties of each, and the rules that separate names from attributes.

An attribute's name begins with one ``:``. An entry whose own name begins with ``:`` has one more of them in its node's
name. So no entry has the name of an attribute, or a name that the tree reserves, such as ``:conflict``
(docs/decisions/0020-import-layout.md).
"""

from __future__ import annotations

import errno
import fnmatch
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeAlias, Union

from hbasemk.errors import InvalidPathError
from hbasemk.format import paths
from hbasemk.format.values import BlobRef, PropertyValue
from hbasemk.store.abc import FileIdentity
from hbasemk.transfer import own_files
from hbasemk.transfer.own_files import OwnFiles

FILE: Final = "file"
DIRECTORY: Final = "directory"
LINK: Final = "link"

KIND: Final = ":kind"
NAME: Final = ":name"
MODE: Final = ":mode"
MTIME: Final = ":mtime"
TARGET: Final = ":target"
SIZE: Final = ":size"
DIGEST: Final = ":sha256"
CONTENT: Final = ":content"
"""A file's content: a string if it is text, bytes if it is not, and a reference to a blob above the limit."""
TOTALS: Final = (":nodes", ":files", ":directories", ":links", ":bytes")
"""The totals at the root of an import."""
OLD_TOTALS: Final = ("nodes", "files", "directories", "links", "bytes")
"""The totals in the layout of earlier versions, which gave attributes and entries the same names."""

DEFAULT_LIMIT: Final = 64 * 1024
"""The largest content in bytes that is stored in its node."""
LARGEST_LIMIT: Final = 8 * 1024 * 1024

Contents: TypeAlias = Literal["all", "small", "none"]
"""The contents to store: all, those up to the limit, or none."""

VANISHED: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ESTALE})
"""Errors for an entry that has vanished, or whose directory has."""


class Entry(NamedTuple):
    """One directory entry: its path relative to the imported directory ('' for that directory) and its kind."""

    relative: str
    kind: str

    @property
    def depth(self) -> int:
        """The number of names in the relative path."""
        return 0 if not self.relative else self.relative.count("/") + 1


@dataclass(frozen=True, slots=True)
class Skipped:
    """An entry that is not imported, with the reason; ``failed`` if that is an error.

    ``vanished``: the entry disappeared between its listing and its reading.
    """

    relative: str
    reason: str
    failed: bool
    vanished: bool = False


class Seen(NamedTuple):
    """The state of one entry on disk.

    ``target`` is a link's. A file has ``size``, and ``digest`` (SHA-256 in hexadecimal digits) if it was read to its end.
    ``content`` is None if it was not requested, or is above the limit.
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
    """Return the entry that an error refers to. A vanished entry is not a failure, because it need not be imported."""
    if error.errno in VANISHED:
        return Skipped(relative, f"vanished before it was read ({error.strerror})", failed=False, vanished=True)
    return Skipped(relative, f"cannot be read: {error.strerror}", failed=True)


def from_disk(name: bytes) -> str:
    """Return a name or relative path as text; bytes that are not UTF-8 become lone surrogates in every locale."""
    return name.decode("utf-8", "surrogateescape")


def to_disk(top: str, relative: str) -> bytes:
    """Return the path of an entry on disk; raises ValueError for a name that no entry can have."""
    where = os.path.join(os.fsencode(top), relative.encode("utf-8", "surrogateescape"))
    if b"\0" in where:
        raise ValueError(f"{relative!r} contains a zero byte")
    return where


def walk(top: str, exclude: Sequence[str], skipped: Callable[[Skipped], None], own: OwnFiles = dict) -> Iterator[Entry]:
    """Yield every entry below ``top``, parents before children, without following links or opening files.

    ``exclude`` holds glob patterns for names and for relative paths. The repository's ``own`` files, special files
    and unreadable entries go to ``skipped``. Raises OSError if ``top`` itself cannot be listed.
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
            if exclude and _matches(below, exclude):
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
        # The reader checks again.
        return False


def is_excluded(relative: str, exclude: Sequence[str]) -> bool:
    """Return whether an entry, or a directory above it, is excluded."""
    names = relative.split("/")
    return any(_matches("/".join(names[:count]), exclude) for count in range(1, len(names) + 1))


def _matches(relative: str, exclude: Sequence[str]) -> bool:
    name = relative.rpartition("/")[2]
    return any(fnmatch.fnmatchcase(name, glob) or fnmatch.fnmatchcase(relative, glob) for glob in exclude)


def name_of(entry: str) -> str:
    """Return the node name of an entry name."""
    return f":{entry}" if entry.startswith(":") else entry


def entry_of(name: str) -> str:
    """Return the entry name of a node name; raises ValueError for a node that cannot be an entry."""
    entry = name[1:] if name.startswith("::") else name
    if entry in {"", ".", ".."} or "/" in entry or "\0" in entry or (name.startswith(":") and entry is name):
        raise ValueError(f"{name!r} is not the name of an entry")
    # Lone surrogates that spell valid UTF-8 would give the name of another entry.
    if entry.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape") != entry:
        raise ValueError(f"{name!r} is not the name of an entry")
    return entry


def attributes(name: str, seen: Seen) -> dict[str, PropertyValue]:
    """Return the properties of an entry without its content. ``name`` is the entry's own."""
    kept: dict[str, PropertyValue] = {KIND: seen.kind, NAME: name, MODE: seen.mode, MTIME: seen.mtime}
    if seen.target is not None:
        kept[TARGET] = seen.target
    if seen.size is not None:
        kept[SIZE] = seen.size
    if seen.digest is not None:
        kept[DIGEST] = seen.digest
    return kept


def properties(name: str, seen: Seen) -> dict[str, PropertyValue]:
    """Return the properties of an entry, with its content if ``seen`` has it."""
    kept = attributes(name, seen)
    if seen.content is not None:
        kept[CONTENT] = as_value(seen.content)
    return kept


def keeps_content(kept: Mapping[str, PropertyValue]) -> bool:
    """Return whether the node of an entry holds the entry's whole content."""
    return kept.get(KIND) != FILE or CONTENT in kept


def as_value(data: bytes) -> str | bytes:
    """Return a content as a property value: a string if it is text."""
    if b"\0" in data:
        return data
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def pieces(content: object, blob: Callable[[str], Iterator[bytes]]) -> Iterator[bytes]:
    """Yield the bytes of a stored content; ``blob`` reads a blob by its id. Raises ValueError for other values."""
    if isinstance(content, str):
        yield content.encode("utf-8", "surrogatepass")
    elif isinstance(content, bytes):
        yield content
    elif isinstance(content, BlobRef):
        yield from blob(content.id)
    else:
        raise ValueError(f"{content!r} is not a content; it must be a string, bytes or a reference to a blob")


def node_path(at: str, relative: str) -> str:
    """Return the node path of an entry in an import at ``at``."""
    if not relative:
        return at
    if relative.startswith(":") or "/:" in relative:
        relative = "/".join(map(name_of, relative.split("/")))
    return paths.join(at, relative)


def impossible(at: str, relative: str) -> Skipped | None:
    """Return the entry as skipped if it cannot have a node, because its path is too long or too deep; else None."""
    try:
        paths.check_new(node_path(at, relative))
    except InvalidPathError as error:
        return Skipped(relative, f"cannot be a node: {error}", True)
    return None


def relative_path(path: str, at: str) -> str:
    """Return a node's relative path, the inverse of :func:`node_path`; raises ValueError if it cannot be an entry."""
    names = path[len(at) :].lstrip("/") if at != paths.ROOT else path[1:]
    return "/".join(map(entry_of, names.split("/")))


def counts(kept: Mapping[str, PropertyValue]) -> dict[str, int]:
    """Return the contribution of one entry to the totals at the import's root."""
    kind = kept.get(KIND)
    size = kept.get(SIZE, 0)
    numbers = (1, kind == FILE, kind == DIRECTORY, kind == LINK, size if isinstance(size, int) else 0)
    return {name: int(number) for name, number in zip(TOTALS, numbers, strict=True)}


def resolved(directory: str) -> str:
    """Return the absolute path of a directory. As for the system, ``link/..`` contains the directory to which the link leads."""
    return os.path.realpath(directory)


def default_target(directory: Path) -> str:
    """Return the default target of a directory."""
    name = os.path.basename(resolved(os.fspath(directory)))
    return paths.join(paths.ROOT, name_of(from_disk(os.fsencode(name))) or "import")

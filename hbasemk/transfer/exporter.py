"""Writing a tree back: as files, or as JSON."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from hbasemk.kernel import paths
from hbasemk.repository import Node, Snapshot
from hbasemk.transfer.entries import DIRECTORY, FILE, LINK
from hbasemk.transfer.json_values import to_json


@dataclass(slots=True)
class Exported:
    """What an export wrote, and what it could not, by path and reason."""

    files: int = 0
    directories: int = 0
    links: int = 0
    skipped: list[tuple[str, str]] = field(default_factory=list)


def export_files(snapshot: Snapshot, path: str, target: Path) -> Exported:
    """Write the subtree of ``path`` below the folder ``target``, as an import kept it.

    A file replaces one that is there in one step; what the tree does not have stays. Nothing is written outside
    ``target``, whatever links are there or in the tree. Raises NodeNotFoundError, and OSError where the folder cannot
    be written.
    """
    top = snapshot[path]
    target.mkdir(parents=True, exist_ok=True)
    return _Export(snapshot, top, target).run()


class _Export:
    """One export to files. A node is written only into a directory that this export has made or has looked at."""

    def __init__(self, snapshot: Snapshot, top: Node, target: Path) -> None:
        self._snapshot = snapshot
        self._top = top
        self._directories: dict[str, tuple[Path, _Stamp]] = {top.path: (target, _Stamp(None, None))}
        self._done = Exported()

    def run(self) -> Exported:
        for node in self._snapshot.walk(self._top.path):
            if node.path == self._top.path:
                continue
            parent = self._directories.get(paths.parent(node.path))
            if parent is None:
                self._skip(node, "what it is in is not written as a directory")
                continue
            try:
                self._write(node, parent[0] / node.name)
            except ValueError:
                self._skip(node, "it has a name, or leads to one, that nothing on disk can have")
            except OSError as error:
                if error.errno not in _ABOUT_ONE_ENTRY:
                    raise
                self._skip(node, f"it cannot be written ({error.strerror})")
        for where, stamp in reversed(self._directories.values()):
            # Last, since writing into a directory changes its time and may need more than its mode allows.
            stamp.put_on(where)
        return self._done

    def _write(self, node: Node, where: Path) -> None:
        kind = node.get("kind")
        stamp = _Stamp.of(node)
        if kind == DIRECTORY or (kind is None and self._snapshot.children(node.path, limit=1)):
            self._make_directory(node, where, stamp)
        elif kind == LINK and isinstance(node.get("target"), str):
            to = str(node["target"])
            with _replacing(where) as temporary:
                os.symlink(to, temporary)
            self._done.links += 1
        elif kind == FILE and isinstance(node.get("text"), str):
            with _replacing(where) as temporary:
                with open(temporary, "xb") as file:
                    file.write(str(node["text"]).encode("utf-8", "surrogatepass"))
                stamp.put_on(temporary)
            self._done.files += 1
        elif kind == FILE:
            self._skip(node, "its content was not kept (too large, or no text)")
        else:
            self._skip(node, "it is no directory entry")

    def _make_directory(self, node: Node, where: Path, stamp: _Stamp) -> None:
        try:
            where.mkdir()
        except FileExistsError:
            if where.is_symlink() or not where.is_dir():
                self._skip(node, "something else is there, no directory")
                return
            if not os.access(where, os.W_OK | os.X_OK):
                where.chmod(0o700)
        self._directories[node.path] = (where, stamp)
        self._done.directories += 1

    def _skip(self, node: Node, reason: str) -> None:
        self._done.skipped.append((node.path, reason))


_ABOUT_ONE_ENTRY: Final = frozenset({errno.EEXIST, errno.EISDIR, errno.ENAMETOOLONG, errno.ENOENT, errno.ENOTDIR})
"""Errors that say that one entry cannot be written; others, such as a full disk, are everyone's."""


class _Stamp(NamedTuple):
    """Mode bits and modification time (in ns) of an entry, None for what was not kept."""

    mode: int | None
    mtime: int | None

    @classmethod
    def of(cls, node: Node) -> _Stamp:
        mode, mtime = node.get("mode"), node.get("mtime")
        return cls(mode if isinstance(mode, int) else None, mtime if isinstance(mtime, int) else None)

    def put_on(self, where: Path) -> None:
        if self.mode is not None:
            where.chmod(self.mode)
        if self.mtime is not None:
            os.utime(where, ns=(self.mtime, self.mtime))


@contextmanager
def _replacing(where: Path) -> Iterator[Path]:
    """A name beside ``where`` that takes its place in one step at the end, or is removed after an error."""
    temporary = where.parent / f".hbasemk-{os.urandom(8).hex()}"
    try:
        yield temporary
        os.replace(temporary, where)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_json(snapshot: Snapshot, path: str, target: Path) -> None:
    """Write :func:`export_json` to a file, which replaces one that is there in one step. Raises OSError."""
    with _replacing(target) as temporary, temporary.open("x", encoding="utf-8") as file:
        file.writelines(export_json(snapshot, path))


def export_json(snapshot: Snapshot, path: str) -> Iterator[str]:
    """The subtree as JSON text, piece by piece: ``{"properties": {…}, "children": {name: …}}``, names sorted.

    Values are those of :mod:`hbasemk.transfer.json_values`; nothing is lost, so that an import makes the same tree of it.
    """
    yield from _node(snapshot[path])
    # One open object per level: its remaining children, and whether one was written before.
    stack: list[tuple[list[Node], bool]] = [(_children(snapshot, path), False)]
    while stack:
        left, any_before = stack.pop()
        if not left:
            yield "}}"
            continue
        node = left.pop()
        stack.append((left, True))
        yield f"{', ' if any_before else ''}{json.dumps(node.name)}: "
        yield from _node(node)
        stack.append((_children(snapshot, node.path), False))
    yield "\n"


def _node(node: Node) -> Iterator[str]:
    inside = ", ".join(f"{json.dumps(name)}: {to_json(node[name])}" for name in sorted(node))
    yield f'{{"properties": {{{inside}}}, "children": {{'


def _children(snapshot: Snapshot, path: str) -> list[Node]:
    """The children, last first."""
    wanted = [paths.join(path, name) for name in reversed(snapshot.children(path))]
    return [node for node in snapshot.nodes(wanted).values() if node is not None]

"""Export of a tree as files or as JSON."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeGuard

from hbasemk.blobs import RepositoryBlobs
from hbasemk.errors import BlobNotFoundError
from hbasemk.format import paths
from hbasemk.kernel.garbage import collected_rarely
from hbasemk.named_errors import naming
from hbasemk.snapshot import Node, Snapshot, instance_of_snapshot
from hbasemk.transfer import own_files, target_file
from hbasemk.transfer.files import entries
from hbasemk.transfer.files.entries import (
    CONTENT,
    DIRECTORY,
    FILE,
    KIND,
    LINK,
    MODE,
    MTIME,
    OLD_TOTALS,
    TARGET,
    TOTALS,
    entry_of,
)
from hbasemk.transfer.json.exporter import export_json
from hbasemk.transfer.target_file import PERMISSIONS

SPECIAL: Final = 0o7000
"""The bits for set-user-id, set-group-id and sticky."""
_OF_OTHERS: Final = 0o077
"""The bits for users other than the owner."""


@dataclass(slots=True)
class Exported:
    """The result of an export: the written entries, and the skipped ones by path and reason.

    ``incomplete`` are entries that were written without their mode or time. ``masked`` is how many had set-user-id,
    set-group-id or sticky bits that were left out.
    """

    files: int = 0
    directories: int = 0
    links: int = 0
    masked: int = 0
    skipped: list[tuple[str, str]] = field(default_factory=list)
    incomplete: list[tuple[str, str]] = field(default_factory=list)


def export_files(snapshot: Snapshot, path: str, target: Path, *, special_modes: bool = False) -> Exported:
    """Write the subtree of ``path`` to ``target``, as an import kept it.

    A directory becomes the folder ``target``, which gets the directory's mode and time if it is new. A file or link becomes the
    file ``target``, or an entry with its own name if ``target`` is a folder. A file replaces an existing one atomically; other
    existing entries stay. Nothing is written outside of ``target``, regardless of links there or in the tree, and no file of the
    repository is replaced. Without ``special_modes``, set-user-id, set-group-id and sticky bits are left out. A new directory has
    no rights for other users before it gets its mode at the end. Raises NodeNotFoundError, and OSError if the folder cannot be
    written.
    """
    return _Export(snapshot, snapshot[path], special_modes).run(target)


class _SkipError(Exception):
    """This entry cannot be written; the text names the reason."""


class _Folder:
    """The folder of an export: its descriptor, and those of the directories in it.

    Each directory is reached from the folder's descriptor name by name, and no link is followed.
    """

    def __init__(self, where: Path) -> None:
        self.path = where
        self.top = os.open(where, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._at: tuple[bytes, ...] = ()
        self._open = self.top

    def directory(self, names: tuple[bytes, ...]) -> int:
        """Return the descriptor of a directory, valid until the next call. Raises OSError, also for a link on the way."""
        if names != self._at:
            number = os.dup(self.top)
            try:
                for name in names:
                    inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=number)
                    os.close(number)
                    number = inner
            except BaseException:
                os.close(number)
                raise
            self._forget()
            self._at, self._open = names, number
        return self._open

    def is_writable(self) -> bool:
        """Return whether this user may create entries in the folder itself."""
        return os.access(b".", os.W_OK | os.X_OK, dir_fd=self.top)

    def _forget(self) -> None:
        if self._open != self.top:
            os.close(self._open)
        self._at, self._open = (), self.top

    def close(self) -> None:
        """Close all descriptors."""
        self._forget()
        os.close(self.top)


class _Export:
    """One export to files. It writes a node only into a directory that it created or verified."""

    def __init__(self, snapshot: Snapshot, top: Node, special_modes: bool) -> None:
        self._snapshot = snapshot
        self._top = top
        self._mask = PERMISSIONS | (SPECIAL if special_modes else 0)
        self._directories: dict[str, tuple[tuple[bytes, ...], Node | None]] = {}
        instance = instance_of_snapshot(snapshot)
        self._blobs = RepositoryBlobs(instance)
        self._own = instance.store_files
        self._done = Exported()

    def run(self, target: Path) -> Exported:
        top = self._top
        if top.get(KIND) in (FILE, LINK):
            self._single(target)
            self._skip_below()
        elif self._is_directory(top):
            is_new = not os.path.lexists(target)
            _make_folder(target, top.path, 0o700 if MODE in top else 0o777)
            with contextlib.closing(_Folder(target)) as folder:
                # A folder that exists keeps its mode and time.
                self._directories[top.path] = (), top if is_new else None
                self._tree(folder)
        else:
            self._skip(top, self._not_an_entry(top))
        return self._done

    def _is_directory(self, node: Node) -> bool:
        if node.get(KIND) == DIRECTORY:
            return True
        # Nodes above imports, and their roots, have no kind.
        return KIND not in node and (node.keys() >= set(TOTALS) or bool(self._snapshot.children(node.path, limit=1)))

    @staticmethod
    def _not_an_entry(node: Node) -> str:
        if node.get("kind") in (FILE, DIRECTORY, LINK) or node.keys() >= set(OLD_TOTALS):
            return "an earlier version of hbasemk imported it, with another layout; import it again to export it"
        return (
            f"it is not a directory entry ({KIND} is {node.get(KIND)!r}); `hbasemk export -f json` exports every node"
        )

    def _single(self, target: Path) -> None:
        if target.is_dir():
            where, name = target, _entry_name(self._top)
            if name is None:
                self._skip(self._top, _IMPOSSIBLE_NAME)
                return
        elif target_file.is_system_link(target):
            self._skip(self._top, "a device, a pipe or a socket has its path")
            return
        else:
            where, name = target.parent, os.fsencode(target.name)
            _make_folder(where, self._top.path)
        with contextlib.closing(_Folder(where)) as folder:
            self._try(folder, self._top, (), name)

    def _skip_below(self) -> None:
        for node in self._snapshot.walk(self._top.path):
            if node.path != self._top.path:
                self._skip(node, _NO_DIRECTORY)

    def _tree(self, folder: _Folder) -> None:
        try:
            self._write_below(folder)
        finally:
            # Last, because writing into a directory changes its time and may need more rights than its mode grants. Also after
            # an error: until then, others cannot read what a new directory contains.
            for names, kept in reversed(self._directories.values()):
                if kept is not None:
                    self._stamp_directory(folder, names, kept)

    def _write_below(self, folder: _Folder) -> None:
        for node in self._snapshot.walk(self._top.path):
            if node.path == self._top.path:
                continue
            parent = self._directories.get(paths.parent(node.path))
            if parent is None:
                self._skip(node, _NO_DIRECTORY)
                continue
            name = _entry_name(node)
            if name is None:
                self._skip(node, _IMPOSSIBLE_NAME)
                continue
            self._try(folder, node, parent[0], name)

    def _try(self, folder: _Folder, node: Node, within: tuple[bytes, ...], name: bytes) -> None:
        try:
            self._write(folder, node, within, name)
        except _SkipError as error:
            self._skip(node, str(error))
        except OSError as error:
            if error.errno not in _ABOUT_ONE_ENTRY and not (error.errno in _REFUSED and folder.is_writable()):
                raise naming(error, os.path.join(os.fsencode(folder.path), *within, name)) from error
            self._skip(node, f"it cannot be written ({error.strerror})")

    def _write(self, folder: _Folder, node: Node, within: tuple[bytes, ...], name: bytes) -> None:
        kind = node.get(KIND)
        if kind == LINK:
            to = _link_target(node.get(TARGET))
            at = folder.directory(within)
            with target_file.replacing(name, at, self._require_replaceable) as temporary:
                os.symlink(to, temporary, dir_fd=at)
                self._stamp_time(node, temporary, at)
            self._done.links += 1
        elif kind == FILE:
            self._write_file(node, folder.directory(within), name)
        elif self._is_directory(node):
            self._make_directory(folder, node, within, name)
        else:
            raise _SkipError(self._not_an_entry(node))

    def _write_file(self, node: Node, at: int, name: bytes) -> None:
        if CONTENT not in node:
            raise _SkipError("the import left its content out")
        try:
            with target_file.replacing(name, at, self._require_replaceable) as temporary:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                # No other user can read a private file before it has its mode.
                mode = 0o600 if MODE in node else 0o666
                with os.fdopen(os.open(temporary, flags, mode, dir_fd=at), "wb") as file:
                    file.writelines(entries.pieces(node[CONTENT], self._blobs.stream))
                    file.flush()
                    self._stamp(node, file.fileno())
        except (ValueError, BlobNotFoundError) as error:
            raise _SkipError(f"its content cannot be read: {error}") from error
        self._done.files += 1

    def _require_replaceable(self, found: os.stat_result) -> None:
        own = self._own()
        if own and own_files.is_own(found, own):
            raise _SkipError("a file of this repository has its path; export to another folder")
        if target_file.is_special(found.st_mode):
            raise _SkipError("a device, a pipe or a socket has its path")

    def _make_directory(self, folder: _Folder, node: Node, within: tuple[bytes, ...], name: bytes) -> None:
        at = folder.directory(within)
        try:
            # No other user can reach the private files in it before it has its mode.
            os.mkdir(name, 0o700 if MODE in node else 0o777, dir_fd=at)
        except FileExistsError:
            status = os.stat(name, dir_fd=at, follow_symlinks=False)
            if not stat.S_ISDIR(status.st_mode):
                raise _SkipError("an entry that is not a directory has its path") from None
            if not os.access(name, os.R_OK | os.W_OK | os.X_OK, dir_fd=at):
                os.chmod(name, 0o700, dir_fd=at)
            else:
                self._withdraw_rights(folder, node, (*within, name), stat.S_IMODE(status.st_mode))
        self._directories[node.path] = (*within, name), node
        self._done.directories += 1

    # --- modes and times ---------------------------------------------------------------------------------

    @staticmethod
    def _withdraw_rights(folder: _Folder, node: Node, names: tuple[bytes, ...], there: int) -> None:
        """Withdraw the rights of others to an existing directory with the mode ``there`` that its node's mode does not grant."""
        mode = node.get(MODE)
        if _is_integer(mode, 0, PERMISSIONS | SPECIAL) and there & ~mode & _OF_OTHERS:
            # If it belongs to another user, its mode is reported at the end.
            with contextlib.suppress(PermissionError):
                os.fchmod(folder.directory(names), there & (mode | ~_OF_OTHERS))

    def _stamp_directory(self, folder: _Folder, names: tuple[bytes, ...], node: Node) -> None:
        try:
            number = folder.directory(names)
        except OSError as error:
            self._incomplete(node, f"its mode and time cannot be set ({error.strerror})")
        else:
            self._stamp(node, number)

    def _stamp(self, node: Node, number: int) -> None:
        """Set the mode and time of an open file or directory from its node, and report invalid ones."""
        mode = node.get(MODE)
        if _is_integer(mode, 0, PERMISSIONS | SPECIAL):
            self._done.masked += bool(mode & ~self._mask)
            try:
                os.fchmod(number, mode & self._mask)
            except OSError as error:
                self._incomplete(node, f"its mode {mode:o} cannot be set ({error.strerror})")
        elif mode is not None:
            self._incomplete(node, f"its mode {_short(mode)} is not a number from 0 to 0o7777")
        self._stamp_time(node, number)

    def _stamp_time(self, node: Node, entry: int | bytes, at: int | None = None) -> None:
        """Set the time of an open file or directory, or of the link with this name in ``at``; report an invalid one."""
        mtime = node.get(MTIME)
        if mtime is not None and not (_is_integer(mtime, -_FARTHEST_NS, _FARTHEST_NS) and _put_time(entry, at, mtime)):
            self._incomplete(
                node, f"its time {_short(mtime)} is not one (in ns since 1970) that this file system keeps"
            )

    def _skip(self, node: Node, reason: str) -> None:
        self._done.skipped.append((node.path, reason))

    def _incomplete(self, node: Node, reason: str) -> None:
        self._done.incomplete.append((node.path, reason))


_NO_DIRECTORY: Final = "its parent is not exported as a directory"
_IMPOSSIBLE_NAME: Final = "it has a name that nothing on disk can have"
_ABOUT_ONE_ENTRY: Final = frozenset(
    {
        errno.EBUSY,
        errno.EEXIST,
        errno.EFBIG,
        errno.EILSEQ,
        errno.EINVAL,
        errno.EISDIR,
        errno.ELOOP,
        errno.ENAMETOOLONG,
        errno.ENOENT,
        errno.ENOTDIR,
    }
)
"""Errors that affect one entry only: its name, its size or what has its path; others, such as a full disk, affect all."""
_REFUSED: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
"""Errors that affect one entry or directory, unless they affect the export's folder itself."""
_FARTHEST_NS: Final = 1 << 100
"""Beyond the times of all file systems; some keep later times than 64 bits of ns can."""
_MARGIN_NS: Final = 3_000_000_000
"""The coarsest resolution of file times in ns; FAT has two seconds."""


def _entry_name(node: Node) -> bytes | None:
    """Return the name on disk of a node's entry; None if no entry can have the name of the node."""
    try:
        return entry_of(node.name).encode("utf-8", "surrogateescape")
    except ValueError:
        return None


def _is_integer(value: object, lowest: int, highest: int) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and lowest <= value <= highest


def _put_time(entry: int | bytes, at: int | None, mtime: int) -> bool:
    """Set the time of a descriptor, or of a link in a directory; return False if the file system stored another one."""
    follow = at is None
    try:
        os.utime(entry, ns=(mtime, mtime), dir_fd=at, follow_symlinks=follow)
        stored = os.stat(entry, dir_fd=at, follow_symlinks=follow).st_mtime_ns
    except (NotImplementedError, OverflowError, OSError):
        return False
    return abs(stored - mtime) < _MARGIN_NS


def _link_target(target: object) -> bytes:
    if isinstance(target, str) and target and "\0" not in target:
        try:
            return target.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            pass
    raise _SkipError(f"its target {_short(target)} is not a valid target of a link")


def _short(value: object) -> str:
    if isinstance(value, int) and value.bit_length() > 200:
        return f"of {value.bit_length()} bits"
    text = ascii(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


@collected_rarely
def write_json(snapshot: Snapshot, path: str, target: Path) -> None:
    """Write :func:`export_json` to a file, which atomically replaces an existing one; or into a device or pipe.

    Raises the errors of :func:`hbasemk.transfer.target_file.opened`.
    """
    with target_file.opened(target) as file:
        file.writelines(piece.encode() for piece in export_json(snapshot, path))


def _make_folder(folder: Path, path: str, mode: int = 0o777) -> None:
    """Create a folder for the export of a node, unless it exists; raise NotADirectoryError if a file has its place."""
    try:
        folder.mkdir(mode, parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        found = next(one for one in (folder, *folder.parents) if os.path.lexists(one))
        problem = f"it is not a folder, so {path} cannot be exported there; choose another TARGET"
        raise NotADirectoryError(errno.ENOTDIR, problem, str(found)) from error

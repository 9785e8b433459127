"""A file that a command writes. The new content replaces an earlier one as a whole, or not at all, where that is possible."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from hbasemk.named_errors import naming

PERMISSIONS: Final = 0o777


@contextmanager
def opened(target: Path) -> Iterator[BinaryIO]:
    """Yield a binary stream whose content atomically replaces a file at the end; or a device or pipe, opened for writing.

    After an error, the file is as before. A link stays, and the file that it leads to is replaced. The new file has the mode of
    the old one. A file in a folder where this user may create none is overwritten instead; an error then leaves it incomplete.
    A mount point, such as a file that is mounted into a container, is overwritten when the new content is complete. Raises
    OSError, with the name ``target``.
    """
    try:
        found = target.stat()
    except FileNotFoundError:
        found = None
    if found is not None and stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, "expected a file, and this is a directory", os.fspath(target))
    try:
        if found is not None and (is_special(found.st_mode) or is_system_link(target)):
            with open(target, "wb") as stream:
                yield stream
            return
        mode = 0o666 if found is None else found.st_mode & PERMISSIONS
        with contextlib.ExitStack() as stack:
            try:
                file = stack.enter_context(_beside(os.fsencode(target.resolve()), mode))
            except PermissionError:
                if found is None:
                    raise
                # This user may write the file, but create none beside it.
                yield stack.enter_context(open(target, "wb"))
                return
            if stat.S_IMODE(os.fstat(file.fileno()).st_mode) != mode and found is not None:
                # The umask took rights that the old file grants.
                os.fchmod(file.fileno(), mode)
            yield file
    except OSError as error:
        raise naming(error, target) from error


@contextmanager
def _beside(name: bytes, mode: int) -> Iterator[BinaryIO]:
    """Yield a new file with a mode, less what the umask takes; it replaces the file ``name`` at the end, or overwrites it."""
    with (
        replacing(name, overwrites=True) as temporary,
        open(temporary, "xb", opener=lambda path, flags: os.open(path, flags, mode)) as file,
    ):
        yield file


@contextmanager
def replacing(
    name: bytes,
    at: int | None = None,
    check: Callable[[os.stat_result], None] = lambda _: None,
    *,
    overwrites: bool = False,
) -> Iterator[bytes]:
    """Yield a temporary name that atomically replaces ``name`` at the end, or is removed after an error.

    ``at`` is the descriptor of their directory. ``check`` gets the status of an existing entry, and raises an error to keep it.
    With ``overwrites`` and absolute names, a file that is a mount point gets the content instead, since nothing can replace it.
    """
    folder, last = os.path.split(name)
    temporary = os.path.join(folder, b".hbasemk-" + os.urandom(8).hex().encode())
    try:
        yield temporary
        if last:
            with contextlib.suppress(FileNotFoundError):
                check(os.stat(name, dir_fd=at, follow_symlinks=False))
        try:
            os.replace(temporary, name, src_dir_fd=at, dst_dir_fd=at)
        except OSError as error:
            if error.errno != errno.EBUSY or not overwrites:
                raise
            _overwrite(name, temporary)
            os.unlink(temporary)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=at)
        raise


def _overwrite(name: bytes, temporary: bytes) -> None:
    """Copy the content of a temporary file over that of another file."""
    # The mode may not let this user read it.
    os.chmod(temporary, stat.S_IRUSR)
    with open(temporary, "rb") as source, open(name, "wb") as file:
        shutil.copyfileobj(source, file)


def is_special(mode: int) -> bool:
    """Return whether a mode is that of a device, a pipe or a socket."""
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode))


def is_system_link(target: Path) -> bool:
    """Return whether a path is one of the links of the system to open files, such as /dev/stdout or /dev/fd/3."""
    where = os.path.abspath(target)
    return target.is_symlink() and (os.path.dirname(where) in ("/dev", "/dev/fd") or where.startswith("/proc/"))

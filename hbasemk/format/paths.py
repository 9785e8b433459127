"""Paths and names of nodes, and their row keys.

A row key is the depth as two bytes, then the path. So the direct children of a node form one range of keys, and so does
every level of a subtree.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, TypeGuard

from hbasemk.errors import CHECK_ADVICE, FormatError, InvalidPathError
from hbasemk.format import limits

ROOT: Final = "/"
MAX_KEY: Final = 32_767
_NO_NAMES: Final = frozenset({".", ".."})


def plain(text: str) -> str:
    """Return a text of a subclass of str as a str: the members of an enum, for example, have other texts in f-strings."""
    return text if text.__class__ is str else str.__str__(text)


def check_name(name: str) -> str:
    """Return a name if a node or property can have it; otherwise raise InvalidPathError."""
    if not isinstance(name, str) or not name or "/" in name or name in _NO_NAMES:
        raise InvalidPathError(
            f"{limits.shown(name)} is not a valid name; expected non-empty text without '/', other than '.' and '..'"
        )
    if len(name) * 4 > limits.MAX_NAME and limits.size(name) > limits.MAX_NAME:
        raise InvalidPathError(
            f"the name {limits.shown(name)} has {limits.size(name)} bytes; at most {limits.MAX_NAME} are possible. Use "
            "a shorter name."
        )
    return name


def check_path(path: str) -> str:
    """Return a path if a node can have it; otherwise raise InvalidPathError."""
    if path == ROOT:
        return path
    if not isinstance(path, str) or not path or path[0] != "/":
        raise InvalidPathError(f"{limits.shown(path)} is not a valid path; expected an absolute path such as '/a/b'")
    if path[-1] == "/" or "//" in path:
        raise InvalidPathError(f"{limits.shown(path)} is not a valid path; it has an empty name or ends with a slash")
    if "/." in path and not _NO_NAMES.isdisjoint(path.split("/")):
        raise InvalidPathError(f"{limits.shown(path)} is not a valid path; '.' and '..' cannot be names in it")
    if len(path) * 4 + 2 > MAX_KEY:
        # A character takes at most four bytes, so only now may the row key be too long.
        key(path)
    return path


def check_property(path: str) -> str:
    """Return a path if a node, or a property of a node, can have it; otherwise raise InvalidPathError.

    The name of a property is not part of a row key, so the path of a property can be longer than that of a node.
    """
    try:
        return check_path(path)
    except InvalidPathError:
        if not isinstance(path, str):
            raise
        owner, _, last = path.rpartition("/")
        if not is_path(owner or ROOT) or not _is_name(last) or join(owner or ROOT, last) != path:
            raise
        return path


def _is_name(name: str) -> bool:
    try:
        return bool(check_name(name))
    except InvalidPathError:
        return False


def is_path(path: object) -> TypeGuard[str]:
    """Return whether a node can have this path."""
    try:
        return isinstance(path, str) and bool(check_path(path))
    except InvalidPathError:
        return False


def check_new(path: str) -> str:
    """Return a path if a node can be added there; otherwise raise InvalidPathError (see :data:`limits.MAX_DEPTH`)."""
    check_path(path)
    if len(path) > limits.MAX_DEPTH < path.count("/"):
        raise InvalidPathError(
            f"the path {path[:60]!r}… has {depth(path)} levels; a new node can be at most {limits.MAX_DEPTH} levels below the "
            "root. Use fewer levels."
        )
    return path


def depth(path: str) -> int:
    """Return the number of names in a path; 0 for the root."""
    return 0 if path == ROOT else path.count("/")


def parent(path: str) -> str:
    """Return the path of the parent; raise InvalidPathError for the root."""
    if path == ROOT:
        raise InvalidPathError("the root has no parent")
    return path[: path.rindex("/")] or ROOT


def ancestor(path: str, levels: int) -> str:
    """Return the ancestor (or the path itself) that is ``levels`` below the root; the path is at least as deep."""
    return "/".join(path.split("/", levels + 1)[: levels + 1]) or ROOT


def with_ancestors(touched: Iterable[str]) -> Iterator[str]:
    """Yield these paths and all their ancestors, each once."""
    seen: set[str] = set()
    for path in touched:
        at = path
        while at not in seen:
            seen.add(at)
            yield at
            if at != ROOT:
                at = parent(at)


def name(path: str) -> str:
    """Return the last name of a path; empty for the root."""
    return path[path.rindex("/") + 1 :]


def join(path: str, child: str) -> str:
    """Return the path of a child."""
    return f"/{child}" if path == ROOT else f"{path}/{child}"


def is_at_or_below(path: str, ancestor: str) -> bool:
    """Return whether ``path`` is ``ancestor`` or in its subtree."""
    return ancestor == ROOT or path == ancestor or path.startswith(ancestor + "/")


def rebase(path: str, source: str, target: str) -> str:
    """Return the new path of ``path``, which is at or below ``source``, after ``source`` is moved to ``target``."""
    tail = path[len(source) :] if source != ROOT else path
    if not tail or tail == ROOT:
        return target
    return target + tail if target != ROOT else tail


def encode(text: str) -> bytes:
    """Encode a name or path as bytes; lone surrogates, which JSON text may contain, are kept."""
    return text.encode("utf-8", "surrogatepass")


def decode(data: bytes) -> str:
    """Decode bytes of :func:`encode`; raise FormatError for other bytes."""
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise FormatError(
            f"a stored name or message is damaged: {limits.shown(data)} is not UTF-8{CHECK_ADVICE}"
        ) from error


def key(path: str) -> bytes:
    """Return the row key of a node; raise InvalidPathError if it would be too long."""
    if len(path) > MAX_KEY:
        raise _too_long(path, f"{len(path)} characters")
    levels = 0 if path == ROOT else path.count("/")
    data = path.encode("utf-8", "surrogatepass")
    if len(data) + 2 > MAX_KEY:
        raise _too_long(path, f"{len(data)} bytes")
    return levels.to_bytes(2, "big") + data


def _too_long(path: str, length: str) -> InvalidPathError:
    return InvalidPathError(
        f"the path {path[:60]!r}… has {length}; at most {MAX_KEY - 2} bytes are possible. Use shorter names or fewer levels."
    )


def path_of(row_key: bytes) -> str:
    """Return the path of a row key; raise FormatError if it is not UTF-8."""
    try:
        return row_key[2:].decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise FormatError(
            f"the row key is damaged: it is not UTF-8 (table 'nodes', row key {limits.shown(row_key)}){CHECK_ADVICE}"
        ) from error


def level_range(path: str, level: int) -> tuple[bytes, bytes]:
    """Return the row key range (end exclusive) of all nodes ``level`` ≥ 1 levels below ``path``."""
    head = (depth(path) + level).to_bytes(2, "big")
    prefix = head + (b"/" if path == ROOT else encode(path) + b"/")
    return prefix, prefix[:-1] + b"0"

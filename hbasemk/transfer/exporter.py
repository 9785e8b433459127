"""Writing a tree back: as files, or as JSON."""

from __future__ import annotations

import base64
import json
import math
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from hbasemk.kernel import paths
from hbasemk.kernel.values import BlobRef, Json, Value
from hbasemk.repository import Node, Snapshot
from hbasemk.transfer.entries import DIRECTORY, FILE, LINK


@dataclass(slots=True)
class Exported:
    """What an export wrote, and what it could not, by path and reason."""

    files: int = 0
    directories: int = 0
    links: int = 0
    skipped: list[tuple[str, str]] = field(default_factory=list)


def export_files(snapshot: Snapshot, path: str, target: Path) -> Exported:
    """Write the subtree of ``path`` below the folder ``target``, as an import kept it.

    A file replaces one that is there in one step. Nothing outside ``target`` is written: links are made last, so that
    no file is written through one. Raises OSError where the folder cannot be written.
    """
    done = Exported()
    target.mkdir(parents=True, exist_ok=True)
    links: list[tuple[Path, str]] = []
    times: list[tuple[Path, Node]] = []
    for node in snapshot.walk(path):
        if node.path == path:
            continue
        relative = node.path[len(path) :].lstrip("/")
        where = target.joinpath(*relative.split("/"))
        kind = node.get("kind")
        if "\0" in relative:
            done.skipped.append((node.path, "its name cannot be that of a file"))
        elif any(parent.is_symlink() for parent in where.parents if parent != target and target in parent.parents):
            done.skipped.append((node.path, "it would be written through a link that is there"))
        elif kind == DIRECTORY or (kind is None and node.children):
            where.mkdir(exist_ok=True)
            times.append((where, node))
            done.directories += 1
        elif kind == LINK and isinstance(node.get("target"), str):
            links.append((where, str(node["target"])))
        elif kind == FILE and isinstance(node.get("text"), str):
            _write(where, str(node["text"]).encode("utf-8", "surrogatepass"))
            times.append((where, node))
            done.files += 1
        elif kind == FILE:
            done.skipped.append((node.path, "its content was not kept (too large, or no text)"))
        else:
            done.skipped.append((node.path, "it is no directory entry"))
    for where, node in reversed(times):
        _stamp(where, node)
    for where, to in links:
        if where.is_symlink():
            where.unlink()
        os.symlink(to, where)
        done.links += 1
    return done


def _write(where: Path, data: bytes) -> None:
    handle, temporary = tempfile.mkstemp(dir=where.parent, prefix=".hbasemk-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(temporary, where)
    except BaseException:
        os.unlink(temporary)
        raise


def _stamp(where: Path, node: Node) -> None:
    mode, mtime = node.get("mode"), node.get("mtime")
    if isinstance(mode, int):
        where.chmod(mode)
    if isinstance(mtime, int):
        os.utime(where, ns=(mtime, mtime))


def export_json(snapshot: Snapshot, path: str) -> Iterator[str]:
    """The subtree as JSON text, piece by piece: ``{"properties": {…}, "children": {name: …}}``, names sorted.

    What JSON has no value for is an object with one key: ``$bytes`` (base64), ``$blob`` (an id), ``$float``.
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


def to_json(value: Value) -> str:
    """A property value as JSON text."""
    if isinstance(value, list):
        return f"[{', '.join(map(to_json, value))}]"
    if isinstance(value, Json):
        return value.text
    if isinstance(value, bytes):
        return json.dumps({"$bytes": base64.b64encode(value).decode()})
    if isinstance(value, BlobRef):
        return json.dumps({"$blob": value.id})
    if isinstance(value, float) and not math.isfinite(value):
        return json.dumps({"$float": repr(value)})
    return json.dumps(value)

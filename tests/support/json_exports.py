"""A tree with every kind of value, its export, and what an import made of it."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any

from hbasemk import BlobRef, Json, Transaction, connect
from hbasemk.check.problem import BLOB_REFERENCE
from hbasemk.format.values import encode
from hbasemk.transfer.json.importer import JsonImport, JsonResult
from tests.support.repositories import damage

VALUES: dict[str, Any] = {
    "integer": 2**70,
    "negative": -1,
    "huge": -(10**4300) + 1,
    "float": 1.0,
    "small": 5e-324,
    "minus zero": -0.0,
    "nan": math.nan,
    "infinite": -math.inf,
    "true": True,
    "false": False,
    "string": '42\n\u00e9\ud800"\\\x00',
    "pair": "\ud83d\ude00",
    "split pair": "".join(["\ud83d", "\ude00"]),
    "looks marked": '{"$bytes": "AP8="}',
    "bytes": b"\x00\xff",
    "none": b"",
    "blob": BlobRef("ab" * 32),
    "spelling": Json("1.10"),
    "exponent": Json("1E+5"),
    "beyond": Json("1e999"),
    "plain number": Json("11"),
    "plain float": Json("1.5"),
    "long number": Json("9." + "9" * 4298),
    "list": [1, "1", 1.5, True, Json("1.50"), Json("1.5"), b"x", BlobRef("cd" * 32)],
    "empty list": [],
    ":odd/ name".replace("/", "|"): "x",
}


def tree(tx: Transaction) -> None:
    tx.set("/", "of the root", 1)
    for path in ("/b", "/a", "/a/z", "/a/y", "/a/y/deep", "/caf\udce9", "/properties", "/properties/child"):
        tx.add(path, {"zeta": 1, "alpha": path, "children": "a property"})
    tx.add("/types", VALUES)
    tx.add("/bare")
    tx.add("/wide")
    for number in range(50):
        tx.add(f"/wide/{number}", {"n": number})


def url_of(path: Path) -> str:
    return f"sqlite:///{path}"


def damage_beside_blobs(url: str) -> list[str]:
    """Return the problems of the integrity check, without missing blobs: JSON contains no blobs."""
    return [one for one in damage(url) if not one.startswith(BLOB_REFERENCE)]


def stored(url: str, path: str = "/") -> dict[str, dict[str, bytes]]:
    """Return all nodes at and below a path, with the bytes of their properties."""
    with connect(url, create=False, poll_interval=0) as repository:
        return {
            node.path: {name: encode(value) for name, value in node.items()} for node in repository.refresh().walk(path)
        }


def head(url: str) -> str:
    with connect(url, create=False, poll_interval=0) as repository:
        return repository.refresh().revision


def bring_in(url: str, source: Path | io.BytesIO, at: str = "/", **options: Any) -> JsonResult:
    return JsonImport(url, source, at, **options).run()

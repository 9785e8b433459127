"""Damage of the ``blobs`` table."""

from __future__ import annotations

import hashlib
import io

from hbasemk.check import problem as kinds
from hbasemk.format import schema
from hbasemk.kernel.blobs import CHUNK, DATA, LENGTH
from tests.support.corruptions.case import Where, case
from tests.support.tables import Tables


def _blob(tables: Tables, path: str, size: int) -> bytes:
    content = (path.encode() * (size // len(path) + 1))[:size]
    return bytes.fromhex(tables.instance.blobs.write(io.BytesIO(content)))


@case(kinds.BLOB_ROW)
def a_blob_row_whose_key_is_not_a_blob_id(tables: Tables, path: str) -> Where:
    tables.put(schema.BLOBS, path.encode(), (DATA, b"what", None))
    return path.encode().hex(), ""


@case(kinds.BLOB_CHUNK)
def a_blob_without_its_last_chunk(tables: Tables, path: str) -> Where:
    key = _blob(tables, path, CHUNK + 5)
    tables.remove(schema.BLOBS, key + b"\0\0\0\x01", DATA)
    return key.hex(), ""


@case(kinds.BLOB_CHUNK)
def a_blob_without_its_first_chunk(tables: Tables, path: str) -> Where:
    key = _blob(tables, path, CHUNK + 6)
    tables.remove(schema.BLOBS, key + b"\0\0\0\0", DATA)
    return key.hex(), ""


@case(kinds.BLOB_LENGTH)
def a_blob_of_another_length(tables: Tables, path: str) -> Where:
    key = _blob(tables, path, 1000)
    tables.put(schema.BLOBS, key, (LENGTH, (999).to_bytes(8, "big"), None))
    return key.hex(), ""


@case(kinds.BLOB_LENGTH)
def a_blob_whose_length_cannot_be_read(tables: Tables, path: str) -> Where:
    key = _blob(tables, path, 1001)
    tables.put(schema.BLOBS, key, (LENGTH, b"many", None))
    return key.hex(), ""


@case(kinds.BLOB_CONTENT)
def a_blob_with_another_content(tables: Tables, path: str) -> Where:
    key = _blob(tables, path, 1002)
    tables.put(schema.BLOBS, key + b"\0\0\0\0", (DATA, b"x" * 1002, None))
    return key.hex(), ""


@case(kinds.UPLOAD, repaired=True)
def an_upload_that_ended_days_ago(tables: Tables, path: str) -> Where:
    key = hashlib.sha256(path.encode()).digest()
    days_ago = tables.now_ms() - 3 * 24 * 3600 * 1000
    for number in range(3):
        tables.put(schema.BLOBS, key + number.to_bytes(4, "big"), (DATA, b"part", days_ago))
    return key.hex(), ""

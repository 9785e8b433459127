"""Copies of the blobs that an exported JSON file refers to, from the repository that it was exported from."""

from __future__ import annotations

from collections.abc import Iterable

from hbasemk.errors import BlobNotFoundError, FormatError
from hbasemk.repository import Repository


def copy_blobs(blobs: Iterable[str], source: Repository, target: Repository) -> int:
    """Copy blobs by their ids, in bounded memory; return their number without those that the source lacks.

    Raises FormatError for a blob whose content in the source has another SHA-256 than its id.
    """
    copied = 0
    for blob in blobs:
        try:
            with source.blobs.open(blob) as content:
                written = target.blobs.write(content).id
        except BlobNotFoundError:
            continue
        if written != blob:
            raise FormatError(
                f"blob {blob} of {source.store.location} has content with the SHA-256 {written}; `hbasemk check --blobs` lists "
                "what is damaged there"
            )
        copied += 1
    return copied

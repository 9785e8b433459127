"""The layout of a new repository's tables in HBase, as users give it: paths and the name of a codec."""

from __future__ import annotations

from collections.abc import Sequence

from hbasemk import arguments
from hbasemk.errors import InvalidValueError
from hbasemk.format import paths, schema
from hbasemk.format.limits import shortened
from hbasemk.store.abc import Store


def lay_out(store: Store, url: str, splits: Sequence[str], compression: str | None) -> None:
    """Let a store on HBase create its tables with this layout; raises InvalidValueError for another store.

    The table of nodes is divided at each path. The table of blobs, whose keys are hashes, is divided into as many equal
    parts. The other tables get one region each: the newest revisions are at one end of the journal, wherever it is divided.
    """
    from hbasemk.store.hbase import HBaseStore, Layout

    at = [paths.key(path) for path in arguments.path_list(splits, "splits")]
    if compression is not None:
        arguments.text(compression, "compression")
    if not isinstance(store, HBaseStore):
        raise InvalidValueError(f"splits and compression are possible on HBase only; leave them out for {url}")
    keys = sorted(set(at) - {paths.key(paths.ROOT)})
    parts = len(keys) + 1
    blobs = [(number * 0x10000 // parts).to_bytes(2, "big") for number in range(1, parts)]
    divided = {schema.NODES: keys, schema.BLOBS: blobs} if keys else {}
    names = {key: f"the hash {key.hex()}" for key in blobs}
    names.update((key, f"the path {shortened(paths.path_of(key))}") for key in keys)
    store.layout = Layout(None if compression is None else compression.upper(), divided, names)

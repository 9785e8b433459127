"""Actions on what is beside the tree: blobs, leases, checkpoints, settings; for crashes at any call."""

from __future__ import annotations

import io
from typing import Any

from hbasemk.format import schema
from hbasemk.kernel import settings
from hbasemk.store.abc import Get
from tests.support.runtime import open_instance
from tests.support.simulation.crashes.sites import Site, tree


def blob(site: Site) -> str:
    return site.acting.blobs.write(io.BytesIO(bytes(range(95))))


def blob_seen(site: Site, instance: Any) -> Any:
    import hashlib

    from hbasemk.errors import BlobNotFoundError

    name = hashlib.sha256(bytes(range(95))).hexdigest()
    try:
        return instance.blobs.read(name) == bytes(range(95))
    except BlobNotFoundError:
        assert instance.blobs._length(bytes.fromhex(name)) is None, "a blob with a length lacks chunks"
        return False


def create(site: Site) -> None:
    site.acting = open_instance(site.steps, site.world, mac=site.mac, seed=9)


def claim(site: Site) -> int:
    site.acting.lease.forget()
    return site.acting.clock.next(0)


def renew(site: Site) -> None:
    site.world.advance(4)
    if not site.acting.lease.held:
        # Another instance has ended it, because it was over.
        site.acting.clock.next(0)
    site.acting.lease.renew()


def settings_seen(_: Site, instance: Any) -> Any:
    found, watermark = settings.read(instance.store)
    assert found is not None
    assert watermark is not None
    row = instance.store.read(schema.JOURNAL, [Get(schema.revision_key(found.root_revision))])[0]
    return tree(instance), bool(row.cells)

"""Actions on checkpoints, for crashes at any call."""

from __future__ import annotations

import contextlib
from typing import Any

from hbasemk.errors import CheckpointError
from hbasemk.kernel import checkpoints
from hbasemk.kernel.commit.change_source import OperationList
from hbasemk.kernel.commit.operations import SetProperty
from tests.support.runtime import START_MS
from tests.support.simulation.crashes.sites import Site, tree

FAR_MS = 10**13
HOURS = 3600


def make(site: Site) -> None:
    """Keep the head."""
    checkpoints.keep(site.acting, site.acting.head(), FAR_MS)


def kept(site: Site) -> checkpoints.Checkpoint:
    """Keep a revision, and commit another one."""
    one = site.open(1)
    made = checkpoints.keep(one, one.head(), START_MS + HOURS * 1000)
    one.commit(lambda _: OperationList([SetProperty("/a", "p", "later")]), "", retry_timeout=1, max_poll_age=0)
    one.close()
    return made


def released(site: Site) -> checkpoints.Checkpoint:
    """Keep a revision and release it, long ago."""
    made = kept(site)
    one = site.open(1)
    checkpoints.release(one, made.revision, made.number)
    one.close()
    site.world.advance(2 * HOURS)
    return made


def expired(site: Site) -> checkpoints.Checkpoint:
    """Keep a revision until long ago."""
    made = kept(site)
    site.world.advance(3 * HOURS)
    return made


def extend(site: Site) -> None:
    checkpoints.extend(site.acting, site.state.revision, site.state.number, FAR_MS)


def release(site: Site) -> None:
    """Release a checkpoint. If an earlier attempt has done it, that is an error."""
    with contextlib.suppress(CheckpointError):
        checkpoints.release(site.acting, site.state.revision, site.state.number)


def keep_again(site: Site) -> None:
    """Keep the revision of a checkpoint that has ended, while its cells are removed."""
    checkpoints.keep(site.acting, site.acting.at(site.state.revision), FAR_MS)


def remove(site: Site) -> None:
    site.acting.checkpoint_cells.remove_expired()
    site.acting.checkpoint_cells.remove_expired()


def any_seen(site: Site, instance: Any) -> Any:
    """Return the tree, and whether there is a checkpoint."""
    return tree(instance), bool(checkpoints.all_of(instance))


def seen(site: Site, instance: Any) -> Any:
    """Return the tree at the revision that is kept, and until when it is. A repeated make is a second entry."""
    made = site.state
    kept_long = {one.until_ms > START_MS + 2 * HOURS * 1000 for one in checkpoints.all_of(instance)}
    instance.poll()
    return tree(instance, instance.at(made.revision)), sorted(kept_long)

"""MicroKernels of a cluster, and what they return as Python values."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from typing import Any

from hbasemk import MicroKernel
from hbasemk.kernel.collection.collector import Collector
from hbasemk.repository import instance_of
from tests.support.repositories import Instances


class Cluster:
    """One or two MicroKernels. Calls go to them in turn, each after a poll, like those of a cluster's clients."""

    def __init__(self, opened: Instances, count: int) -> None:
        self.kernels = [MicroKernel(opened()) for _ in range(count)]
        self._turn = 0

    @property
    def next(self) -> MicroKernel:
        """The next MicroKernel in turn, after a poll."""
        self._turn += 1
        kernel = self.kernels[self._turn % len(self.kernels)]
        kernel.repository.refresh()
        return kernel

    def __getattr__(self, name: str) -> Callable[..., object]:
        return getattr(self.next, name)  # type: ignore[no-any-return]


def nodes(mk: Cluster, path: str, revision_id: str | None = None, depth: int = 99, **more: Any) -> Any:
    text = mk.get_nodes(path, revision_id, depth, **more)
    return None if text is None else json.loads(text)  # type: ignore[arg-type]


def names(found: dict[str, Any]) -> list[str]:
    return [name for name, value in found.items() if isinstance(value, dict)]


def random_change(chance: random.Random, kernel: MicroKernel, number: int, added: str = '{"p":1,"x":{}}') -> str:
    """Commit a random change of a random node at the newest head, and return the revision.

    New nodes have names with ``number``; a node added below another one is ``added``. Large trees shrink.
    """
    existing = [node.path for node in kernel.repository.refresh().walk()]
    path = chance.choice(existing)
    prefix = path.rstrip("/")
    texts = [f'+"{prefix}/n{number}":{added}', f'^"{prefix}/p":{chance.randrange(3)}']
    if path != "/":
        texts += [f'-"{path}"', f'>"{path}":"/m{number}"', f'*"{path}":"/c{number}"', f'-"{path}" +"{path}":{{}}']
    if len(existing) > 40:
        texts = [f'-"{chance.choice(existing[1:])}"']
    return kernel.commit("", chance.choice(texts))


def collect_after(kernel: MicroKernel, *changes: str) -> list[str]:
    """Commit each change some time after the one before, and collect; return the revisions. The horizon is then among them."""
    made = []
    for change in changes:
        time.sleep(0.1)
        made.append(kernel.commit("", change))
    Collector(instance_of(kernel.repository)).run(1)
    return made

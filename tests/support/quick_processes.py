"""Quick starts of processes: forks of a server that has imported the package, instead of new interpreters.

A new interpreter takes a quarter of a second of CPU for its imports; hundreds of tests start several. The commands that
tests run as users do (``python -m hbasemk``) still start their processes as the package says.
"""

from __future__ import annotations

import multiprocessing
import os
from multiprocessing.context import ForkServerContext, ForkServerProcess
from typing import Any

PRELOADED = [
    "benchmarks.workers",
    "hbasemk.store.hbase",
    "hbasemk.store.sqlite",
    "hbasemk.transfer.files.worker",
    "tests.support.adjusting",
    "tests.support.benchmarks",
    "tests.support.hammer",
    "tests.support.killed",
    "tests.support.shifted_clocks",
]

usual_context = multiprocessing.get_context
"""The function that :func:`get_context` replaces."""


class _Process(ForkServerProcess):
    """A fork of the server that has the environment variables of its parent, as a new interpreter would."""

    _environment: dict[str, str]

    def start(self) -> None:
        self._environment = dict(os.environ)
        super().start()

    def run(self) -> None:
        os.environ.clear()
        os.environ.update(self._environment)
        super().run()


class _Context(ForkServerContext):
    Process = _Process


def quick_context() -> ForkServerContext:
    """Return the context whose processes are forks of this process's server, which the first of them starts."""
    context = _Context()
    context.set_forkserver_preload(PRELOADED)
    return context


def get_context(method: str | None = None) -> Any:
    """Return that context in place of the one for ``spawn``; as :func:`multiprocessing.get_context`."""
    return quick_context() if method == "spawn" else usual_context(method)

"""Repositories for tests: several instances on one store, all closed and checked at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from hbasemk import Repository
from hbasemk.kernel.integrity import IntegrityCheck
from hbasemk.store.abc import Store


def problems(repository: Repository) -> list[str]:
    """What the integrity check finds in a repository, in words."""
    return [str(problem) for problem in IntegrityCheck(repository.instance).run()]


def tree(repository: Repository) -> dict[str, dict[str, Any]]:
    """The whole tree at head after a poll: properties by path."""
    return {node.path: dict(node) for node in repository.refresh().walk()}


class Instances:
    """Opens instances on stores and remembers them."""

    def __init__(self, new_store: Callable[[], Store]) -> None:
        self.new_store = new_store
        self._opened: list[Repository] = []

    def __call__(self, store: Store | None = None, **options: Any) -> Repository:
        """One more instance; without background polling unless asked for."""
        options.setdefault("poll_interval", 0)
        repository = Repository(store or self.new_store(), **options)
        self._opened.append(repository)
        return repository

    def finish(self) -> None:
        """Check the integrity through a fresh instance, then close all."""
        for repository in self._opened:
            repository.close()
        if self._opened:
            with Repository(self.new_store(), poll_interval=0) as fresh:
                found = problems(fresh)
            assert found == []


@contextmanager
def instances(new_store: Callable[[], Store]) -> Iterator[Instances]:
    """Instances whose repository is checked when the test ends without an error."""
    made = Instances(new_store)
    yield made
    made.finish()

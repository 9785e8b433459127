"""The registry of systems under test: the store, the role and the required packages of each."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from benchmarks.system import System

Store: TypeAlias = Literal["sqlite", "hbase"]
Role: TypeAlias = Literal["hbasemk", "baseline", "peer"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One system under test.

    ``key`` is its name in options and results, and ``target`` is ``module:Class``. ``multiprocess`` says whether several
    processes can share one tree; ``single_process`` says whether the scenarios of one process include it. ``needs`` lists
    the required packages.
    """

    key: str
    store: Store
    role: Role
    target: str
    multiprocess: bool = True
    single_process: bool = True
    needs: tuple[str, ...] = ()

    def load(self) -> type[System]:
        """Import and return the class. Raises MissingPackageError if a required package is not installed."""
        module, _, name = self.target.partition(":")
        try:
            found: type[System] = getattr(importlib.import_module(module), name)
        except ImportError as error:
            raise MissingPackageError(f"{self.key} needs {', '.join(self.needs) or module} ({error})") from error
        assert issubclass(found, System)
        return found

    def create(self, place: str) -> System:
        """Create a tree at a place. A creation that fails or is interrupted leaves nothing."""
        with self.removed_on_failure(place):
            return self.load().create(place)

    @contextmanager
    def removed_on_failure(self, place: str) -> Iterator[None]:
        """Remove the tree at a place if the block fails or is interrupted. With NotImplementedError it has made none."""
        try:
            yield
        except NotImplementedError:
            raise
        except BaseException:
            self.load().remove(place)
            raise


class MissingPackageError(ImportError):
    """A package that a system under test requires is not installed."""


_SYSTEMS: Final = "benchmarks.systems."
_PEERS: Final = "benchmarks.peers."

ENTRIES: Final = (
    Entry("hbasemk", "sqlite", "hbasemk", f"{_SYSTEMS}hbasemk:EmbeddedHbasemk"),
    Entry("baseline", "sqlite", "baseline", f"{_SYSTEMS}sqlite_baseline:PlainSqlite"),
    Entry("zodb", "sqlite", "peer", f"{_PEERS}zodb:FileStorageSystem", multiprocess=False, needs=("ZODB",)),
    Entry("relstorage", "sqlite", "peer", f"{_PEERS}relstorage:RelStorageSystem", needs=("ZODB", "RelStorage")),
    Entry("zeo", "sqlite", "peer", f"{_PEERS}zeo:ZeoSystem", single_process=False, needs=("ZODB", "ZEO")),
    Entry("hbasemk", "hbase", "hbasemk", f"{_SYSTEMS}hbasemk:DistributedHbasemk"),
    Entry("baseline", "hbase", "baseline", f"{_SYSTEMS}hbase_baseline:RawThrift2"),
    Entry(
        "published_2013", "hbase", "peer", f"{_PEERS}published_2013:Published2013Thrift2System", needs=("happybase",)
    ),
    Entry(
        "published_2013_happybase",
        "hbase",
        "peer",
        f"{_PEERS}published_2013:Published2013Thrift1System",
        needs=("happybase",),
    ),
)


def entries(store: Store) -> list[Entry]:
    """Return the systems of one store, hbasemk first."""
    return [entry for entry in ENTRIES if entry.store == store]

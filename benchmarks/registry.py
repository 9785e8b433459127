"""The systems by name: which store they belong to, what part they play, and what has to be installed for them."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from benchmarks.system import System

Store: TypeAlias = Literal["sqlite", "hbase"]
Role: TypeAlias = Literal["ours", "floor", "peer"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One system: ``key`` names it in options and results, ``target`` is ``module:Class``.

    ``several`` tells whether several processes can use it; ``alone``, whether it is worth a comparison in a single one.
    ``needs`` are the packages it takes.
    """

    key: str
    store: Store
    role: Role
    target: str
    several: bool = True
    alone: bool = True
    needs: tuple[str, ...] = ()

    def load(self) -> type[System]:
        """The class; raises MissingPackageError when a package that it needs is not installed."""
        module, _, name = self.target.partition(":")
        try:
            found: type[System] = getattr(importlib.import_module(module), name)
        except ImportError as error:
            raise MissingPackageError(f"{self.key} needs {', '.join(self.needs) or module} ({error})") from error
        assert issubclass(found, System)
        return found


class MissingPackageError(ImportError):
    """A system under test is not installed."""


_SYSTEMS: Final = "benchmarks.systems."
_PEERS: Final = "benchmarks.peers."

ENTRIES: Final = (
    Entry("hbasemk", "sqlite", "ours", f"{_SYSTEMS}hbasemk:EmbeddedHbasemk"),
    Entry("floor", "sqlite", "floor", f"{_SYSTEMS}sqlite_baseline:PlainSqlite"),
    Entry("zodb", "sqlite", "peer", f"{_PEERS}zodb:FileStorageSystem", several=False, needs=("ZODB",)),
    Entry("relstorage", "sqlite", "peer", f"{_PEERS}relstorage:RelStorageSystem", needs=("ZODB", "RelStorage")),
    Entry("zeo", "sqlite", "peer", f"{_PEERS}zeo:ZeoSystem", alone=False, needs=("ZODB", "ZEO")),
    Entry("hbasemk", "hbase", "ours", f"{_SYSTEMS}hbasemk:DistributedHbasemk"),
    Entry("floor", "hbase", "floor", f"{_SYSTEMS}hbase_baseline:RawThrift2"),
    Entry("literal", "hbase", "peer", f"{_PEERS}published_2013:LiteralThrift2System", needs=("happybase",)),
    Entry("literal-happybase", "hbase", "peer", f"{_PEERS}published_2013:LiteralSystem", needs=("happybase",)),
)


def entries(store: Store) -> list[Entry]:
    """Those of one store, ours first."""
    return [entry for entry in ENTRIES if entry.store == store]

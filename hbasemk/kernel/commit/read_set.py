"""What a serializable transaction read, so that step 7 of the protocol can read it back as well.

A node that was read counts with all its properties and its existence, a node whose children were listed with the whole
range of its child columns and its existence; so what was found absent counts too.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hbasemk.format import paths, schema
from hbasemk.store.abc import ALL_VERSIONS, Column, Get


@dataclass(slots=True)
class ReadSet:
    """The paths of the nodes read, and of those whose children were listed, each once."""

    nodes: dict[str, None] = field(default_factory=dict)
    lists: dict[str, None] = field(default_factory=dict)

    def node(self, path: str) -> None:
        """A node's properties were read, or that it does not exist."""
        self.nodes[path] = None

    def children(self, path: str) -> None:
        """A node's children were listed."""
        self.lists[path] = None

    def __bool__(self) -> bool:
        return bool(self.nodes or self.lists)

    def gets(self, since: int) -> list[Get]:
        """What to read back: every version from ``since`` up, one get a node."""
        return [
            Get(
                paths.key(path),
                families=(schema.DATA, schema.CHILDREN) if path in self.lists else (schema.DATA,),
                since=since,
                versions=ALL_VERSIONS,
            )
            for path in {**self.nodes, **self.lists}
        ]

    def depends_on(self, path: str, column: Column) -> bool:
        """Whether a version in this column changes what was read of a node."""
        if column[0] == schema.CHILDREN:
            return True
        return column == schema.DELETED or (path in self.nodes and column != schema.LAST_REVISION)

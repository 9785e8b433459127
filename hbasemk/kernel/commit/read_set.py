"""The read set of a serializable transaction, and of expected versions, which step 7 of the protocol reads back.

Reading a node depends on all its properties and its existence. Listing children depends on the whole range of child
columns and the node's existence. So a node or child that was found absent counts too.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hbasemk.format import paths, schema
from hbasemk.store.abc import ALL_VERSIONS, Column, Get


@dataclass(slots=True)
class ReadSet:
    """The paths of the nodes that were read, and of the nodes whose children were listed."""

    nodes: dict[str, None] = field(default_factory=dict)
    lists: dict[str, None] = field(default_factory=dict)

    def node(self, path: str) -> None:
        """Record that a node's properties or its absence were read."""
        self.nodes[path] = None

    def children(self, path: str) -> None:
        """Record that a node's children were listed."""
        self.lists[path] = None

    def __bool__(self) -> bool:
        return bool(self.nodes or self.lists)

    def gets(self, since: int) -> list[Get]:
        """Return the gets of the read-back: every version from ``since`` up, one get per node."""
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
        """Return whether a version in this column changes what was read of a node."""
        if column[0] == schema.CHILDREN:
            return True
        return column == schema.DELETED or (path in self.nodes and column != schema.LAST_REVISION)

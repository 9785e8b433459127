"""One node of a change set: its state in the view, and what the operations of a commit make of it."""

from __future__ import annotations

from hbasemk.format.node import NodeState


class StagedNode:
    """A node after the operations so far.

    ``base`` is its state in the view. ``is_new`` says that its life began in this staging. ``written`` holds the
    properties written (None: removed), ``child_writes`` the child columns written (False: removed), ``staged_children``
    the staged nodes right below. ``repeated`` holds the properties that were set to the value of the view, and
    ``withdrawn`` the children that were added and removed again; a commit does not write these but depends on them.
    """

    __slots__ = (
        "base",
        "child_writes",
        "exists",
        "is_new",
        "loaded",
        "path",
        "repeated",
        "staged_children",
        "withdrawn",
        "written",
    )

    def __init__(self, path: str, base: NodeState | None) -> None:
        self.path = path
        self.base = base
        self.exists = base is not None
        self.is_new = False
        self.loaded = False
        self.written: dict[str, bytes | None] = {}
        self.child_writes: dict[str, bool] = {}
        self.staged_children: dict[str, StagedNode] = {}
        # None to save memory: most nodes of a large commit need neither.
        self.repeated: dict[str, None] | None = None
        self.withdrawn: dict[str, None] | None = None

    def encoded(self, name: str) -> bytes | None:
        """Return the encoded value of a property, or None if the node does not have it."""
        if name in self.written:
            return self.written[name]
        return self.base.encoded.get(name) if self.base and not self.is_new else None

    def all_encoded(self) -> dict[str, bytes]:
        """Return the encoded values of all properties."""
        found = dict(self.base.encoded) if self.base and not self.is_new else {}
        for name, data in self.written.items():
            if data is None:
                found.pop(name, None)
            else:
                found[name] = data
        return found

    def write(self, name: str, data: bytes | None) -> None:
        """Set a property (None: remove it). Setting the view's value writes nothing, but depends on that value."""
        before = self.base.encoded.get(name) if self.base and not self.is_new else None
        if data == before:
            self.written.pop(name, None)
            if self.repeated is None:
                self.repeated = {}
            self.repeated[name] = None
        else:
            self.written[name] = data

    @property
    def dirty(self) -> bool:
        """Whether the node differs from the view."""
        return self.exists != (self.base is not None) or self.is_new or bool(self.written) or bool(self.child_writes)

    @property
    def depends_on_base(self) -> bool:
        """Whether a change without effect depends on this node's state in the view."""
        return bool(self.repeated or self.withdrawn) and self.exists and self.base is not None and not self.is_new

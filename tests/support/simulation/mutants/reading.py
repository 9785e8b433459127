"""Reads and caches (section 3)."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from hbasemk.format import node, schema
from hbasemk.format.changes import CHANGED, RowChange
from hbasemk.kernel.reading import kept_walks, reader, walk
from hbasemk.kernel.reading.cache import NodeCache
from hbasemk.kernel.reading.changed_lists import ChangedLists
from hbasemk.kernel.reading.kept_walks import KeptWalks
from hbasemk.kernel.reading.visible_cells import VisibleCells


def cache_not_invalidated(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(NodeCache, "arrived", lambda *_: None)


def invisible_versions_hide_older_ones(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(VisibleCells, "_read_deeper", lambda *_: None)


def an_earlier_life_shows(patch: pytest.MonkeyPatch) -> None:
    original = node.from_cells

    def from_cells(path: str, cells: Any) -> Any:
        found = list(cells)
        lives = [cell for cell in found if cell.qualifier == schema.DELETED[1]]
        return original(path, [*(cell._replace(timestamp=1) for cell in lives), *(c for c in found if c not in lives)])

    for module in (reader, walk):
        patch.setattr(module, "from_cells", from_cells)


def own_states_cached_despite_arrivals_between(patch: pytest.MonkeyPatch) -> None:
    arrived = NodeCache.arrived

    def keep(self: NodeCache, arrivals: Any) -> None:
        arrived(self, [one._replace(built_on=one.position) for one in arrivals])

    patch.setattr(NodeCache, "arrived", keep)


def cache_sees(patch: pytest.MonkeyPatch, altered: Callable[[RowChange], RowChange]) -> None:
    """Let the cache see other changes than those that arrive."""
    arrived = NodeCache.arrived

    def see(self: NodeCache, arrivals: Any) -> None:
        arrived(self, [one._replace(changes=[altered(change) for change in one.changes]) for one in arrivals])

    patch.setattr(NodeCache, "arrived", see)


def a_child_list_kept_although_a_child_was_added(patch: pytest.MonkeyPatch) -> None:
    cache_sees(patch, lambda one: one._replace(children_added=()) if one.kind == CHANGED else one)


def a_child_list_kept_although_a_child_was_removed(patch: pytest.MonkeyPatch) -> None:
    cache_sees(patch, lambda one: one._replace(children_removed=()) if one.kind == CHANGED else one)


def a_child_list_kept_although_its_node_was_replaced(patch: pytest.MonkeyPatch) -> None:
    # The arrival of a new node lists its children as added, too.
    cache_sees(patch, lambda one: one._replace(kind=CHANGED, children_added=(), children_removed=()))


def a_changed_child_list_shown_in_older_views(patch: pytest.MonkeyPatch) -> None:
    take = ChangedLists.take
    patch.setattr(ChangedLists, "take", lambda *one: take(*one)._replace(position=-1))


def only_the_last_change_of_a_child_list_applied(patch: pytest.MonkeyPatch) -> None:
    change = ChangedLists.change

    def change_anew(self: ChangedLists, path: str, position: int, added: Any, removed: Any) -> None:
        if path in self._kept:
            self._kept[path].changed.clear()
        change(self, path, position, added, removed)

    patch.setattr(ChangedLists, "change", change_anew)


def a_changed_child_list_kept_although_its_node_was_replaced(patch: pytest.MonkeyPatch) -> None:
    arrived = NodeCache.arrived

    def keep(self: NodeCache, arrivals: Any) -> None:
        kept = dict(self._changed._kept)
        arrived(self, arrivals)
        for path in kept.keys() - self._changed._kept.keys():
            self._changed._kept[path] = kept[path]

    patch.setattr(NodeCache, "arrived", keep)


def a_walk_kept_despite_arrivals(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(KeptWalks, "arrived", lambda *_: None)


def a_walk_kept_although_a_node_below_was_touched(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(kept_walks, "paths", SimpleNamespace(with_ancestors=iter))


def a_walk_in_an_old_view_kept_as_current(patch: pytest.MonkeyPatch) -> None:
    keep = KeptWalks.keep

    def keep_any(self: KeptWalks, *walk: Any) -> None:
        last, self._last_arrival = self._last_arrival, -1
        try:
            keep(self, *walk)
        finally:
            self._last_arrival = last

    patch.setattr(KeptWalks, "keep", keep_any)


def reads_at_an_old_position_cached_as_current(patch: pytest.MonkeyPatch) -> None:
    put_all = NodeCache.put_all

    def put(self: NodeCache, view: Any, found: Any) -> int:
        touched, self._touched = self._touched, {}
        try:
            return put_all(self, view, found)
        finally:
            self._touched = touched

    patch.setattr(NodeCache, "put_all", put)


def a_state_of_one_view_cached_for_all_old_views(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("hbasemk.kernel.reading.cache._key_in_view", lambda path, number: (number >= -1, path))

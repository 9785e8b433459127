"""An interruption of the close of a handle on a named store changes nothing for the other handles."""

from __future__ import annotations

import pytest

from hbasemk.errors import StoreUnusableError
from hbasemk.store.abc import ALL_VERSIONS, Table
from hbasemk.store.named_memory import NamedStore, NamedStores
from tests.support.interrupting import interrupted_at, place, points_of

TABLE = Table("t", (b"d",), ALL_VERSIONS)


def two_handles() -> tuple[NamedStores, NamedStore, NamedStore]:
    stores = NamedStores()
    first, second = stores.open("name"), stores.open("name")
    first.create_tables([TABLE])
    return stores, first, second


@pytest.mark.parametrize("closed_before", [0, 1])
def test_an_interruption_of_a_close_changes_nothing_for_other_handles(closed_before: int) -> None:
    def before() -> tuple[NamedStores, NamedStore, NamedStore]:
        stores, *handles = two_handles()
        if closed_before:
            handles.pop().close()
        return stores, handles[0], handles[-1]

    points = points_of(before()[1].close)
    assert len(points) > 3
    for point in points:
        stores, handle, other = before()
        assert interrupted_at(point, handle.close), place(point)
        handle.close()
        if not closed_before:
            third = stores.open("name")
            third.verify([TABLE])
            third.close()
            other.verify([TABLE])
            other.close()
        with pytest.raises(StoreUnusableError):
            stores.open("name").verify([TABLE])

"""Tests of what a store reports about itself: its limits, its files, and calls that change no data."""

from __future__ import annotations

import os

from hbasemk.store.abc import Store
from hbasemk.testing.store.base import Base, Tables, put, values

UNCHANGING = (
    "limits",
    "batch_rows",
    "batch_bytes",
    "supports_joint_calls",
    "supports_parallel_calls",
    "supports_transactions",
)


class Properties(Base):
    """Tests of the calls that read and write no cells."""

    def test_a_store_reports_its_location_and_limits(self, store: Store) -> None:
        assert store.location
        assert min(store.batch_rows, store.batch_bytes) >= 1
        limits = store.limits
        assert limits.row_key >= 1
        assert 1 <= limits.surely <= limits.cell <= limits.together

    def test_properties_never_change(self, store: Store, handles: list[Store]) -> None:
        found = [[getattr(handle, name) for name in UNCHANGING] for handle in (store, *handles)]
        assert all(one == found[0] for one in found)

    def test_the_files_of_a_store_have_the_reported_identities(self, store: Store) -> None:
        for identity, path in store.files().items():
            found = os.stat(path)
            assert (found.st_dev, found.st_ino) == identity

    def test_space_is_given_back_without_a_loss(self, store: Store, tables: Tables, row: bytes) -> None:
        store.write(tables.many.name, [put(row + b"%d" % number, {b"q": bytes(10_000)}, 1) for number in range(20)])
        store.delete_rows(tables.many.name, [row + b"%d" % number for number in range(1, 20)])
        turns = 0
        while store.give_back_space():
            turns += 1
            assert turns < 10_000, "there is always more space to give back"
        assert values(store, tables.many, row + b"0") == {b"q": bytes(10_000)}

    def test_a_store_has_data_whether_it_gives_way_or_not(self, store: Store, tables: Tables, row: bytes) -> None:
        store.write(tables.many.name, [put(row, {b"q": b"1"}, 1)])
        assert store.give_way(0.0) in {False, True}
        assert values(store, tables.many, row) == {b"q": b"1"}

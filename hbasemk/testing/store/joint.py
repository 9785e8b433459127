"""Tests of two compare-and-sets at the same time, for stores that support joint calls."""

from __future__ import annotations

import pytest

from hbasemk.errors import ClosedError, StoreUnusableError
from hbasemk.store.abc import CheckAndWrite, Store
from hbasemk.testing.store.base import FLAG, Base, OpenStore, Tables, put, values


class JointCalls(Base):
    """Tests of ``check_and_write_both``; a store without joint calls skips them."""

    @pytest.fixture(autouse=True)
    def _joins(self, request: pytest.FixtureRequest, store: Store) -> None:
        if "at_the_same_time" in request.node.name and not store.supports_joint_calls:
            pytest.skip("this store does not support joint calls")

    def test_two_sets_at_the_same_time_have_an_answer_each(self, store: Store, tables: Tables, row: bytes) -> None:
        one, many = row + b"one", row + b"many"
        first = CheckAndWrite(tables.one.name, FLAG, None, put(one, {b"flag": b"1"}))
        second = CheckAndWrite(tables.many.name, FLAG, b"2", put(many, {b"flag": b"3"}))
        assert store.check_and_write_both(first, second) == (True, False)
        assert store.check_and_write_both(first, second._replace(expected=None)) == (False, True)
        assert values(store, tables.one, one) == {b"flag": b"1"}
        assert values(store, tables.many, many) == {b"flag": b"3"}

    def test_one_of_two_sets_at_the_same_time_may_name_a_missing_table(
        self, store: Store, tables: Tables, row: bytes
    ) -> None:
        good = CheckAndWrite(tables.one.name, FLAG, None, put(row, {b"flag": b"1"}))
        unusable = good._replace(table="none")
        applied, failed = store.check_and_write_both(good, unusable)
        assert applied is True
        assert isinstance(failed, StoreUnusableError)
        failed, applied = store.check_and_write_both(unusable, good._replace(expected=b"1"))
        assert isinstance(failed, StoreUnusableError)
        assert applied is True
        assert values(store, tables.one, row) == {b"flag": b"1"}

    def test_one_of_two_sets_of_one_column_at_the_same_time_wins(
        self, store: Store, tables: Tables, row: bytes
    ) -> None:
        first = CheckAndWrite(tables.one.name, FLAG, None, put(row, {b"flag": b"1"}))
        second = first._replace(put=put(row, {b"flag": b"2"}))
        answers = store.check_and_write_both(first, second)
        assert answers in {(True, False), (False, True)}
        assert values(store, tables.one, row) == {b"flag": b"1" if answers[0] else b"2"}

    def test_two_sets_at_the_same_time_on_a_closed_store_both_fail(
        self, open_store: OpenStore, tables: Tables, row: bytes
    ) -> None:
        closed = open_store()
        closed.verify(tables)
        closed.close()
        one = CheckAndWrite(tables.one.name, FLAG, None, put(row, {b"flag": b"1"}))
        try:
            answers = closed.check_and_write_both(one, one)
        except ClosedError:
            return
        assert [type(answer) for answer in answers] == [ClosedError, ClosedError]

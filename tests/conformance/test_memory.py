"""The memory store and named memory stores pass the conformance suite."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest

from hbasemk.store.abc import Store
from hbasemk.store.memory import MemoryStore
from hbasemk.store.named_memory import NamedStores
from hbasemk.testing.store import OpenStore, StoreConformance, Tables
from tests.support.naive_store import NaiveStore
from tests.support.proof import PROOF


class TestMemory(StoreConformance):
    MODEL = NaiveStore
    EXAMPLES = 50

    @pytest.fixture(scope="class")
    @classmethod
    def open_store(cls) -> Iterator[OpenStore]:
        # A shallow copy shares cells and lock, and is closed separately: one more handle.
        shared = MemoryStore(transactions=True)
        yield lambda: copy.copy(shared)
        shared.close()


class TestNamed(StoreConformance):
    MODEL = NaiveStore

    @pytest.fixture(scope="class")
    @classmethod
    def open_store(cls) -> Iterator[OpenStore]:
        stores = NamedStores()
        kept = stores.open("name")
        yield lambda: stores.open("name")
        kept.close()

    @PROOF  # with more examples; the sample is TestMemory's: both are the same store
    def test_random_calls_return_the_answers_of_the_memory_store(
        self, handles: list[Store], tables: Tables, row: bytes
    ) -> None:
        super().test_random_calls_return_the_answers_of_the_memory_store(handles, tables, row)

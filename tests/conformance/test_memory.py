"""The memory store and named memory stores pass the conformance suite."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest

from hbasemk.store.memory import MemoryStore, NamedStores
from hbasemk.testing.store import OpenStore, StoreConformance
from tests.conformance.naive import NaiveStore


class TestMemory(StoreConformance):
    MODEL = NaiveStore

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

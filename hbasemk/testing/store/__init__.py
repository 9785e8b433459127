"""The conformance suite for stores: subclass :class:`StoreConformance`, give it a fixture, and run pytest.

A new store's test class is its ``open_store`` fixture and nothing else::

    class TestMyStore(StoreConformance):
        @pytest.fixture(scope="class")
        @classmethod
        def open_store(cls):
            yield lambda: MyStore(...)   # each call: one more handle on the same data

It needs the ``testing`` extra. Nothing of the contract in ``hbasemk.store.abc`` is left out, and nothing is tested
that the contract leaves open.
"""

import pytest

pytest.register_assert_rewrite(
    *(f"{__name__}.{part}" for part in ["base", "bounds", "cells", "compare", "concurrency"]),
    *(f"{__name__}.{part}" for part in ["machine", "scans", "schema", "transactions", "wide"]),
)

from hbasemk.testing.store.base import OpenStore, Tables  # noqa: E402
from hbasemk.testing.store.suite import StoreConformance  # noqa: E402

__all__ = ["OpenStore", "StoreConformance", "Tables"]

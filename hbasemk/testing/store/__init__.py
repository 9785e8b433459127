"""The conformance suite for stores: subclass :class:`StoreConformance`, provide a fixture, and run pytest.

The test class of a new store consists of its ``open_store`` fixture::

    class TestMyStore(StoreConformance):
        @pytest.fixture(scope="class")
        @classmethod
        def open_store(cls):
            yield lambda: MyStore(...)   # each call opens one more handle on the same data

The suite needs the ``testing`` extra. It tests the whole contract in ``hbasemk.store.abc``, and nothing that the
contract leaves open.
"""

import pytest

pytest.register_assert_rewrite(
    *(f"{__name__}.{part}" for part in ["base", "bounds", "cells", "changes", "compare", "concurrency"]),
    *(f"{__name__}.{part}" for part in ["machine", "scans", "schema", "transactions", "wide"]),
)

from hbasemk.testing.store.base import OpenStore, Tables  # noqa: E402
from hbasemk.testing.store.suite import StoreConformance  # noqa: E402

__all__ = ["OpenStore", "StoreConformance", "Tables"]

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

import pkgutil

try:
    import hypothesis  # noqa: F401
    import pytest
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"hbasemk.testing.store needs {error.name}; install it with: pip install 'hbasemk[testing]'", name=error.name
    ) from error

pytest.register_assert_rewrite(*(f"{__name__}.{module.name}" for module in pkgutil.iter_modules(__path__)))

from hbasemk.testing.store.base import OpenStore, Tables  # noqa: E402
from hbasemk.testing.store.suite import StoreConformance  # noqa: E402

__all__ = ["OpenStore", "StoreConformance", "Tables"]

"""The complete suite, assembled from its parts."""

from __future__ import annotations

from hbasemk.testing.store.alike import AlikeRows
from hbasemk.testing.store.arrivals import OrderOfWrites
from hbasemk.testing.store.bounds import Bounds
from hbasemk.testing.store.cells import Cells
from hbasemk.testing.store.changes import Changes
from hbasemk.testing.store.compare import CompareAndSet
from hbasemk.testing.store.concurrency import Concurrency
from hbasemk.testing.store.isolation import Isolation
from hbasemk.testing.store.joint import JointCalls
from hbasemk.testing.store.machine import Model
from hbasemk.testing.store.one_version import OneVersion
from hbasemk.testing.store.other_tables import OtherTables
from hbasemk.testing.store.properties import Properties
from hbasemk.testing.store.same_values import SameValues
from hbasemk.testing.store.scans import Scans
from hbasemk.testing.store.schema import Schema
from hbasemk.testing.store.server_time import ServerTime
from hbasemk.testing.store.transactions import Transactions
from hbasemk.testing.store.wide import Wide


class StoreConformance(
    Cells,
    OneVersion,
    ServerTime,
    CompareAndSet,
    JointCalls,
    Transactions,
    OtherTables,
    Isolation,
    OrderOfWrites,
    Changes,
    Scans,
    Wide,
    AlikeRows,
    SameValues,
    Bounds,
    Properties,
    Schema,
    Concurrency,
    Model,
):
    """Tests that every store must pass. A subclass provides the fixture ``open_store``; see the package's docstring."""

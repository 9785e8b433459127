"""The workloads of a history: small transactions that often conflict, on a few nodes for each workload.

Each workload has a folder of its own, so that any number of them can run in one repository at the same time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from hbasemk.testing.history.anomalies import Anomaly
from hbasemk.testing.history.records import History
from hbasemk.testing.history.workloads.accounts import Bank, Skew
from hbasemk.testing.history.workloads.compare_and_set import Versions
from hbasemk.testing.history.workloads.nodes import Children, Phantoms, Subtrees
from hbasemk.testing.history.workloads.numbers import Adjusts, Counters, Ledger
from hbasemk.testing.history.workloads.registers import Lists, Registers
from hbasemk.testing.history.workloads.workload import Workload

ORDINARY: Final = (Registers(), Lists(), Bank(), Counters(), Children(), Subtrees(), Versions())
SERIAL: Final = (Skew(), Phantoms())
ADJUSTING: Final = (Adjusts(), Ledger())
WORKLOADS: Final[Mapping[str, Workload]] = {one.name: one for one in (*ORDINARY, *SERIAL, *ADJUSTING)}


def violations(history: History) -> list[Anomaly]:
    """Return the violations of the rules of all workloads."""
    return [anomaly for workload in WORKLOADS.values() for anomaly in workload.violations(history)]

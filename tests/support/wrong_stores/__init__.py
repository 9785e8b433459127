"""Stores that each break one promise of the contract, and the tests of the conformance suite that must find them.

Each is the memory store with a defect. Those that would fail only in a race wait until the race has happened.
"""

from tests.support.wrong_stores import joint_calls, order_of_writes, reads, reports, transactions
from tests.support.wrong_stores.finding import FINDINGS, Finding

__all__ = ["FINDINGS", "Finding", "joint_calls", "order_of_writes", "reads", "reports", "transactions"]

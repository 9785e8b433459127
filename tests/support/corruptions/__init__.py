"""Every kind of damage that the integrity check knows, done on purpose by one function each.

A function damages the tables at its own node. It returns the path and the revision that the problem must name.
"""

from tests.support.corruptions import blobs, cluster, journal, nodes
from tests.support.corruptions.case import CASES

__all__ = ["CASES", "blobs", "cluster", "journal", "nodes"]

"""The integrity check: every invariant that can be seen from the tables, in bounded memory; and repair.

``IntegrityCheck`` finds problems. ``Repair`` repairs those that can be repaired without losing committed data.
"""

from hbasemk.check.check import IntegrityCheck, check_unopened
from hbasemk.check.problem import DAMAGE, LEFTOVER, NOTE, Problem
from hbasemk.check.repair import Repair
from hbasemk.check.workers import Workers

__all__ = ["DAMAGE", "LEFTOVER", "NOTE", "IntegrityCheck", "Problem", "Repair", "Workers", "check_unopened"]

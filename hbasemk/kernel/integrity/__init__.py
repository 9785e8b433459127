"""The integrity check: every invariant that can be seen from the tables, in one pass and bounded memory; and its repair.

``IntegrityCheck`` finds problems, ``Repair`` mends those of them that can be mended without losing anything that was
committed, ``recover`` ends what dead writers left.
"""

from hbasemk.kernel.integrity.check import IntegrityCheck, check_unopened
from hbasemk.kernel.integrity.problem import DAMAGE, LEFTOVER, NOTE, Problem

__all__ = ["DAMAGE", "LEFTOVER", "NOTE", "IntegrityCheck", "Problem", "check_unopened"]

"""The integrity check: every invariant that can be seen from the tables, in one pass and bounded memory; and its repair.

``IntegrityCheck`` finds problems, ``Repair`` mends those of them that can be mended without losing anything that was
committed, ``recover`` ends what dead writers left.
"""

from hbasemk.check.check import IntegrityCheck, check_unopened
from hbasemk.check.problem import DAMAGE, LEFTOVER, NOTE, Problem
from hbasemk.check.recover import Ended, recover
from hbasemk.check.repair import Repair

__all__ = ["DAMAGE", "LEFTOVER", "NOTE", "Ended", "IntegrityCheck", "Problem", "Repair", "check_unopened", "recover"]

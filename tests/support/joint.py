"""A store that makes two compare-and-sets at the same time, as HBase does."""

from __future__ import annotations

from hbasemk.store.abc import CheckAndWrite
from hbasemk.testing.wrapped import FaultyStore


class JointStore(FaultyStore):
    """Makes both calls one after the other; each may fail on purpose, and the other one is made all the same."""

    @property
    def supports_joint_calls(self) -> bool:
        return True

    def check_and_write_both(
        self, first: CheckAndWrite, second: CheckAndWrite
    ) -> tuple[bool | Exception, bool | Exception]:
        return self._attempt(first), self._attempt(second)

    def _attempt(self, check: CheckAndWrite) -> bool | Exception:
        try:
            return self.check_and_write(*check)
        except Exception as error:
            return error

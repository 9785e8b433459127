"""Stores without transactions whose joint calls are wrong."""

from __future__ import annotations

from hbasemk.errors import StoreUnusableError
from hbasemk.store.abc import (
    CheckAndWrite,
)
from hbasemk.store.memory import MemoryStore
from tests.support.wrong_stores.finding import Right, found_by


class RightWithJointCalls(Right):
    """A correct store without transactions that supports joint calls."""

    supports_joint_calls = True

    def __init__(self) -> None:
        MemoryStore.__init__(self)

    def check_and_write_both(
        self, first: CheckAndWrite, second: CheckAndWrite
    ) -> tuple[bool | Exception, bool | Exception]:
        answers: list[bool | Exception] = []
        for one in (first, second):
            try:
                answers.append(self.check_and_write(*one))
            except StoreUnusableError as error:
                answers.append(error)
        return answers[0], answers[1]


@found_by("one_of_two_sets_of_one_column_at_the_same_time_wins")
class AppliesBothSets(RightWithJointCalls):
    def check_and_write_both(
        self, first: CheckAndWrite, second: CheckAndWrite
    ) -> tuple[bool | Exception, bool | Exception]:
        answer = self.check_and_write(*first)
        self.write(second.table, [second.put])
        return answer, answer


@found_by("two_sets_at_the_same_time_on_a_closed_store_both_fail")
class AnswersOnceClosed(RightWithJointCalls):
    def check_and_write_both(
        self, first: CheckAndWrite, second: CheckAndWrite
    ) -> tuple[bool | Exception, bool | Exception]:
        return (False, False) if self._closed else super().check_and_write_both(first, second)


@found_by("order_of_writes_raises_where_it_is_not_kept")
class ForgetsWhatItDoesNotKeep(RightWithJointCalls):
    def forget_arrivals(self, table: str, upto: int) -> None:
        pass

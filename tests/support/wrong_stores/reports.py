"""Stores whose limits, properties or checks are wrong."""

from __future__ import annotations

from collections.abc import Sequence

from hbasemk.errors import LimitError
from hbasemk.store.abc import (
    Limits,
    Put,
    Table,
)
from tests.support.wrong_stores.finding import Right, found_by


class SmallTogether(Right):
    """A correct store whose limit of all together is that of a value."""

    limits = Limits(32_767, 1024 * 1024, 1024 * 1024)


@found_by("a_cell_that_is_too_large_with_its_key_is_rejected")
class AcceptsACellThatIsTooLargeTogether(SmallTogether):
    def check_puts(self, puts: Sequence[Put]) -> None:
        try:
            super().check_puts(puts)
        except LimitError as error:
            if error.size is None:
                raise


@found_by("the_server_stamps_cells_with_the_clock_of_the_store")
class ShowsAnotherClock(Right):
    def clock_ms(self) -> int | None:
        return self._clock() // 1000


@found_by("properties_never_change")
class ChangesItsBatches(Right):
    @property
    def batch_rows(self) -> int:
        self._batch_rows += 1
        return self._batch_rows


@found_by("space_is_given_back_without_a_loss")
class GivesDataBack(Right):
    def give_back_space(self) -> bool:
        for found in self._tables.values():
            found.rows.clear()
        return False


@found_by("too_many_versions_are_named")
class VerifiesAtLeastSoManyVersions(Right):
    def _verify(self, tables: Sequence[Table]) -> None:
        super()._verify([one._replace(versions=max(one.versions, self._table(one.name).versions)) for one in tables])

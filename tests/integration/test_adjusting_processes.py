"""Eight processes adjust one property, and some are killed: no commit is repeated, and the sum is exact."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import adjusting, proof
from tests.support.hbase import HBase


@pytest.mark.slow
@pytest.mark.parametrize("seconds", proof.sizes("HBASEMK_ADJUST_SECONDS", 1, 12, 60))
def test_on_one_sqlite_file(tmp_path: Path, seconds: float) -> None:
    commits, slots = adjusting.run(f"sqlite:///{tmp_path / 'content.db'}", 8, seconds, 4)
    print(f"{commits} adjusts, {slots} slots, no conflict")
    assert commits >= 8 * adjusting.LEAST
    assert slots <= 12


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.parametrize("seconds", proof.sizes("HBASEMK_ADJUST_SECONDS", 3, 8))
def test_on_hbase(hbase: HBase, seconds: float) -> None:
    commits, slots = adjusting.run(hbase.url(hbase.new_prefix()), 8, seconds, 2)
    print(f"{commits} adjusts, {slots} slots, no conflict")
    assert commits >= 8 * adjusting.LEAST
    assert slots <= 10

"""Real processes on one SQLite file, killed and paused past their leases: their histories have no anomaly.

``HBASEMK_HISTORY_SECONDS`` makes it last longer, ``HBASEMK_HISTORY_SEED`` other.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from hbasemk.testing.history.__main__ import main
from hbasemk.testing.history.processes import Conductor
from tests.support.histories import SECONDS, SEED, verify


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize("seconds", SECONDS)
def test_killed_and_paused_processes_leave_a_history_without_anomalies(tmp_path: Path, seconds: float) -> None:
    directory = tmp_path / "history"
    directory.mkdir()
    report = Conductor(f"sqlite:///{tmp_path / 'content.db'}", directory, SEED).run(seconds)
    verify(report)
    # The files of killed workers do not say how their last transactions ended; the report's history does.
    saved = tmp_path / "whole.history"
    report.history.save(saved)
    again = CliRunner().invoke(main, [str(saved)])
    assert again.output == f"{len(report.history)} transactions, no anomalies\n"

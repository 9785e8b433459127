"""Settings and checks that the tests of histories share."""

from __future__ import annotations

import os

from hbasemk.testing.history.processes import RunReport
from tests.support import proof

SECONDS = proof.sizes("HBASEMK_HISTORY_SECONDS", 12, 20)
"""How long workers run; more for a soak."""
SEED = int(os.environ.get("HBASEMK_HISTORY_SEED", "1"))
"""Of what is done to them and of their choices; how they interleave is the machine's."""


def verify(report: RunReport) -> None:
    """Assert that there is no anomaly and no problem, and that the run did enough to show some."""
    print(report)
    assert report.anomalies == [], report.explain()
    assert [str(problem) for problem in report.problems] == []
    for kind in ("killed", "paused", "paused past the lease"):
        assert report.harm.get(kind), f"no worker was {kind}"
    assert sum(one.outcome == "committed" and one.writes for one in report.history) > 20

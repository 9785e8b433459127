"""How the tests measure coverage."""

from __future__ import annotations

import sys


def test_a_test_can_pause_coverage_in_every_process(no_cover: None) -> None:
    assert sys.gettrace() is None

"""Fixtures of the tests of commits."""

from __future__ import annotations

import pytest

from tests.support.competitors import Competitors
from tests.support.runtime import World


@pytest.fixture
def three(world: World) -> Competitors:
    return Competitors(world)

"""The seed of a random test."""

from __future__ import annotations

import os
import random


def random_of_test() -> random.Random:
    """Return random numbers from the seed HBASEMK_TEST_SEED, or from a new one; print the seed."""
    seed = int(os.environ.get("HBASEMK_TEST_SEED", "") or random.randrange(1 << 32))
    print(f"repeat with HBASEMK_TEST_SEED={seed}")
    return random.Random(seed)

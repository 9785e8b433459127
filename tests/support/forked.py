"""Parts of tests that run in a forked child."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable


def in_a_child(work: Callable[[], object]) -> None:
    """Run a function in a forked child; fail if it raised."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert status == 0

"""The greenlets of simulated threads; the extra ``testing`` has the library."""

from __future__ import annotations

try:
    from greenlet import getcurrent, greenlet
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "the simulator and the explorer need greenlet; install it with: pip install 'hbasemk[testing]'", name=error.name
    ) from error

__all__ = ["getcurrent", "greenlet"]

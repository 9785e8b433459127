"""The interface definition of the gateway, loaded when it is first needed."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any


@lru_cache(maxsize=1)
def interface() -> Any:
    """The module that thriftpy2 makes of ``gateway.thrift``."""
    import thriftpy2

    return thriftpy2.load(str(Path(__file__).with_name("gateway.thrift")), module_name="hbasemk_gateway_thrift")

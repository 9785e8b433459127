"""The gateway's interface: the classes that thriftpy2 generates from ``gateway.thrift``, and the methods that we call.

Enumerations are sent as numbers; this module names the numbers that we use.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple

import thriftpy2
from thriftpy2.thrift import TType

# Load at import, which Python does once and under a lock: thriftpy2's parser is not thread-safe.
idl: Final[Any] = thriftpy2.load(
    str(Path(__file__).with_name("gateway.thrift")), module_name="hbasemk.store.hbase.gateway_thrift"
)


class ResultCell:
    """A cell of an answer, cheaper than thriftpy2's class: HBase always sends all four fields, so there are no defaults."""

    __slots__ = ("family", "qualifier", "timestamp", "value")
    thrift_spec: ClassVar[dict[int, Any]] = idl.ColumnValue.thrift_spec
    family: bytes
    qualifier: bytes
    timestamp: int
    value: bytes


class Result:
    """A row of an answer; a missing row has no key and no cells."""

    __slots__ = ("cells", "row")
    thrift_spec: ClassVar[dict[int, Any]] = {
        **idl.Result.thrift_spec,
        2: (TType.LIST, "cells", (TType.STRUCT, ResultCell), True),
    }

    def __init__(self) -> None:
        self.row: bytes | None = None
        self.cells: list[ResultCell] = []


ONE_VERSION: Final = 0
OLDER_VERSIONS: Final = 1
WHOLE_FAMILY: Final = 2
BLOOM_ROW: Final = 1
ROW_INDEX_V1: Final = 7
FOREVER: Final = 2**31 - 1
THRIFT1: Final = 1
THRIFT2: Final = 2


class Method(NamedTuple):
    """A method of the gateway; ``effect`` is whether it changes anything, so that a second call may do harm."""

    name: str
    request: Callable[..., Any]
    reply: Any
    effect: bool
    returns: bool


def _method(name: str, effect: bool) -> Method:
    service = idl.Gateway
    reply = getattr(service, f"{name}_result")
    returns = any(field[1] == "success" for field in reply.thrift_spec.values())
    return Method(name, getattr(service, f"{name}_args"), reply, effect, returns)


GET: Final = _method("get", effect=False)
GET_MULTIPLE: Final = _method("getMultiple", effect=False)
SCAN: Final = _method("getScannerResults", effect=False)
PUT: Final = _method("put", effect=True)
PUT_MULTIPLE: Final = _method("putMultiple", effect=True)
CHECK_AND_PUT: Final = _method("checkAndPut", effect=True)
DELETE: Final = _method("deleteSingle", effect=True)
DELETE_MULTIPLE: Final = _method("deleteMultiple", effect=True)
MUTATE_ROW: Final = _method("mutateRow", effect=True)
DESCRIBE: Final = _method("getTableDescriptors", effect=False)
IS_DISABLED: Final = _method("isTableDisabled", effect=False)
IS_AVAILABLE: Final = _method("isTableAvailable", effect=False)
CREATE_TABLE: Final = _method("createTable", effect=True)
REGIONS: Final = _method("getAllRegionLocations", effect=False)
DISABLE_TABLE: Final = _method("disableTable", effect=True)
DELETE_TABLE: Final = _method("deleteTable", effect=True)
SERVER_TYPE: Final = _method("getThriftServerType", effect=False)

# Most of the received data are results, so they use the classes above instead of thriftpy2's.
GET.reply.thrift_spec[0] = (TType.STRUCT, "success", Result, False)
for _many in (GET_MULTIPLE, SCAN):
    _many.reply.thrift_spec[0] = (TType.LIST, "success", (TType.STRUCT, Result), False)

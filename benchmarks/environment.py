"""The environment of a run: versions, processor and load, on which the figures depend."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import sqlite3
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from benchmarks.sizes import Sizes

PACKAGES: Final = ("hbasemk", "thriftpy2", "ZODB", "BTrees", "persistent", "RelStorage", "ZEO", "happybase", "psutil")


def environment(sizes: Sizes, remark: str) -> dict[str, Any]:
    """Return the environment as a JSON object.

    ``remark`` adds facts that this process cannot find out. An example is the version of HBase, which its Thrift interface
    does not report.
    """
    return {
        "when": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "load": [round(load, 2) for load in os.getloadavg()],
        "sqlite": sqlite3.sqlite_version,
        "packages": {name: version for name in PACKAGES if (version := _version(name))},
        "remark": remark,
        "sizes": asdict(sizes),
    }


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()

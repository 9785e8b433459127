"""The wheel holds the library and nothing of the benchmarks."""

from __future__ import annotations

from configparser import ConfigParser
from pathlib import Path

import setuptools

ROOT = Path(__file__).parents[2]


def packages(root: Path) -> list[str]:
    """Return the packages that the build puts into a wheel of a checkout."""
    config = ConfigParser()
    config.read(root / "setup.cfg", encoding="utf-8")
    include = config["options.packages.find"]["include"].replace(",", " ").split()
    return sorted(setuptools.find_packages(str(root), include=include))


def test_the_wheel_contains_no_benchmarks() -> None:
    found = packages(ROOT)
    assert "hbasemk.cli" in found
    assert [name for name in found if "bench" in name] == []
    assert {name.partition(".")[0] for name in found} == {"hbasemk"}

"""The wheel contains the library and no benchmarks."""

from __future__ import annotations

import ast
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


def imports(file: Path) -> set[str]:
    """Return the modules that a file imports, at any place."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
    return found


def test_the_library_does_not_import_the_benchmarks() -> None:
    files = sorted((ROOT / "hbasemk").rglob("*.py"))
    assert len(files) > 100
    assert [file.name for file in files if {name.partition(".")[0] for name in imports(file)} & {"benchmarks"}] == []

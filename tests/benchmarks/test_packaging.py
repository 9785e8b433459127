"""The wheel contains the library and no benchmarks; the source archive contains no part of the tests."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
import tarfile
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


def test_the_source_archive_contains_the_library_and_no_part_of_the_tests(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    for name in ("hbasemk", "tests"):
        shutil.copytree(ROOT / name, checkout / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("LICENSE", "MANIFEST.in", "README.md", "pyproject.toml", "setup.cfg", "setup.py"):
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, checkout)
    build = "import sys; from setuptools.build_meta import build_sdist; build_sdist(sys.argv[1])"
    subprocess.run([sys.executable, "-c", build, str(tmp_path)], cwd=checkout, check=True, capture_output=True)
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    assert {"hbasemk/py.typed", "LICENSE", "README.md"} <= names
    assert any(name.endswith(".thrift") for name in names)
    # Tests without their support code cannot run.
    assert [name for name in names if name.startswith("tests")] == []

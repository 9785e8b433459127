"""Where code lives: what CONTRIBUTING says of tests and helpers."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent
PACKAGE = TESTS.parent / "hbasemk"
PARTS = {"store", "journal", "cache", "lease", "clock", "reader", "counts", "outcomes", "recovery", "branches"}
"""The parts of an instance that only the kernel uses."""


def imported(module: Path) -> Iterator[str]:
    """Return the full names of the modules, or of names in them, that a module imports."""
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{one.name}" for one in node.names)


def test_helpers_of_tests_live_in_support_only() -> None:
    modules = [module.relative_to(TESTS) for module in TESTS.rglob("*.py")]
    helpers = [
        str(module)
        for module in modules
        if not module.name.startswith("test_")
        and module.name not in {"conftest.py", "__init__.py"}
        and module.parts[0] not in {"support", "fuzz"}
    ]
    assert helpers == []
    assert len(modules) > 100


def test_no_test_imports_another_test() -> None:
    imports = [
        f"{module.relative_to(TESTS)}: {name}"
        for module in TESTS.rglob("*.py")
        for name in imported(module)
        if name.startswith("tests.") and ".test_" in name
    ]
    assert imports == []


def is_instance(node: ast.expr) -> bool:
    """Return whether an expression is an instance by its name: ``instance``, ``self._instance()``, ``instance_of(...)``."""
    if isinstance(node, ast.Call):
        node = node.func
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return name.strip("_") in {"instance", "instance_of", "instance_of_snapshot"}


def reaches(source: str) -> list[str]:
    """Return the expressions that use a part of an instance, or an attribute of one of its attributes."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Attribute):
            continue
        part = is_instance(node.value) and node.attr in PARTS
        chain = isinstance(node.value, ast.Attribute) and is_instance(node.value.value)
        if part or chain:
            found.append(ast.unparse(node))
    return found


def test_front_ends_do_not_reach_into_the_parts_of_an_instance() -> None:
    # hbasemk.testing tests the kernel, so it uses its parts.
    modules = [
        module for module in PACKAGE.rglob("*.py") if module.relative_to(PACKAGE).parts[0] not in {"kernel", "testing"}
    ]
    found = [f"{module.relative_to(PACKAGE)}: {one}" for module in modules for one in reaches(module.read_text())]
    assert found == []
    assert any("instance_of(" in module.read_text() for module in modules)


def test_a_chain_into_an_instance_is_found() -> None:
    assert reaches("self._instance().blobs.read(1)") == ["self._instance().blobs.read"]
    assert reaches("reader = instance_of(repository).reader") == ["instance_of(repository).reader"]
    assert reaches("instance.settings.epoch_ms") == ["instance.settings.epoch_ms"]
    assert reaches("instance.commit(make); settings = instance.settings; settings.epoch_ms") == []


def test_the_kernels_table_of_contents_names_each_module() -> None:
    kernel = PACKAGE / "kernel"
    named = {
        package: set(re.findall(r"``([a-z_.]+)``", (package / "__init__.py").read_text()))
        for package in (kernel, *(one.parent for one in kernel.glob("*/__init__.py")))
    }
    modules = [module for module in kernel.rglob("*.py") if module.name != "__init__.py"]
    left_out = [
        str(module.relative_to(kernel))
        for module in modules
        if ".".join(module.relative_to(kernel).with_suffix("").parts) not in named[kernel]
        and module.stem not in named[module.parent]
    ]
    assert left_out == []
    existing = {".".join(module.relative_to(kernel).with_suffix("").parts) for module in modules}
    packages = {package.name for package in named} | {"format"}
    assert {name for name in named[kernel] if not name.startswith("hbasemk.")} <= existing | packages

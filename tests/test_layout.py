"""Where code lives: what CONTRIBUTING says of tests and helpers."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent


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

"""The conformance suite as authors of stores use it: its failures show values, and the errors of threads."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import threading
from pathlib import Path

import pytest

import hbasemk.testing.store
from hbasemk.testing.store import base

MODULES = {
    found.name: importlib.import_module(f"hbasemk.testing.store.{found.name}")
    for found in pkgutil.iter_modules(hbasemk.testing.store.__path__)
}
WITH_ASSERTS = [
    name
    for name, module in MODULES.items()
    if any(isinstance(node, ast.Assert) for node in ast.walk(ast.parse(Path(str(module.__file__)).read_text("utf-8"))))
]


@pytest.mark.parametrize("name", WITH_ASSERTS)
def test_a_failing_assert_of_the_suite_shows_its_values(name: str) -> None:
    # pytest gives this name to its import in each module whose asserts it rewrites.
    assert "@pytest_ar" in vars(MODULES[name])


@pytest.mark.parametrize("failing", [0, 1])
def test_the_error_of_a_thread_is_raised_though_another_thread_waits_for_it(
    monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    monkeypatch.setattr(base, "GRACE", 0.01)
    never = threading.Event()
    calls = [never.wait, never.wait]
    calls[failing] = lambda: 1 // 0
    try:
        with pytest.raises(ZeroDivisionError):
            base.together(calls)
    finally:
        never.set()

"""Modules that need a library of the extra ``testing`` say how to install it."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("module", "missing"),
    [
        ("hbasemk.testing.store", "pytest"),
        ("hbasemk.testing.store", "hypothesis"),
        ("hbasemk.testing.history", "networkx"),
        ("hbasemk.testing.exploration", "greenlet"),
        ("hbasemk.testing.simulation", "greenlet"),
    ],
)
def test_a_module_names_the_extra_that_it_needs(module: str, missing: str) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; import {module}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f" {missing}; install it with: pip install 'hbasemk[testing]'" in done.stderr

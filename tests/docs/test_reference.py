"""The API reference is made of docstrings: each names every parameter of its function, as ``name``."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

PACKAGES = ("hbasemk", "hbasemk.jsop", "hbasemk.testing.store", "hbasemk.testing.history")
"""The packages whose ``__all__`` is the public API, as in docs/conf.py."""
CONSTRUCTED = {"BlobRef", "Json", "MicroKernel", "Repository", "Settings"}
"""The classes that users call, as in docs/conf.py; their own docstrings name the parameters."""


def public_functions() -> Iterator[tuple[str, Callable[..., Any], str]]:
    """Yield the name, the object and the docstring of each public function, method and constructor."""
    for package in PACKAGES:
        module = importlib.import_module(package)
        for name in module.__all__:
            found = getattr(module, name)
            if inspect.isfunction(found):
                yield f"{package}.{name}", found, found.__doc__ or ""
            if not inspect.isclass(found):
                continue
            if name in CONSTRUCTED:
                yield f"{package}.{name}", found, found.__doc__ or ""
            for member, value in vars(found).items():
                plain = value.__func__ if isinstance(value, (classmethod, staticmethod)) else value
                if inspect.isfunction(plain) and not member.startswith("_"):
                    yield f"{package}.{name}.{member}", plain, plain.__doc__ or ""


FUNCTIONS = {name: (function, text) for name, function, text in public_functions()}


def test_the_reference_has_functions_of_each_kind() -> None:
    assert FUNCTIONS.keys() >= {
        "hbasemk.connect",
        "hbasemk.Repository",
        "hbasemk.Transaction.set",
        "hbasemk.jsop.parse",
    }


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_docstring_names_every_parameter(name: str) -> None:
    function, text = FUNCTIONS[name]
    parameters = [one for one in inspect.signature(function).parameters if one not in {"self", "cls"}]
    missing = [one for one in parameters if not re.search(rf"``{one}\b", text)]
    assert not missing, f"the docstring of {name} does not name {missing}"

"""The API reference is made of docstrings: each names every parameter of its function, as ``name``."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any, get_args, get_origin, get_type_hints

import pytest

import hbasemk

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


def named_types(annotation: object) -> Iterator[type]:
    """Yield the types that an annotation names, also as arguments of others."""
    if isinstance(annotation, type) and get_origin(annotation) is None:
        yield annotation
    for argument in get_args(annotation):
        yield from named_types(argument)


def test_every_type_that_the_api_returns_is_public() -> None:
    public = {getattr(hbasemk, name) for name in hbasemk.__all__ if inspect.isclass(getattr(hbasemk, name))}
    found = set()
    for cls in public:
        for member, value in vars(cls).items():
            function = value.fget if isinstance(value, property) else value
            if member.startswith("_") or not inspect.isfunction(function):
                continue
            for one in named_types(get_type_hints(function).get("return")):
                if one.__module__.startswith("hbasemk") and one not in public:
                    found.add((f"{cls.__name__}.{member}", one.__qualname__))
    assert not found, f"hbasemk.__all__ lacks types that {found} return"

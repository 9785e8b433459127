"""Whether a mutant still fits the kernel: what replaces a function must take the arguments that its callers pass."""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Callable
from typing import Any, cast

import pytest

from tests.support.simulation import adjust_mutants, collection_mutants, mutants

_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_BY_NAME = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def all_mutants() -> list[Callable[[pytest.MonkeyPatch], None]]:
    """Return every mutant: the functions of the modules of mutants that take only ``patch``."""
    modules = [
        pkgutil.resolve_name(f"{mutants.__name__}.{found.name}") for found in pkgutil.iter_modules(mutants.__path__)
    ]
    return [
        function
        for module in (*modules, adjust_mutants, collection_mutants)
        for function in vars(module).values()
        if inspect.isfunction(function) and list(inspect.signature(function).parameters) == ["patch"]
    ]


def misfits(mutant: Callable[[pytest.MonkeyPatch], None]) -> list[str]:
    """Return the arguments that a function of the kernel takes and its replacement does not, as "function: argument"."""
    recorder = _Recorder()
    try:
        mutant(cast(pytest.MonkeyPatch, recorder))
        return [
            f"{name}: {missing}"
            for name, original, replacement in recorder.replaced
            for missing in _missing(inspect.signature(original), inspect.signature(replacement))
        ]
    finally:
        recorder.undo()


class _Recorder:
    """A MonkeyPatch for attributes that remembers each function with what replaces it."""

    def __init__(self) -> None:
        self.replaced: list[tuple[str, Callable[..., object], Callable[..., object]]] = []
        self._patch: Any = pytest.MonkeyPatch()
        self.undo = self._patch.undo

    def setattr(self, target: Any, *arguments: Any, raising: bool = True) -> None:
        if isinstance(target, str):
            owner, name = target.rsplit(".", 1)
            self._remember(pkgutil.resolve_name(owner), name, *arguments)
        else:
            self._remember(target, *arguments)
        self._patch.setattr(target, *arguments, raising=raising)

    def _remember(self, target: Any, name: str, value: object) -> None:
        original = inspect.getattr_static(target, name, None)
        if inspect.isfunction(original) and callable(value):
            self.replaced.append((f"{target.__name__}.{name}", original, value))


def _missing(original: inspect.Signature, replacement: inspect.Signature) -> list[str]:
    kinds = {parameter.kind for parameter in replacement.parameters.values()}
    missing = []
    room = sum(parameter.kind in _BY_POSITION for parameter in replacement.parameters.values())
    for position, parameter in enumerate(original.parameters.values()):
        by_position = parameter.kind in _BY_POSITION and (position < room or inspect.Parameter.VAR_POSITIONAL in kinds)
        same = replacement.parameters.get(parameter.name)
        by_name = inspect.Parameter.VAR_KEYWORD in kinds or (same is not None and same.kind in _BY_NAME)
        optional = parameter.default is not inspect.Parameter.empty
        if not (by_name if optional else by_position or by_name):
            missing.append(parameter.name)
    return missing

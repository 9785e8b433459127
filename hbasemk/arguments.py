"""Checks of the arguments of public functions: an error names the parameter, the expected type, and the value.

Without these checks, a wrong type fails later, in internal code, with an error that names neither.
"""

from __future__ import annotations

import datetime
import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from types import AsyncGeneratorType, CodeType, CoroutineType, GeneratorType
from typing import Any, Final, TypeVar

from hbasemk.errors import InvalidPathError, InvalidRevisionError, InvalidValueError
from hbasemk.format import limits, moments, paths
from hbasemk.format import revisions as revisions
from hbasemk.format.node import VERSION_DIGITS, is_version
from hbasemk.kernel.schema_version import LARGEST

T = TypeVar("T")

_check_known_name: Final = lru_cache(maxsize=1024)(paths.check_name)
"""Checks names that many nodes have, in a fraction of the time."""
_LATE: Final = inspect.CO_COROUTINE | inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR
"""Flags of functions whose call returns before their first line runs."""


def wrong(name: str, expected: str, value: object) -> TypeError:
    """Return the error for an argument of a wrong type."""
    return TypeError(f"{name} must be {expected}, got {limits.shown(value)}")


def text(value: object, name: str) -> str:
    """Return the value, which must be a str; raise TypeError for another type."""
    if not isinstance(value, str):
        raise wrong(name, "a str", value)
    return paths.plain(value)


def path(value: object, name: str = "path") -> str:
    """Return the value, which must be the path of a node; raise TypeError or InvalidPathError otherwise."""
    if not isinstance(value, str):
        raise wrong(name, "a path, such as '/a/b'", value)
    return paths.check_path(paths.plain(value))


def new_path(value: object, name: str = "path") -> str:
    """Return the value, which must be a path at which a node can be added; raise TypeError or InvalidPathError otherwise."""
    if not isinstance(value, str):
        raise wrong(name, "a path, such as '/a/b'", value)
    return paths.check_new(paths.plain(value))


def path_list(value: object, name: str) -> list[str]:
    """Return the paths in a sequence; raise TypeError (for a single text too) or InvalidPathError."""
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise wrong(name, "a sequence of paths", value)
    return [path(one, f"each path in {name}") for one in value]


def node_name(value: object, name: str = "name") -> str:
    """Return the value, which must be the name of a node or property; raise TypeError or InvalidPathError otherwise."""
    if not isinstance(value, str):
        raise wrong(name, "a str", value)
    return paths.check_name(paths.plain(value))


def property_name(value: object, path: str) -> str:
    """Return the value, which must be the name of a property of the node at ``path``; raise TypeError or InvalidPathError."""
    if not isinstance(value, str):
        raise wrong(f"the name of a property of {limits.shown(path)}", "a str", value)
    try:
        return _check_known_name(paths.plain(value))
    except InvalidPathError as error:
        raise InvalidPathError(f"a property of {limits.shown(path)} cannot have this name: {error.message}") from None


@lru_cache(maxsize=256)
def _check_known_names(names: tuple[str, ...]) -> None:
    """Check names that many nodes have together, in a fraction of the time."""
    for name in names:
        paths.check_name(name)


def properties(value: object, path: str) -> Mapping[Any, Any]:
    """Return a mapping of property names of the node at ``path`` to values; raise TypeError or InvalidPathError otherwise."""
    given = mapping(value, "properties")
    try:
        _check_known_names(tuple(given))
    except (TypeError, InvalidPathError):
        for name in given:
            property_name(name, path)
    for name in given:
        if name.__class__ is not str:
            return {paths.plain(name): one for name, one in given.items()}
    return given


def moment_ms(value: object, name: str) -> int:
    """Return the ms since 1970 of an aware datetime; raise TypeError or InvalidValueError for another value."""
    if not isinstance(value, datetime.datetime):
        raise wrong(name, "a datetime with a time zone", value)
    if value.utcoffset() is None:
        raise InvalidValueError(
            f"{name} must be a datetime with a time zone, such as datetime.now(timezone.utc), got {limits.shown(value)}"
        )
    return moments.ms_of(value)


def revision(value: object, name: str) -> int:
    """Return the id of a revision in text form; raise TypeError or InvalidRevisionError for another value."""
    if not isinstance(value, str):
        raise wrong(name, f"a revision id of {revisions.TEXT_LENGTH} hexadecimal digits", value)
    try:
        return revisions.from_text(value)
    except InvalidRevisionError as error:
        raise InvalidRevisionError(f"{name}: {error.message}") from None


def version(value: object, name: str) -> str | None:
    """Return the version of a node, or None for no node; raise TypeError or InvalidValueError for another value."""
    if value is not None and not isinstance(value, str):
        raise wrong(name, "the version of a node, or None", value)
    if value is not None and not is_version(value):
        raise InvalidValueError(
            f"{name} must be the version of a node, {VERSION_DIGITS} hexadecimal digits as Node.version returns, or None for no "
            f"node; got {limits.shown(value)}"
        )
    return value


def schema_number(value: object, name: str) -> int:
    """Return a schema number of an application; raise TypeError or InvalidValueError for another value."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise wrong(name, "a schema number, an int", value)
    if not 0 <= value <= LARGEST:
        raise InvalidValueError(f"{name} must be a schema number from 0 to {LARGEST}, got {limits.shown(value)}")
    return value


def schema_versions(value: object) -> int | range:
    """Return a schema number or a range of them; raise TypeError or InvalidValueError for another value."""
    if not isinstance(value, range):
        return schema_number(value, "schema_version")
    # Its ends, because min() and max() would step through it.
    if not value or min(value[0], value[-1]) < 0 or max(value[0], value[-1]) > LARGEST:
        raise InvalidValueError(
            f"schema_version must be a range of schema numbers from 0 to {LARGEST}, got {limits.shown(value)}"
        )
    return value


def flag(value: object, name: str) -> bool:
    """Return True or False; raise TypeError for another value."""
    if not isinstance(value, bool):
        raise wrong(name, "True or False", value)
    return value


def count(value: object, name: str) -> int:
    """Return an int that is not negative; raise TypeError or InvalidValueError for another value."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise wrong(name, "an int", value)
    if value < 0:
        raise InvalidValueError(f"{name} must be at least 0, got {limits.shown(value)}")
    return value


def number(value: object, name: str) -> int | float:
    """Return an int or a float; raise TypeError for another value."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise wrong(name, "an int or a float", value)
    return value


def finite(value: object, name: str) -> int | float:
    """Return an int or a finite float; raise TypeError or InvalidValueError for another value."""
    if type(value) is int:
        return value
    found = number(value, name)
    if not -math.inf < found < math.inf:
        raise InvalidValueError(f"{name} must be an int or a finite float, got {found}")
    return found


def function(value: Callable[..., Any], name: str) -> None:
    """Raise TypeError unless the value can be called, and has done its work when the call returns."""
    if not callable(value):
        raise wrong(name, "a function", value)
    called = value
    while isinstance(called, partial):
        called = called.func
    code = getattr(called, "__code__", None)
    if isinstance(code, CodeType) and code.co_flags & _LATE:
        raise _late(name, f"got the async or generator function {limits.shown(value)}")


def finished(result: T, name: str) -> T:
    """Return the result of the function called ``name``; raise TypeError if the function has not done its work yet.

    A result that ``await`` takes, such as a task of asyncio, comes from a function that works later.
    """
    if isinstance(result, (GeneratorType, AsyncGeneratorType)) or hasattr(type(result), "__await__"):
        if isinstance(result, CoroutineType):
            # Otherwise Python warns that nothing awaited it.
            result.close()
        raise _late(name, f"but it returned {limits.shown(result)}")
    return result


def _late(name: str, problem: str) -> TypeError:
    return TypeError(
        f"{name} must be a plain function, {problem}: its changes would come after the commit. "
        f"With asyncio write await asyncio.to_thread(repo.run, {name})."
    )


def mapping(value: object, name: str) -> Mapping[Any, Any]:
    """Return a mapping; raise TypeError for another value."""
    # A dict is one; the general test takes longer.
    if type(value) is not dict and not isinstance(value, Mapping):
        raise wrong(name, "a mapping of names to values", value)
    return value


def instance(value: object, kind: type[T], name: str) -> T:
    """Return an instance of a class; raise TypeError for another value."""
    if not isinstance(value, kind):
        raise wrong(name, f"a {kind.__module__.partition('.')[0]}.{kind.__name__}", value)
    return value


def choice(value: object, possible: Sequence[str], name: str) -> None:
    """Raise TypeError if the value is not a str, and InvalidValueError if it is none of the possible ones."""
    if not isinstance(value, str):
        raise wrong(name, " or ".join(map(repr, possible)), value)
    if value not in possible:
        raise InvalidValueError(f"{name} must be {' or '.join(map(repr, possible))}, got {limits.shown(value)}")

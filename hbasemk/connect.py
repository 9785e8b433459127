"""Opening a repository by its URL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from hbasemk.errors import InvalidValueError
from hbasemk.kernel.settings import Settings
from hbasemk.repository import Repository
from hbasemk.store.abc import Store
from hbasemk.store.named import NamedStores

_TRUE: Final = frozenset({"1", "yes", "true", "on"})
_FALSE: Final = frozenset({"0", "no", "false", "off"})

_IGNORED: Final = "\t\r\n"
"""Characters that Python leaves out when it takes a URL to pieces."""
_named: Final = NamedStores()


def connect(url: str, *, create: bool = True, settings: Settings | None = None, **options: Any) -> Repository:
    """Open the repository at a URL, creating it where there is none (unless ``create`` is False).

    - ``memory://`` is private and gone when closed; ``memory://name`` is shared by all who use the name in this
      process, and gone when the last of them has closed it.
    - ``sqlite:///relative/file`` or ``sqlite:////absolute/file``: one file, many processes of one machine.
      ``?durable=no`` leaves commits to the operating system's own time of writing.
    - ``hbase://host:port/?prefix=name_``: tables behind HBase's Thrift2 gateway; ``&timeout=seconds`` per call.

    ``poll_interval``, ``patience`` and ``cache_entries`` (see :class:`Repository`) may stand in the URL or be given as
    keyword arguments, which count more. Raises InvalidValueError for a URL that cannot be read, StoreError when the
    store cannot be used.
    """
    store, owned, more = open_store(url)
    try:
        return Repository(store, create=create, settings=settings, owns_store=owned, **{**more, **options})
    except BaseException:
        if owned:
            store.close()
        raise


def open_store(url: str) -> tuple[Store, bool, dict[str, Any]]:
    """The store of a URL, whether the caller has to close it, and the repository's options in the URL.

    Raises InvalidValueError for a URL that cannot be read.
    """
    parts = _split(url)
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    more: dict[str, Any] = {}
    for name, convert in _REPOSITORY_OPTIONS.items():
        if name in given:
            more[name] = _option(url, name, given.pop(name), convert)
    opener = _OPENERS.get(parts.scheme)
    if opener is None:
        raise InvalidValueError(
            f"{url!r} is no URL of a repository; possible are memory://[name], sqlite:///file and hbase://host:port/"
        )
    return opener(url, parts, given), True, more


def _split(url: str) -> SplitResult:
    """The parts of a URL; raises InvalidValueError where something of it would get lost, or it has none."""
    for char, meant in (("#", "%23"), *((char, f"%{ord(char):02X}") for char in _IGNORED)):
        if char in url:
            raise InvalidValueError(f"{url!r} contains {char!r}, which ends or breaks a URL; write {meant} for it")
    try:
        return urlsplit(url)
    except ValueError as error:
        raise InvalidValueError(f"{url!r} is no URL: {error}") from None


def _open_memory(url: str, parts: SplitResult, given: dict[str, str]) -> Store:
    from hbasemk.store.memory import MemoryStore

    _no_more(url, given)
    name = parts.netloc + parts.path
    return _named.open(name) if name else MemoryStore()


def _open_sqlite(url: str, parts: SplitResult, given: dict[str, str]) -> Store:
    from hbasemk.store.sqlite import SqliteStore

    try:
        path = unquote(parts.path, errors="strict")
    except ValueError as error:
        raise InvalidValueError(f"{url!r} names a file in something else than UTF-8: {error}") from None
    if "\0" in path:
        raise InvalidValueError(f"{url!r} names a file with a zero byte, which no file's name has")
    if parts.netloc or len(path) < 2:
        raise InvalidValueError(
            f"{url!r} names no file; write sqlite:///relative/file or sqlite:////absolute/file (three or four slashes)"
        )
    options: dict[str, Any] = {}
    if "durable" in given:
        options["durable"] = _option(url, "durable", given.pop("durable"), _boolean)
    if "busy_timeout" in given:
        options["busy_timeout"] = _option(url, "busy_timeout", given.pop("busy_timeout"), float)
    _no_more(url, given)
    return SqliteStore(path[1:], **options)


def _open_hbase(url: str, parts: SplitResult, given: dict[str, str]) -> Store:
    from hbasemk.store.hbase import HBaseStore

    try:
        host, port = parts.hostname, parts.port or 9090
    except ValueError as error:
        raise InvalidValueError(f"{url!r} has no valid port: {error}") from None
    if not host or parts.path not in {"", "/"}:
        raise InvalidValueError(f"{url!r} is no URL of an HBase; write hbase://host:port/?prefix=name_")
    options: dict[str, Any] = {"prefix": given.pop("prefix", "")}
    if "timeout" in given:
        options["timeout"] = _option(url, "timeout", given.pop("timeout"), float)
    _no_more(url, given)
    return HBaseStore(host, port, **options)


def _boolean(text: str) -> bool:
    if text.lower() in _TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    raise ValueError(text)


def _option(url: str, name: str, text: str, convert: Callable[[str], Any]) -> Any:
    try:
        return convert(text)
    except ValueError:
        raise InvalidValueError(f"{url!r} has no valid value for {name!r}: {text!r}") from None


def _no_more(url: str, given: dict[str, str]) -> None:
    if given:
        raise InvalidValueError(f"{url!r} has options that are not known here: {', '.join(sorted(given))}")


_OPENERS: Final[dict[str, Callable[[str, SplitResult, dict[str, str]], Store]]] = {
    "memory": _open_memory,
    "sqlite": _open_sqlite,
    "hbase": _open_hbase,
}
_REPOSITORY_OPTIONS: Final[dict[str, Callable[[str], Any]]] = {
    "poll_interval": float,
    "patience": float,
    "cache_entries": int,
}

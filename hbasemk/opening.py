"""Opening a repository by its URL. Every part of a URL is used or rejected; none is ignored."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypedDict
from urllib.parse import SplitResult, quote, unquote, unquote_plus, urlsplit

from hbasemk.errors import InvalidValueError
from hbasemk.format.limits import shown
from hbasemk.kernel.instance import Instance
from hbasemk.kernel.settings import Settings
from hbasemk.layout import lay_out
from hbasemk.repository import Repository, instance_of
from hbasemk.store.abc import Store
from hbasemk.store.named_memory import NamedStores

if sys.version_info >= (3, 11):
    from typing import Unpack
elif TYPE_CHECKING:
    # Every type checker has this module; a run does not need it.
    from typing_extensions import Unpack

if TYPE_CHECKING:
    from hbasemk.store.hbase import Address

_TRUE: Final = frozenset({"1", "yes", "true", "on"})
_FALSE: Final = frozenset({"0", "no", "false", "off"})

_HBASE_EXAMPLE: Final = "write hbase://host:port/?prefix=name_, or hbase://host:port,host:port/ for several gateways"
FORMS: Final = "memory://[name], sqlite:///relative/file, sqlite:////absolute/file or hbase://host:port/?prefix=name_"
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_broken_escape: Final = re.compile("%(?![0-9A-Fa-f]{2})").search
_control: Final = re.compile("[\x00-\x1f\x7f]").search
_is_host_text: Final = re.compile(r"\[[0-9A-Fa-f:.]+\]|[^\s%:@\[\]]+").fullmatch
_named: Final = NamedStores()


class RepositoryOptions(TypedDict, total=False):
    """The options of :func:`connect` that may also be part of the URL; see :class:`Repository`."""

    poll_interval: float
    retry_timeout: float
    cache_bytes: int
    collect: bool


def connect(
    url: str,
    *,
    create: bool = True,
    settings: Settings | None = None,
    schema_version: int | range | None = None,
    splits: Sequence[str] = (),
    compression: str | None = None,
    **options: Unpack[RepositoryOptions],
) -> Repository:
    """Open the repository at ``url``; create it with ``settings`` if it does not exist, unless ``create`` is False.

    - ``memory://`` is private and vanishes when it is closed. ``memory://name`` is shared within this process by all that
      use the name, and vanishes when the last of them closes it.
    - ``sqlite:///relative/file`` or ``sqlite:////absolute/file``: one file for many processes of one machine. With
      ``?durable=no`` the operating system decides when commits reach the disk.
    - ``hbase://host:port/?prefix=name_``: tables behind HBase's Thrift2 gateway, or behind several of one HBase:
      ``hbase://host1:port,host2:port/?prefix=name_``. ``&timeout=seconds`` limits each call, and
      ``&connect_timeout=seconds`` each opening of a connection. ``&pool_size=count`` limits the connections to each gateway.

    The ``options`` ``poll_interval``, ``retry_timeout``, ``cache_bytes`` and ``collect`` (see :class:`Repository`) may be part
    of the URL or keyword arguments; keyword arguments take precedence. Raises InvalidValueError for a URL with a part that
    has no meaning, TypeError for anything but a str (a path object too: the URL names the kind of store), and StoreError if
    the store cannot be used. ``schema_version`` is the schema number of the application that this process accepts, or a range
    of them (None: all); SchemaVersionError is raised if the repository has another one. A new repository begins with the number
    that ``schema_version`` names, or with 0 if it is None or several numbers. If several numbers do not contain 0,
    SchemaVersionError is raised, and nothing is created.

    ``splits`` and ``compression`` apply to HBase, when tables are created. The table of nodes is divided into regions at the
    paths in ``splits``, and the table of blobs into as many regions. ``compression`` is the name of a codec, such as ``GZ``.
    Raises InvalidValueError if the tables exist with another compression, or without these regions.
    """
    unknown = sorted(options.keys() - _REPOSITORY_OPTIONS.keys())
    if unknown:
        raise TypeError(
            f"connect() got the unknown option {unknown[0]!r}; expected {', '.join(_REPOSITORY_OPTIONS)}, create, "
            "settings, schema_version, splits or compression. Put the options of a store into its URL."
        )
    store, owned, more = open_store(url)
    try:
        if splits or compression is not None:
            if not create:
                raise InvalidValueError("splits and compression apply to new tables, so create must be True, got False")
            lay_out(store, redacted(url), splits, compression)
        return Repository(
            store,
            create=create,
            settings=settings,
            schema_version=schema_version,
            owns_store=owned,
            **{**more, **options},
        )
    except BaseException:
        if owned:
            store.close()
        raise


@contextmanager
def opened_instance(url: str) -> Iterator[Instance]:
    """Open the kernel instance of an existing repository without background work; for processes that work for another one."""
    with connect(url, create=False, poll_interval=0) as repository:
        yield instance_of(repository)


def open_store(url: str) -> tuple[Store, bool, dict[str, Any]]:
    """Return the store of a URL, whether the caller must close it, and the repository options in the URL.

    Raises InvalidValueError for a URL of which a part has no meaning.
    """
    parts = _split(url)
    if parts.scheme == "hbase" and "@" in url:
        _refuse(
            url,
            "has a user name or password, and hbasemk cannot log in to a Thrift2 gateway: leave it out, and write "
            "hbase://host:port/?prefix=name_",
        )
    opener = _OPENERS[parts.scheme]
    given = _parameters(url, parts.query)
    more: dict[str, Any] = {}
    for name, convert in _REPOSITORY_OPTIONS.items():
        if name in given:
            more[name] = _option(url, name, given.pop(name), convert)
    return opener(url, parts, given), True, more


def retry_timeout_of(url: str, default: float) -> float:
    """Return the ``retry_timeout`` that a URL gives, else ``default``. Raises InvalidValueError as :func:`open_store`."""
    name = "retry_timeout"
    given = _parameters(url, _split(url).query).get(name)
    return default if given is None else _option(url, name, given, _REPOSITORY_OPTIONS[name])


def redacted(url: str) -> str:
    """Return the URL without anything that may be a password, for messages."""
    if not url.lower().startswith(("sqlite:///", "memory:")) and "@" in url:
        begin = url.find("//") + 2 if "//" in url else url.find(":") + 1
        url = f"{url[:begin]}***{url[url.rindex('@') :]}"
    before, mark, query = url.partition("?")
    fields = [
        field if field.partition("=")[0] in _PARAMETERS else re.sub("=.*", "=***", field, flags=re.DOTALL)
        for field in query.split("&")
    ]
    return shown(f"{before}{mark}{'&'.join(fields)}")


def _refuse(url: str, problem: str) -> NoReturn:
    raise InvalidValueError(f"{redacted(url)} {problem}") from None


def _split(url: str) -> SplitResult:
    """Return the parts of a URL; raise InvalidValueError if the text is not a URL, or a part of it would be ignored."""
    if isinstance(url, os.PathLike):
        raise TypeError(f"url must be a str, got {shown(url)}; the URL of this file is {_url_of(url)}")
    if not isinstance(url, str):
        raise TypeError(f"url must be a str, got {shown(url)}")
    if url != url.strip():
        _refuse(url, "begins or ends with white space; leave it out, or write %20 for a space that belongs to it")
    found = _control(url) or re.search("#", url)
    if found:
        _refuse(url, f"contains {found[0]!r}, which ends or breaks a URL; write %{ord(found[0]):02X} for it")
    if _broken_escape(url):
        _refuse(url, "contains a % that no two hexadecimal digits follow; write %25 for it")
    scheme = _SCHEME.match(url)
    if scheme is None or scheme[0][:-1].lower() not in _OPENERS:
        advice = ""
        if url[:1] in ("'", '"') and "://" in url:
            advice = " Leave out the quotation marks."
        elif scheme is None and url and "@" not in url:
            advice = f" For an SQLite file write {_url_of(url)}."
        _refuse(url, f"is not the URL of a repository; expected {FORMS}.{advice}")
    if not url.startswith("//", scheme.end()):
        _refuse(url, f"has no // after {scheme[0]!r}; expected {FORMS}")
    begin = scheme.end() + 2
    hosts = re.split("[/?]", url[begin:], maxsplit=1)[0]
    try:
        for host in hosts.split(","):
            urlsplit(f"//{host}")
        # Without the hosts: urlsplit accepts only one.
        return urlsplit(url[:begin] + url[begin + len(hosts) :])._replace(netloc=hosts)
    except ValueError:
        pass  # its text may show a password
    _refuse(url, f"is not a URL: brackets and characters after // must name a host; expected {FORMS}")


def _url_of(path: str | os.PathLike[Any]) -> str:
    name = os.fsdecode(path)
    try:
        return "sqlite:///" + quote(name, errors="surrogateescape")
    except UnicodeEncodeError:
        # No file can have this name; connect() says so for the URL too.
        return "sqlite:///" + quote(name, errors="surrogatepass")


def _parameters(url: str, query: str) -> dict[str, str]:
    """Return the parameters of a URL; each must occur once and have a value."""
    given: dict[str, str] = {}
    for field in query.split("&") if query else ():
        name, _, value = field.partition("=")
        if not field:
            _refuse(url, "has an empty parameter; write ?name=value&name=value")
        if not value:
            _refuse(url, f"gives the parameter {name!r} no value; write {name}=value, or leave it out")
        if name in given:
            _refuse(url, f"gives the parameter {name!r} twice; give it once")
        try:
            given[name] = unquote_plus(value, errors="strict")
        except ValueError:
            _refuse(
                url, f"gives the parameter {name!r} a value that is not UTF-8; write the escapes of its UTF-8 bytes"
            )
    return given


def _open_memory(url: str, parts: SplitResult, given: dict[str, str]) -> Store:
    from hbasemk.store.memory import MemoryStore

    _no_more(url, given)
    name = parts.netloc + parts.path
    return _named.open(name) if name else MemoryStore(transactions=True)


def _open_sqlite(url: str, parts: SplitResult, given: dict[str, str]) -> Store:
    from hbasemk.store.sqlite import SqliteStore

    try:
        path = unquote(parts.path, errors="strict")
    except ValueError:
        _refuse(url, "names a file in an encoding other than UTF-8; write the escapes of its UTF-8 bytes")
    if "\0" in path:
        _refuse(url, "names a file with a zero byte; leave out %00")
    if parts.netloc or len(path) < 2:
        _refuse(
            url,
            "names no file; write sqlite:///relative/file or sqlite:////absolute/file (three or four slashes)",
        )
    if path.endswith(("/", "/.", "/..")):
        _refuse(url, "names a directory; write the name of a file in it, without a / at the end")
    options: dict[str, Any] = {}
    if "durable" in given:
        options["durable"] = _option(url, "durable", given.pop("durable"), _boolean)
    if "busy_timeout" in given:
        options["busy_timeout"] = _option(url, "busy_timeout", given.pop("busy_timeout"), float)
    _no_more(url, given, "durable", "busy_timeout")
    return SqliteStore(path[1:], **options)


def _open_hbase(url: str, parts: SplitResult, given: dict[str, str]) -> Store:
    from hbasemk.store.hbase import HBaseStore, Transport

    how: dict[str, Any] = {"framing": given.pop("transport", "buffered")}
    if parts.path not in {"", "/"}:
        if how["framing"] != "http":
            _refuse(url, f"has a path, which HBase URLs have with transport=http only; {_HBASE_EXAMPLE}")
        how["path"] = parts.path
    for name, convert in _TRANSPORT_OPTIONS.items():
        if name in given:
            how[name] = _option(url, name, given.pop(name), convert)
    options: dict[str, Any] = {"prefix": given.pop("prefix", "")}
    for name, convert in _HBASE_OPTIONS.items():
        if name in given:
            options[name] = _option(url, name, given.pop(name), convert)
    gateways = _gateways(url, parts.netloc)
    _no_more(url, given, "prefix", *_HBASE_OPTIONS, "transport", *_TRANSPORT_OPTIONS)
    return HBaseStore(gateways, transport=Transport(**how), **options)


def _gateways(url: str, hosts: str) -> list[Address]:
    """Return the addresses in the list of hosts of an hbase:// URL."""
    from hbasemk.store.hbase import Address

    gateways: list[Address] = []
    texts = hosts.split(",")
    with_port = 0
    for number, text in enumerate(texts, 1):
        which = f" in gateway {number} of {len(texts)}, {shown(text)}" if len(texts) > 1 else ""
        host, colon, digits = text.rpartition(":")
        if not colon or text.endswith("]"):
            host, colon, digits = text, "", ""
        if not host or not _is_host(host):
            _refuse(url, f"has no valid host{which}; {_HBASE_EXAMPLE} (IPv6 addresses in brackets)")
        address = Address(host.strip("[]").lower())
        if colon:
            if not re.fullmatch("[0-9]{1,5}", digits) or not 0 < int(digits) < 65536:
                _refuse(
                    url,
                    f"has no valid port{which}; it must be a number from 1 to 65535. Without one, leave out the colon: "
                    f"{_HBASE_EXAMPLE}",
                )
            address = Address(address.host, int(digits))
            with_port += 1
        if address in gateways:
            _refuse(url, f"names the gateway {address} twice; name it once")
        gateways.append(address)
    if 0 < with_port < len(gateways):
        _refuse(url, "names a port for some gateways only; write one for each, or for none if all use 9090")
    return gateways


def _is_host(text: str) -> bool:
    """Return whether a text can be a host, an IPv6 address in brackets, or a name that the system can look up."""
    if not _is_host_text(text):
        return False
    try:
        text.strip("[]").encode("idna")
    except UnicodeError:
        return False
    return True


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
        _refuse(url, f"has no valid value for {name!r}: {shown(text)}; expected {_EXPECTED[convert]}")


def _no_more(url: str, given: dict[str, str], *possible: str) -> None:
    if given:
        _refuse(
            url,
            f"has parameters that are not known here: {', '.join(sorted(given))}; expected only "
            f"{', '.join([*possible, *_REPOSITORY_OPTIONS])}",
        )


_EXPECTED: Final[dict[Callable[[str], Any], str]] = {
    _boolean: "yes or no",
    int: "an integer",
    float: "a number of seconds",
    str: "text",
}
_OPENERS: Final[dict[str, Callable[[str, SplitResult, dict[str, str]], Store]]] = {
    "memory": _open_memory,
    "sqlite": _open_sqlite,
    "hbase": _open_hbase,
}
_REPOSITORY_OPTIONS: Final[dict[str, Callable[[str], Any]]] = {
    "poll_interval": float,
    "retry_timeout": float,
    "cache_bytes": int,
    "collect": _boolean,
}
_HBASE_OPTIONS: Final[dict[str, Callable[[str], Any]]] = {"timeout": float, "connect_timeout": float, "pool_size": int}
_TRANSPORT_OPTIONS: Final[dict[str, Callable[[str], Any]]] = {
    "protocol": str,
    "tls": _boolean,
    "ca_file": str,
    "cert_file": str,
    "key_file": str,
    "max_frame_mb": int,
}
_PARAMETERS: Final = frozenset(
    {*_REPOSITORY_OPTIONS, *_HBASE_OPTIONS, *_TRANSPORT_OPTIONS, "durable", "busy_timeout", "prefix", "transport"}
)

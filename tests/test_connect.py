"""URLs are applied completely or rejected; stores in memory live as long as one repository has them open."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import traceback
from inspect import get_annotations
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from hbasemk import InvalidValueError, Repository, Settings, StoreUnusableError, connect
from hbasemk.errors import ClosedError
from hbasemk.opening import _REPOSITORY_OPTIONS, RepositoryOptions, open_store
from tests.support.repositories import Checked, problems

REFUSED = [
    # fragments, control characters, white space
    ("sqlite:///{}/my#file.db", "%23"),
    ("sqlite:///{}/file.db#", "%23"),
    ("sqlite:///{}/file.db?busy_timeout=1#2", "%23"),
    ("hbase://host/#x", "%23"),
    ("sqlite:///{}/my\nfile.db", "%0A"),
    ("sqlite:///{}/my\tfile.db", "%09"),
    ("sqlite:///{}/my\rfile.db", "%0D"),
    ("sqlite:///{}/my\x01file.db", "%01"),
    ("sqlite:///{}/my\x7ffile.db", "%7F"),
    (" sqlite:///{}/file.db", "begins or ends with white space"),
    ("sqlite:///{}/file.db ", "begins or ends with white space"),
    ("sqlite:///{}/file.db\n", "begins or ends with white space"),
    ("\u00a0sqlite:///{}/file.db", "begins or ends with white space"),
    # percent-encoding
    ("sqlite:///{}/a%FFb.db", "UTF-8"),
    ("sqlite:///{}/a%00b.db", "zero byte"),
    ("sqlite:///{}/100%.db", "write %25"),
    ("sqlite:///{}/a%zzb.db", "write %25"),
    ("sqlite:///{}/a.db?durable=%", "write %25"),
    ("memory://a%2", "write %25"),
    ("hbase://host/?prefix=%FF", "not UTF-8"),
    # schemes
    ("", "is not the URL of a repository"),
    ("content.db", "write sqlite:///content.db"),
    ("{}/content.db", "write sqlite:////"),
    ("my content.db", "write sqlite:///my%20content.db"),
    ("'sqlite:///content.db'", "Leave out the quotation marks."),
    ('"hbase://host/?prefix=a_"', "Leave out the quotation marks."),
    ("//host/", "is not the URL of a repository"),
    ("://host/", "is not the URL of a repository"),
    ("http://host/", "is not the URL of a repository"),
    ("http://[::1", "is not the URL of a repository"),
    ("file://{}/content.db", "is not the URL of a repository"),
    ("sqlite3:///{}/content.db", "is not the URL of a repository"),
    # the part after the scheme
    ("sqlite:content.db", "has no //"),
    ("sqlite:{}/content.db", "has no //"),
    ("sqlite:", "has no //"),
    ("SQLITE:content.db", "has no //"),
    ("memory:name", "has no //"),
    ("memory:", "has no //"),
    ("hbase:host:9090", "has no //"),
    # files
    ("sqlite://", "names no file"),
    ("sqlite:///", "names no file"),
    ("sqlite://content.db", "names no file"),
    ("sqlite://localhost{}/content.db", "names no file"),
    ("sqlite:////", "names a directory"),
    ("sqlite:///{}/", "names a directory"),
    ("sqlite:///{}/.", "names a directory"),
    ("sqlite:///{}/x/..", "names a directory"),
    ("sqlite:///{}/x%2F", "names a directory"),
    # hosts and ports
    ("hbase://", "no valid host"),
    ("hbase:///", "no valid host"),
    ("hbase://:9090/", "no valid host"),
    ("hbase://ho st/", "no valid host"),
    ("hbase://ho%20st/", "no valid host"),
    ("hbase://::1/", "no valid host"),
    ("hbase://host:1:2/", "no valid host"),
    ("hbase://a..b/", "no valid host"),
    ("hbase://ü..b:1,c:1/", r"no valid host in gateway 1 of 2, 'ü\.\.b:1'"),
    ("hbase://" + "a" * 64 + "/", "no valid host"),
    ("hbase://\ud800:1/", "no valid host"),
    ("\ud800", "is not the URL of a repository"),
    ("/\ud800", "is not the URL of a repository"),
    ("hbase://[]/", "no valid host|not a URL"),
    ("hbase://[::1/", "is not a URL"),
    ("hbase://[nonsense]/", "no valid host|not a URL"),
    ("hbase://[::1]x/", "no valid host|not a URL"),
    ("hbase://host:/", "no valid port"),
    ("hbase://host:0/", "no valid port"),
    ("hbase://host:65536/", "no valid port"),
    ("hbase://host:99999/", "no valid port"),
    ("hbase://host:-1/", "no valid port"),
    ("hbase://host:+9090/", "no valid port"),
    ("hbase://host:9090x/", "no valid port"),
    ("hbase://host:\u0661/", "no valid port"),
    ("hbase://host:" + "9" * 5000 + "/", "no valid port"),
    # several gateways
    ("hbase://a:1,/", "no valid host in gateway 2 of 2, ''"),
    ("hbase://,a:1/", "no valid host in gateway 1 of 2, ''"),
    ("hbase://a:1,,b:2/", "no valid host in gateway 2 of 3, ''"),
    ("hbase://,/", "no valid host in gateway 1 of 2"),
    ("hbase://a:1,:2/", "no valid host in gateway 2 of 2, ':2'"),
    ("hbase://a:1, b:2/", "no valid host in gateway 2 of 2, ' b:2'"),
    ("hbase://a:1,b:x/", "no valid port in gateway 2 of 2, 'b:x'"),
    ("hbase://a:1,b:/", "no valid port in gateway 2 of 2, 'b:'"),
    ("hbase://a:1,b/", "a port for some gateways only"),
    ("hbase://a,b:1,c/", "a port for some gateways only"),
    ("hbase://a:1,b:1,A:1/", "names the gateway a:1 twice"),
    ("hbase://a,a/", "names the gateway a:9090 twice"),
    ("hbase://[::1]:1,[::2/", "is not a URL"),
    ("hbase://host/?pool_size=0", "pool_size .* at least 1"),
    ("hbase://host/?pool_size=many", "no valid value for 'pool_size'"),
    ("hbase://host/?connect_timeout=0", "connect_timeout"),
    ("hbase://host/?connect_timeout=soon", "no valid value for 'connect_timeout'"),
    # transports
    ("hbase://host/?transport=smoke", "transport must be one of buffered, framed, http, got 'smoke'"),
    ("hbase://host/?protocol=json", "protocol must be one of binary, compact, got 'json'"),
    ("hbase://host/?transport=http&protocol=compact", "transport=http needs protocol=binary"),
    ("hbase://host/?tls=perhaps", "no valid value for 'tls'"),
    ("hbase://host/?ca_file=/x", "ca_file needs tls=yes"),
    ("hbase://host/?cert_file=/x&tls=no", "cert_file needs tls=yes"),
    ("hbase://host/?tls=yes&ca_file={}", "ca_file '.*' cannot be used"),
    ("hbase://host/?tls=yes&ca_file=/no/such/file", "ca_file '/no/such/file' cannot be used"),
    ("hbase://host/?tls=yes&cert_file=/no/such/file", "cert_file '/no/such/file'.*cannot be used"),
    ("hbase://host/?tls=yes&key_file=/no/such/file", "key_file needs cert_file"),
    ("hbase://host/?max_frame_mb=4", "max_frame_mb=4 needs transport=framed"),
    ("hbase://host/?max_frame_mb=2", "max_frame_mb=2 needs transport=framed"),
    ("hbase://host/ä?transport=http", "the path '/ä' is not the path of HTTP requests.* %20 for a space"),
    ("hbase://host/a b?transport=http", "the path '/a b' is not the path of HTTP requests"),
    ("hbase://host/?transport=framed&max_frame_mb=0", "max_frame_mb .* at least 1"),
    ("hbase://host/path?transport=framed", "has a path"),
    ("hbase://host/table", "has a path"),
    ("hbase://host//", "has a path"),
    # parameters
    ("sqlite:///{}/x.db?colour=red", "not known here: colour"),
    ("sqlite:///{}/x.db?Durable=no", "not known here: Durable"),
    ("sqlite:///{}/x.db?prefix=a", "not known here: prefix"),
    ("memory://x?durable=no", "not known here: durable"),
    ("hbase://host/?durable=no&busy_timeout=1", "not known here: busy_timeout, durable"),
    ("sqlite:///{}/x.db?durable=no&durable=yes", "'durable' twice"),
    ("sqlite:///{}/x.db?retry_timeout=1&retry_timeout=1", "'retry_timeout' twice"),
    ("hbase://host/?prefix=a&prefix=b", "'prefix' twice"),
    ("hbase://host/?prefix=", "'prefix' no value"),
    ("sqlite:///{}/x.db?durable", "'durable' no value"),
    ("sqlite:///{}/x.db?=no", "not known here: "),
    ("sqlite:///{}/x.db?durable=no&", "empty parameter"),
    ("sqlite:///{}/x.db?&durable=no", "empty parameter"),
    ("sqlite:///{}/x.db?durable=no&&retry_timeout=1", "empty parameter"),
    ("sqlite:///{}/x.db?durable=perhaps", "no valid value for 'durable': 'perhaps'"),
    ("sqlite:///{}/x.db?busy_timeout=long", "no valid value for 'busy_timeout'"),
    ("sqlite:///{}/x.db?busy_timeout=nan", "busy_timeout"),
    ("sqlite:///{}/x.db?cache_bytes=1.5", "no valid value for 'cache_bytes'"),
    ("sqlite:///{}/x.db?cache_bytes=" + "9" * 5000, "no valid value for 'cache_bytes'"),
    ("sqlite:///{}/x.db?durable=no;retry_timeout=1", "no valid value for 'durable'"),
]


@pytest.mark.parametrize(("url", "said"), REFUSED, ids=range(len(REFUSED)))
def test_a_url_with_ignored_parts_is_rejected(url: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidValueError, match=said) as raised:
        connect(url.format(tmp_path))
    assert len(str(raised.value)) < 700
    assert list(tmp_path.iterdir()) == []


SECRETS = [
    "hbase://user:s3cret@host/",
    "hbase://s3cret@host:9090/?prefix=a",
    "hbase://user:s3cret@host:99999/",
    "hbase://user:s3cret@/",
    "hbase://user:s3cret@[::1/",
    "hbase://user:s3cret@ho\u2100st/",
    "hbase://user:s3/cret@host/",
    "hbase://user:s3?cret@host/",
    "hbase://user:s3#cret@host/",
    "hbase://user:s3@cret@host/",
    "hbase://user:s3%cret@host/",
    " hbase://user:s3cret@host/",
    "HBASE://user:s3cret@host/",
    "hbase:user:s3cret@host/",
    "http://user:s3cret@host/",
    "user:s3cret@host",
    "s3cret@host",
    "sqlite://user:s3cret@host/file.db",
    "hbase://a:1,user:s3cret@host:9090/",
    "hbase://user:s3cret@a:1,b/",
    "hbase://host/?password=s3cret",
    "hbase://host/?password=s3cret&password=s3cret",
    "sqlite:///file.db?key=s3cret",
]


@pytest.mark.parametrize("url", SECRETS)
def test_credentials_are_refused_and_never_shown(url: str) -> None:
    with pytest.raises(InvalidValueError) as raised:
        connect(url)
    shown = "".join(traceback.format_exception(raised.value)).replace(repr(url), "")
    # The source lines of a traceback show no values, so only the messages matter.
    assert "cret" not in shown
    assert "s3" not in shown


def test_credentials_have_a_specific_error() -> None:
    with pytest.raises(InvalidValueError, match=r"'hbase://\*\*\*@host/' has a user name or password"):
        connect("hbase://user:pw@host/")


@pytest.mark.parametrize(
    ("url", "location"),
    [
        ("hbase://host", "hbase://host:9090/"),
        ("hbase://host/", "hbase://host:9090/"),
        ("hbase://host?prefix=a_", "hbase://host:9090/?prefix=a_"),
        ("hbase://Host:1/?prefix=a_&timeout=5&retry_timeout=1", "hbase://host:1/?prefix=a_"),
        ("HBase://host:65535/?", "hbase://host:65535/"),
        ("hbase://127.0.0.1:9091/?prefix=%61_", "hbase://127.0.0.1:9091/?prefix=a_"),
        ("hbase://[::1]:9091/", "hbase://[::1]:9091/"),
        ("hbase://[::1]", "hbase://[::1]:9090/"),
        ("hbase://a,B/?prefix=a_", "hbase://a:9090,b:9090/?prefix=a_"),
        ("hbase://a:1,a:2", "hbase://a:1,a:2/"),
        ("hbase://a:1,[::1]:2,[::2]:2?prefix=a_", "hbase://a:1,[::1]:2,[::2]:2/?prefix=a_"),
        ("memory://", "memory"),
        ("memory://name/with/slashes", "memory://name/with/slashes"),
        ("memory://a@b", "memory://a@b"),
        ("MEMORY://Name?poll_interval=0", "memory://Name"),
        ("sqlite:///relative.db", "{cwd}/relative.db"),
        ("sqlite:///folder/relative.db?durable=no&busy_timeout=1.5", "{cwd}/folder/relative.db"),
        ("SQLite:////absolute.db", "/absolute.db"),
        ("sqlite:///a@b%20c:d.db", "{cwd}/a@b c:d.db"),
        ("sqlite:///with space.db", "{cwd}/with space.db"),
        ("sqlite:///%C3%A9.db?", "{cwd}/\u00e9.db"),
    ],
)
def test_a_url_opens_the_location_that_it_names(url: str, location: str) -> None:
    store, owned, _ = open_store(url)
    assert owned
    assert store.location == location.format(cwd=Path.cwd())
    store.close()


def test_options_in_the_url_reach_the_repository() -> None:
    _, _, options = open_store("memory://options?poll_interval=0&retry_timeout=2.5&cache_bytes=7")
    assert options == {"poll_interval": 0, "retry_timeout": 2.5, "cache_bytes": 7}


def test_options_in_the_url_reach_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}
    monkeypatch.setattr("hbasemk.store.hbase.HBaseStore", lambda gateways, **options: given.update(options))
    open_store("hbase://host/?timeout=5&connect_timeout=2.5&pool_size=3&prefix=a_")
    transport = given.pop("transport")
    assert given == {"timeout": 5, "connect_timeout": 2.5, "pool_size": 3, "prefix": "a_"}
    assert str(transport) == "transport=buffered, protocol=binary, tls=no"


def test_the_transport_in_the_url_reaches_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    monkeypatch.setattr("hbasemk.store.hbase.HBaseStore", lambda gateways, **options: made.append(options["transport"]))
    open_store("hbase://host/?transport=framed&protocol=compact&tls=yes&max_frame_mb=32")
    open_store("hbase://host/a/path?transport=http&tls=on")
    assert [str(transport) for transport in made] == [
        "transport=framed, protocol=compact, tls=yes",
        "transport=http, protocol=binary, tls=yes",
    ]
    assert [(transport.path, transport.frame_limit >> 20) for transport in made] == [("/", 32), ("/a/path", 2)]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (Path("content.db"), r"the URL of this file is sqlite:///content\.db"),
        (Path("/a b/#1?.db"), r"the URL of this file is sqlite:////a%20b/%231%3F\.db"),
        (None, "url must be a str, got None"),
        (b"memory://", r"url must be a str, got b'memory://'"),
        (1, "url must be a str, got 1"),
    ],
)
def test_a_url_that_is_not_a_str_is_a_type_error(given: Any, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        connect(given)


@pytest.mark.parametrize("options", [{"durable": False}, {"prefix": "a"}, {"colour": 1}])
def test_an_option_that_is_not_known_is_a_type_error(options: Any) -> None:
    with pytest.raises(TypeError, match=f"unknown option '{next(iter(options))}'"):
        connect("memory://", **options)


def test_type_checkers_know_the_options_of_the_constructor() -> None:
    declared = get_type_hints(Repository.__init__)
    assert get_type_hints(RepositoryOptions) == {name: declared[name] for name in _REPOSITORY_OPTIONS}
    assert get_annotations(connect)["options"] == "Unpack[RepositoryOptions]"
    if sys.version_info >= (3, 11):
        assert "options" in get_type_hints(connect)


def test_the_url_that_the_error_for_a_path_names_opens_it(tmp_path: Path, checked: Checked) -> None:
    path = tmp_path / "a b#?%\u00e9.db"
    with pytest.raises(TypeError) as raised:
        connect(path)  # type: ignore[arg-type]
    with connect(checked(str(raised.value).rpartition(" ")[2]), poll_interval=0):
        assert path.exists()


def test_a_file_may_have_any_name(tmp_path: Path, checked: Checked) -> None:
    with connect(checked(f"sqlite:///{tmp_path}/my%23file%3F%0A%25.db"), poll_interval=0) as repo:
        repo.run(lambda tx: tx.add("/a"))
    assert [path.name for path in tmp_path.iterdir()] == ["my#file?\n%.db"]


def test_the_command_line_reports_a_wrong_url_without_a_traceback() -> None:
    command = [sys.executable, "-m", "hbasemk", "--url", "hbase://[::1/", "ls"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


class TestMemory:
    def test_a_name_is_shared_while_one_repository_has_it_open(self) -> None:
        one = connect("memory://shared/name", poll_interval=0)
        two = connect("memory://shared/name", poll_interval=0)
        one.run(lambda tx: tx.add("/a"))
        one.close()
        one.close()
        with pytest.raises(ClosedError):
            one.store.scan("nodes", None)  # type: ignore[arg-type]
        with connect("memory://shared/name", poll_interval=0, create=False) as three:
            assert "/a" in three.head
        two.refresh()
        two.run(lambda tx: tx.add("/b"))
        assert problems(two) == []
        assert two.store.location == "memory://shared/name"
        two.close()

    def test_the_last_close_removes_the_store_immediately(self) -> None:
        gc.disable()
        try:
            kept = connect("memory://last", poll_interval=0)
            kept.run(lambda tx: tx.add("/a"))
            assert problems(kept) == []
            kept.close()
            with pytest.raises(
                StoreUnusableError, match="table '.*' does not exist at memory://last; .* leave out create=False"
            ):
                connect("memory://last", create=False, poll_interval=0)
            with connect("memory://last", poll_interval=0) as fresh:
                assert list(fresh.head) == ["/"]
        finally:
            gc.enable()

    def test_an_unclosed_store_survives_garbage_collection(self) -> None:
        with pytest.warns(ResourceWarning, match="not closed"):  # noqa: PT031 - until it is freed
            connect("memory://forgotten", poll_interval=0).run(lambda tx: tx.add("/a"))
            gc.collect()
        with connect("memory://forgotten", create=False, poll_interval=0) as repo:
            assert "/a" in repo.head
            assert problems(repo) == []

    def test_an_opening_that_fails_does_not_count(self) -> None:
        for settings, poll_interval in ((Settings(lease_ms=-1), 0), (None, -1)):
            with pytest.raises(InvalidValueError):
                connect("memory://failed", settings=settings, poll_interval=poll_interval)
        connect("memory://failed", poll_interval=0).close()
        with pytest.raises(StoreUnusableError):
            connect("memory://failed", create=False, poll_interval=0)

    def test_different_names_are_different_stores(self) -> None:
        with connect("memory://a", poll_interval=0) as one, connect("memory://b", poll_interval=0) as two:
            one.run(lambda tx: tx.add("/a"))
            assert "/a" not in two.refresh()
            assert problems(one) == problems(two) == []

    def test_threads_can_open_and_close_concurrently(self) -> None:
        failed: list[BaseException] = []

        def work(number: int) -> None:
            try:
                for at in range(20):
                    with connect("memory://threads", poll_interval=0) as repo:
                        repo.run(lambda tx, at=at: tx.add(f"/{number}-{at}"))  # type: ignore[misc]
            except BaseException as error:
                failed.append(error)

        with connect("memory://threads", poll_interval=0) as repo:
            threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(120)
            assert failed == []
            assert len(repo.refresh().children("/")) == 80
            assert problems(repo) == []

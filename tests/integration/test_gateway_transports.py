"""Real gateways that are framed, compact, or use HTTP with and without TLS."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import hbasemk
from hbasemk.errors import LimitError, StoreError, StoreUnusableError
from hbasemk.format import schema
from hbasemk.opening import open_store
from hbasemk.store.abc import Get, NewCell, Put
from hbasemk.testing.store import OpenStore, StoreConformance
from tests.support.certificates import Authority
from tests.support.gateway_processes import GatewayProcess, gateway_process
from tests.support.hbase import HBase
from tests.support.proof import LONG
from tests.support.repositories import problems

pytestmark = [pytest.mark.integration, pytest.mark.slow]

THRIFT = "hbase.regionserver.thrift."
SSL = "hbase.thrift.ssl."
KEYSTORE = "/run/hbasemk/keystore.p12"
PASSWORD = "changeit"
SETTINGS = {
    # Threads of this server take requests of any connection; the others have one thread for each connection.
    "framed": {
        THRIFT + "server.type": "threadedselector",
        THRIFT + "framed": "true",
        THRIFT + "framed.max_frame_size_in_mb": "32",
    },
    "compact": {THRIFT + "compact": "true"},
    "framed and compact": {THRIFT + "framed": "true", THRIFT + "compact": "true"},
    "http": {THRIFT + "http": "true"},
    "https": {
        THRIFT + "http": "true",
        SSL + "enabled": "true",
        SSL + "keystore.store": KEYSTORE,
        SSL + "keystore.type": "pkcs12",
        SSL + "keystore.password": PASSWORD,
    },
}
PARAMETERS = {
    "framed": "transport=framed&max_frame_mb=32",
    "compact": "protocol=compact",
    "framed and compact": "transport=framed&protocol=compact",
    "http": "transport=http",
    "https": "transport=http&tls=yes&ca_file={ca_file}",
}


class Gateways:
    """The running gateways, and the file with the certificate of the authority."""

    def __init__(self, host: str, running: dict[str, GatewayProcess], authority: Authority) -> None:
        self._host = host
        self._running = running
        self.authority = authority

    def address(self, name: str) -> str:
        """Return the host and port of a gateway."""
        return f"{self._host}:{self._running[name].port}"

    def url(self, name: str, prefix: str = "") -> str:
        """Return the URL that suits a gateway."""
        parameters = PARAMETERS[name].format(ca_file=self.authority.file)
        return f"hbase://{self.address(name)}/?{parameters}" + (f"&prefix={prefix}" if prefix else "")


@pytest.fixture(scope="module")
def gateways(hbase_server: HBase, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateways]:
    hbase_server.needs_own_gateway()
    authority = Authority(tmp_path_factory.mktemp("authority"))
    hbase_server.copy_inside(authority.keystore(hbase_server.host, password=PASSWORD), KEYSTORE)
    with ExitStack() as stack:
        running = {
            name: stack.enter_context(gateway_process(hbase_server, settings)) for name, settings in SETTINGS.items()
        }
        for gateway in running.values():
            gateway.until_ready()
        yield Gateways(hbase_server.host, running, authority)


@pytest.mark.parametrize("name", SETTINGS)
def test_a_repository_works_through_it(name: str, gateways: Gateways, hbase: HBase) -> None:
    prefix = hbase.prefix_with_tables()
    with hbasemk.connect(gateways.url(name, prefix), poll_interval=0) as repo:
        repo.run(
            lambda tx: tx.add("/a", {"text": "\u00e9" * 1000, "number": 2**40, "large": "x" * 1_900_000, "none": ""})
        )
        for number in range(10):
            repo.run(lambda tx, number=number: tx.add(f"/a/{number}", {"n": number}))  # type: ignore[misc]
        with repo.branch() as branch:
            branch.run(lambda tx: tx.remove("/a/9"))
        with hbasemk.connect(hbase.url(prefix), poll_interval=0) as usual:
            assert len(usual.head["/a"]["large"]) == 1_900_000  # type: ignore[arg-type]
            assert dict(usual.head["/a"]) == dict(repo.head["/a"])
            assert usual.head.children("/a") == [str(number) for number in range(9)]
            usual.run(lambda tx: tx.set("/a/1", "n", -1))
        assert repo.refresh()["/a/1"]["n"] == -1
        assert problems(repo) == []


@pytest.mark.parametrize("name", SETTINGS)
def test_a_read_that_is_sent_with_a_write_sees_it(name: str, gateways: Gateways, hbase: HBase) -> None:
    # The gateways process the requests of one connection in their order, also while other connections are busy.
    prefix = hbase.prefix_with_tables()
    store = open_store(gateways.url(name, prefix))[0]

    def write_and_read(row: bytes) -> list[int]:
        missed = []
        for number in range(200):
            put = Put(row, [NewCell(schema.DATA, b"q", b"%d" % number, number)])
            (found,) = store.write_and_read(schema.NODES, [put], [Get(row)])
            if found.cells[0].value != b"%d" % number:
                missed.append(number)
        return missed

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(write_and_read, (b"a", b"b", b"c", b"d"))) == [[], [], [], []]
    store.close()


def test_a_commit_larger_than_a_frame_is_divided(gateways: Gateways, hbase: HBase) -> None:
    prefix = hbase.prefix_with_tables()
    with hbasemk.connect(gateways.url("framed and compact", prefix), poll_interval=0) as repo:

        def add(tx: hbasemk.Transaction) -> None:
            for number in range(12):
                tx.add(f"/{number}", {"text": f"{number}" * 400_000})

        repo.run(add)
        assert len(repo.head.children("/")) == 12
        with pytest.raises(LimitError, match="max_frame_size_in_mb"):
            repo.run(lambda tx: tx.set("/0", "large", "x" * 3_000_000))
        repo.run(lambda tx: tx.set("/0", "small", "x"))
        assert problems(repo) == []


@pytest.mark.parametrize("parameters", PARAMETERS.values())
@pytest.mark.parametrize("name", SETTINGS)
def test_other_parameters_are_a_clear_error(name: str, parameters: str, gateways: Gateways) -> None:
    if PARAMETERS[name].partition("&max")[0] == parameters.partition("&max")[0]:
        return
    url = f"hbase://{gateways.address(name)}/?timeout=3&connect_timeout=2&" + parameters.format(
        ca_file=gateways.authority.file
    )
    store, _, _ = open_store(url)
    try:
        with pytest.raises(StoreError) as raised:
            store.verify([])
            store.read("nothing", [Get(b"r")])
        assert f"HBase gateway at {gateways.address(name)}" in raised.value.message
        assert (
            "transport=" in raised.value.message
            or "tls=" in raised.value.message
            or "protocol=" in raised.value.message
        )
    finally:
        store.close()


def test_a_certificate_of_an_unknown_authority_is_refused(gateways: Gateways, tmp_path: Path) -> None:
    other = Authority(tmp_path)
    for file in ("", f"&ca_file={other.file}"):
        url = f"hbase://{gateways.address('https')}/?transport=http&tls=yes{file}"
        with pytest.raises(StoreUnusableError, match="certificate that cannot be trusted"):
            hbasemk.connect(url)


@pytest.mark.proof
# The suite writes values that are larger than HBase's default limit of a frame. The others differ less from the usual gateway.
@pytest.mark.parametrize(
    "parameters",
    ["compact", "https", pytest.param("framed", marks=LONG), pytest.param("http", marks=LONG)],
    scope="class",
)
class TestConformance(StoreConformance):
    @pytest.fixture(scope="class")
    @classmethod
    def open_store(cls, gateways: Gateways, parameters: str) -> OpenStore:
        def open_one() -> Any:
            return open_store(gateways.url(parameters))[0]

        return open_one

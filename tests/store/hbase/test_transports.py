"""Framed and buffered, compact and binary, TLS: each carries every message; each mismatch has a clear error."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hbasemk.errors import (
    ClosedError,
    InvalidValueError,
    LimitError,
    StoreNotAppliedError,
    StoreUnusableError,
)
from hbasemk.kernel.retrying_store import RetryingStore
from hbasemk.store.abc import Get, NewCell, Put, Scan
from hbasemk.store.hbase import Address, HBaseStore, Transport, handshake
from hbasemk.testing.store.base import together
from tests.support.certificates import Authority
from tests.support.gateway import ReceivedCall, fake_gateway, speaker
from tests.support.gateway_stores import PLAIN, PUT, error_of, errors_of_closing, read
from tests.support.runtime import TestRuntime, World

Open = Callable[..., HBaseStore]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def other_authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("other"))


@pytest.mark.parametrize(("framing", "protocol"), PLAIN)
def test_every_kind_of_message_arrives_unchanged(framing: Any, protocol: Any, open_over: Open) -> None:
    transport = Transport(framing, protocol)
    with fake_gateway(transport) as gateway:
        store = open_over(gateway.port, transport)
        values = [b"", b"\0", b"\xff" * 127, b"x" * 128, bytes(range(256)) * 300, bytes(1_500_000)]
        numbers = [1, 127, 128, 2**31, 2**62]
        for value in values:
            cells = [NewCell(b"d", b"%d" % number, value[:200_000], number) for number in numbers]
            store.write("t", [Put(b"r" + value[:100], cells), Put(b"s", cells[:1])])
            assert [cell.value for cell in gateway.received[-1].request.what[0].cells] == [value[:200_000]] * 5
            assert [cell.timestamp for cell in gateway.received[-1].request.what[0].cells] == numbers
        for row in (b"r", b"\0", b"\xff" * 3000, bytes(32_000)):
            read(store, row)
        assert store.check_and_write("t", (b"d", b"q"), b"old", PUT) is True
        assert store.check_and_write("t", (b"d", b"q"), None, PUT) is True
        assert store.scan("t", Scan(b"a", b"b", 10, reverse=False)) == []
        assert store.scan("t", Scan(b"b", b"a", 10, reverse=True)) == []
        assert gateway.received[-1].request.what.reverse is True
        assert [row.key for row in store.read("t", [Get(b"a"), Get(b"b")])] == [b"a", b"b"]
        store.delete_rows("t", [b"a", b"b"])
        with pytest.raises(StoreNotAppliedError, match="Internal error processing get"):
            read(store, b"fails 6")
        assert len(gateway.connections) == 1


@pytest.mark.usefixtures("long_diagnosis")
@pytest.mark.parametrize(("framing", "protocol"), PLAIN)
@pytest.mark.parametrize(("other_framing", "other_protocol"), PLAIN)
def test_a_gateway_with_other_settings_is_named(
    framing: Any, protocol: Any, other_framing: Any, other_protocol: Any, open_over: Open
) -> None:
    if (framing, protocol) == (other_framing, other_protocol):
        return
    with fake_gateway(Transport(other_framing, other_protocol)) as gateway:
        store = open_over(gateway.port, Transport(framing, protocol), timeout=60, connect_timeout=60)
        error = error_of(store)
        assert f"127.0.0.1:{gateway.port}" in error.message
        settings = f"transport={other_framing}&protocol={other_protocol}"
        own = f"transport={framing}, protocol={protocol}"
        assert settings in error.message or own in error.message or f"write protocol={other_protocol}" in error.message
        assert gateway.received == []


def test_a_request_larger_than_a_frame_is_refused_before_it_is_sent(open_over: Open) -> None:
    with fake_gateway(Transport("framed")) as gateway:
        store = open_over(gateway.port, Transport("framed"))
        read(store)
        with pytest.raises(LimitError, match="max_frame_size_in_mb"):
            store.write("t", [Put(b"r", [NewCell(b"d", b"q", bytes(2 * 1024 * 1024))])])
        assert [received.method for received in gateway.received] == ["get"]
        read(store)
        larger = open_over(gateway.port, Transport("framed", max_frame_mb=3))
        larger.write("t", [Put(b"r", [NewCell(b"d", b"q", bytes(2 * 1024 * 1024))])])


def test_batches_fit_into_a_frame() -> None:
    def batch_bytes(transport: Transport) -> int:
        return HBaseStore([Address("host")], transport=transport).batch_bytes

    usual = batch_bytes(Transport())
    assert batch_bytes(Transport("framed")) == 1024 * 1024
    assert batch_bytes(Transport("framed", max_frame_mb=64)) == usual
    assert batch_bytes(Transport("http")) == usual


def test_reads_of_long_keys_fit_into_a_frame(open_over: Open) -> None:
    with fake_gateway(Transport("framed")) as gateway:
        store = RetryingStore(open_over(gateway.port, Transport("framed")), TestRuntime(World()))
        keys = [b"/" + b"x" * 2_150 + b"%04d" % number for number in range(1_000)]
        rows = store.read("t", [Get(key) for key in keys])
        assert [row.key for row in rows] == keys
        assert [received.method for received in gateway.received] == ["getMultiple"] * 3


@pytest.mark.parametrize("path", ["", "a", "/\n", "/a\x7f", "/ä"])
def test_a_path_that_http_does_not_allow_is_refused(path: str) -> None:
    with pytest.raises(InvalidValueError, match="is not the path of HTTP requests"):
        Transport("http", path=path)


@pytest.mark.parametrize("path", ["/", "/a/b", "/%20%C3%A4", "/~a;b=c?d"])
def test_a_path_that_http_allows_is_accepted(path: str) -> None:
    assert Transport("http", path=path).path == path


@pytest.mark.parametrize(("framing", "protocol"), PLAIN)
def test_calls_over_tls_share_a_connection(framing: Any, protocol: Any, authority: Authority, open_over: Open) -> None:
    with fake_gateway(Transport(framing, protocol), authority.server_context("127.0.0.1", "localhost")) as gateway:
        transport = Transport(framing, protocol, tls=True, ca_file=authority.file)
        for host in ("127.0.0.1", "localhost"):
            before = len(gateway.connections)
            store = open_over(gateway.port, transport, host)
            for _ in range(20):
                read(store)
            store.write("t", [Put(b"r", [NewCell(b"d", b"q", bytes(1_500_000))])])
            assert len(gateway.connections) == before + 1


def test_threads_over_tls_get_their_own_answers(authority: Authority, open_over: Open) -> None:
    with fake_gateway(context=authority.server_context("127.0.0.1")) as gateway:
        store = open_over(gateway.port, Transport(tls=True, ca_file=authority.file), pool_size=3)

        def work(thread: int) -> None:
            for turn in range(30):
                read(store, b"%d/%d" % (thread, turn))

        together([lambda thread=thread: work(thread) for thread in range(8)])  # type: ignore[misc]
        assert len(gateway.connections) <= 3


@pytest.mark.parametrize("newest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
class TestCertificates:
    @pytest.fixture
    def context(self, newest: ssl.TLSVersion) -> Callable[..., ssl.SSLContext]:
        def make(authority: Authority, *names: str, clients: Authority | None = None) -> ssl.SSLContext:
            context = authority.server_context(*names, clients=clients)
            context.maximum_version = newest
            return context

        return make

    def test_one_of_an_unknown_authority_is_refused(
        self, context: Any, authority: Authority, other_authority: Authority, open_over: Open
    ) -> None:
        with fake_gateway(context=context(authority, "127.0.0.1")) as gateway:
            for transport in (Transport(tls=True), Transport(tls=True, ca_file=other_authority.file)):
                error = error_of(open_over(gateway.port, transport))
                assert isinstance(error, StoreUnusableError)
                assert f"127.0.0.1:{gateway.port} has a certificate that cannot be trusted" in error.message

    def test_one_for_another_host_is_refused(self, context: Any, authority: Authority, open_over: Open) -> None:
        with fake_gateway(context=context(authority, "localhost")) as gateway:
            error = error_of(open_over(gateway.port, Transport(tls=True, ca_file=authority.file)))
            assert isinstance(error, StoreUnusableError)
            assert "cannot be trusted (IP address mismatch" in error.message
            assert gateway.received == []

    def test_a_client_certificate_is_sent_when_required(
        self, context: Any, authority: Authority, other_authority: Authority, open_over: Open
    ) -> None:
        client = other_authority.file_for("client.example")
        with fake_gateway(context=context(authority, "127.0.0.1", clients=other_authority)) as gateway:
            transport = Transport(tls=True, ca_file=authority.file, cert_file=client)
            read(open_over(gateway.port, transport))

    def test_a_missing_client_certificate_is_named(
        self, context: Any, authority: Authority, other_authority: Authority, open_over: Open
    ) -> None:
        with fake_gateway(context=context(authority, "127.0.0.1", clients=other_authority)) as gateway:
            error = error_of(open_over(gateway.port, Transport(tls=True, ca_file=authority.file)))
            assert f"127.0.0.1:{gateway.port}" in error.message
            assert "client certificate" in error.message
            assert gateway.received == []

    def test_a_client_certificate_of_another_authority_is_named(
        self, context: Any, authority: Authority, other_authority: Authority, open_over: Open
    ) -> None:
        client = authority.file_for("client.example")
        with fake_gateway(context=context(authority, "127.0.0.1", clients=other_authority)) as gateway:
            transport = Transport(tls=True, ca_file=authority.file, cert_file=client)
            error = error_of(open_over(gateway.port, transport))
            # With TLS 1.3 the gateway may close the connection before its reason arrives.
            assert "client certificate" in error.message
            assert gateway.received == []


def test_a_gateway_without_tls_is_named(authority: Authority, open_over: Open) -> None:
    for answer in (b"HTTP/1.1 400 Bad Request\r\n\r\n", b""):
        with speaker(lambda sock, answer=answer: (sock.recv(100), sock.sendall(answer), None)[2]) as port:  # type: ignore[misc]
            error = error_of(open_over(port, Transport(tls=True, ca_file=authority.file)))
            assert f"127.0.0.1:{port}" in error.message
            assert "tls=" in error.message


def test_a_gateway_that_is_silent_in_the_handshake_of_tls_was_not_applied(
    authority: Authority, open_over: Open
) -> None:
    stop = threading.Event()
    with speaker(lambda sock: (stop.wait(30), None)[1]) as port:
        error = error_of(open_over(port, Transport(tls=True, ca_file=authority.file), connect_timeout=0.2))
        assert isinstance(error, StoreNotAppliedError)
        assert "TLS was not established" in error.message
        stop.set()


def test_a_plain_client_is_asked_to_use_tls(
    authority: Authority, open_over: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It ends without a result.
    monkeypatch.setattr(handshake, "_DIAGNOSIS_SECONDS", 0.2)
    with fake_gateway(context=authority.server_context("127.0.0.1")) as gateway:
        for transport in (Transport(), Transport("framed"), Transport("http")):
            error = error_of(open_over(gateway.port, transport, timeout=60, connect_timeout=60))
            assert f"127.0.0.1:{gateway.port}" in error.message
            assert "TLS server" in error.message or "being stopped or started" in error.message


def test_closing_ends_calls_over_tls(authority: Authority, open_over: Open) -> None:
    with fake_gateway(context=authority.server_context("127.0.0.1")) as gateway:
        store = open_over(gateway.port, Transport(tls=True, ca_file=authority.file))

        def silent(_: ReceivedCall) -> None:
            gateway.stopping.wait(30)

        gateway.script = silent
        assert errors_of_closing(store, lambda: gateway.until(lambda: len(gateway.received) == 1)) == [ClosedError]


def test_a_call_over_tls_moves_on_to_another_gateway(authority: Authority) -> None:
    context = authority.server_context("127.0.0.1")
    with fake_gateway(context=context) as one, fake_gateway(context=context) as two:
        store = HBaseStore(
            [Address("127.0.0.1", one.port), Address("127.0.0.1", two.port)],
            transport=Transport(tls=True, ca_file=authority.file),
        )
        read(store)
        used, other = (one, two) if one.received else (two, one)
        used._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)  # it has no certificate, so it serves nobody
        used.connections[0].shutdown(socket.SHUT_RDWR)
        used.until(lambda: used.ended == [0])
        store.write("t", [PUT])
        assert [received.method for received in other.received] == ["put"]
        store.close()


def test_an_encrypted_key_is_refused_without_asking_for_its_password(authority: Authority, tmp_path: Path) -> None:
    from cryptography.hazmat.primitives.serialization import (
        BestAvailableEncryption,
        Encoding,
        PrivateFormat,
        load_pem_private_key,
    )

    issued = authority.issue("client.example")
    key = load_pem_private_key(issued.private_key_pem.bytes(), None)
    encrypted = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"s3cret"))
    (tmp_path / "key.pem").write_bytes(encrypted)
    issued.cert_chain_pems[0].write_to_path(str(tmp_path / "cert.pem"))
    with pytest.raises(InvalidValueError, match="the private key is encrypted"):
        Transport(tls=True, cert_file=str(tmp_path / "cert.pem"), key_file=str(tmp_path / "key.pem"))


def test_a_key_of_another_certificate_is_refused(authority: Authority, tmp_path: Path) -> None:
    authority.issue("a.example").private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    with pytest.raises(InvalidValueError, match=r"cert_file .* and key_file .* cannot be used \(KEY_VALUES_MISMATCH\)"):
        Transport(tls=True, cert_file=authority.file_for("b.example"), key_file=str(tmp_path / "key.pem"))

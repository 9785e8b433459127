"""The relay that puts a distance between clients and a server."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from benchmarks.distance import main
from benchmarks.wire import Relay

PIECES = [b"a" * 10, b"b" * 100_000, b"c"]


@pytest.fixture
def echo() -> Iterator[int]:
    """Run a server that returns what it receives and ends each connection when its client does; yield its port."""
    listener = socket.create_server(("127.0.0.1", 0))

    def answer(client: socket.socket) -> None:
        with client:
            while data := client.recv(1 << 16):
                client.sendall(data)

    def serve() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(client,), daemon=True).start()

    thread = threading.Thread(target=serve)
    thread.start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


def everything(sock: socket.socket) -> bytes:
    received = b""
    while data := sock.recv(1 << 16):
        received += data
    return received


@pytest.mark.parametrize("delay", [0, 0.05])
def test_the_relay_delays_each_direction_and_keeps_the_order_and_the_end(echo: int, delay: float) -> None:
    with Relay("127.0.0.1", echo, delay=delay) as relay:
        with socket.create_connection(("127.0.0.1", relay.port)) as client:
            began = time.monotonic()
            for piece in PIECES:
                client.sendall(piece)
            first = client.recv(1)
            assert time.monotonic() - began >= 2 * delay
            client.shutdown(socket.SHUT_WR)
            assert first + everything(client) == b"".join(PIECES)
        assert relay.sent == relay.received == sum(map(len, PIECES))


def test_the_command_prints_the_address_and_forwards_until_it_is_interrupted(echo: int) -> None:
    command = [sys.executable, "-m", "benchmarks.distance", f"127.0.0.1:{echo}", "--round-trip", "20"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            host, port = process.stdout.readline().strip().split(":")
            with socket.create_connection((host, int(port))) as client:
                began = time.monotonic()
                client.sendall(b"x")
                assert client.recv(1) == b"x"
                assert time.monotonic() - began >= 0.02
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(60) == 1


def test_a_port_that_is_in_use_is_refused(echo: int) -> None:
    result = CliRunner().invoke(main, [f"127.0.0.1:{echo}", "--port", str(echo)])
    assert result.exit_code == 2
    assert f"--port must be a free port, got {echo}" in result.output


@pytest.mark.parametrize("server", ["9091", ":9091", "localhost:", "localhost:x", "localhost:0", "localhost:65536"])
def test_a_server_that_is_not_named_is_refused(server: str) -> None:
    result = CliRunner().invoke(main, [server])
    assert result.exit_code == 2
    assert f"{server!r} does not name a server; expected HOST:PORT" in result.output

"""What a wire sends at once, and what it keeps for the next write."""

from __future__ import annotations

import select
import socket
import time

import pytest

from hbasemk.store.hbase.wire import Wire

PATIENCE = 0.05
"""Seconds. The system keeps data at most 0.2 s for the next write."""


@pytest.mark.skipif(not hasattr(socket, "MSG_MORE"), reason="the system sends each write by itself")
def test_two_requests_that_follow_each_other_travel_together() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        sock = socket.create_connection(listening.getsockname())
        other, _ = listening.accept()
    wire = Wire(sock, time.monotonic)
    with sock, other:
        while True:
            wire.start(time.monotonic() + 30)
            wire.more = True
            began = time.monotonic()
            wire.write(b"one")
            arrived = select.select([other], [], [], 0)[0]
            if time.monotonic() - began < PATIENCE:
                break
            other.recv(100)  # the machine was busy
        assert not arrived
        wire.more = False
        wire.write(b"two")
        assert other.recv(100) == b"onetwo"

"""What a wire sends at once, and what it keeps for the next write."""

from __future__ import annotations

import select
import socket
import time

import pytest

from hbasemk.store.hbase.wire import Wire


def test_two_requests_that_follow_each_other_travel_together() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        sock = socket.create_connection(listening.getsockname())
        other, _ = listening.accept()
    wire = Wire(sock, time.monotonic)
    with sock, other:
        wire.start(time.monotonic() + 30)
        wire.more = True
        wire.write(b"one")
        assert not select.select([other], [], [], 0)[0]
        assert not wire.sent_kept
        wire.more = False
        wire.write(b"two")
        assert other.recv(100) == b"onetwo"
        assert wire.sent_kept
        wire.start(time.monotonic() + 30)
        assert not wire.sent_kept
        wire.more = True
        wire.write(b"three")
        wire.more = False
        wire.shut_down()
        with pytest.raises(BrokenPipeError):
            wire.write(b"four")
        # A part of both may have been sent before the failure.
        assert wire.sent_kept

"""Messages are returned exactly."""

from __future__ import annotations

import json

import pytest

from tests.support.microkernel import Cluster


@pytest.mark.parametrize("message", ["", "\x00", "\x00\x00", "\x00a", "a\x00", "why\n", "\ud800", "ö" * 5000])
def test_a_message_is_returned_exactly(mk: Cluster, message: str) -> None:
    revision = mk.commit("", '+"/a":{}', None, message)
    merged = mk.merge(mk.commit("", '+"/b":{}', mk.branch(), message), message)
    entries = json.loads(str(mk.get_journal(revision, merged)))
    assert [entry["msg"] for entry in entries] == [message, message]
    history = json.loads(str(mk.get_revision_history(0, -1)))
    assert [entry["msg"] for entry in history[-2:]] == [message, message]
    assert [entry.message for entry in mk.next.repository.log()][:2] == [message, message]

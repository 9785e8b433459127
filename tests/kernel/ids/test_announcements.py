"""The log of a writer is written for the lease under which it was made."""

from __future__ import annotations

from typing import Any

import pytest

from hbasemk.format import schema
from hbasemk.store.abc import CheckAndWrite
from hbasemk.store.memory import MemoryStore
from tests.support.runtime import World, open_instance


def test_a_log_names_the_holder_and_machine_of_its_ids_although_the_lease_changes_before_it_is_sent(
    store: MemoryStore, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    announcements = open_instance(store, world, mac=1).announcements
    revision = announcements.next(0)
    lease = announcements._nonce, announcements._machine
    make, write = announcements._log, announcements._store.check_and_write
    written: list[tuple[bytes | None, bytes]] = []

    def make_and_lose() -> CheckAndWrite:
        log = make()
        # Another thread claims a lease anew, and makes an id.
        announcements._nonce, announcements._machine = b"another", announcements._machine + 1
        return log

    def record(table: str, column: Any, expected: bytes | None, put: Any, **options: Any) -> bool:
        written.append((expected, put.row))
        return write(table, column, expected, put, **options)

    with monkeypatch.context() as patch:
        patch.setattr(announcements, "_log", make_and_lose)
        patch.setattr(announcements._store, "check_and_write", record)
        announcements.announce(revision)
    announcements._nonce, announcements._machine = lease
    assert written == [(lease[0], schema.log_key(lease[1]))]
    assert announcements._acknowledged < revision

"""A host name that is not UTF-8 stops no commit."""

from __future__ import annotations

import socket

import pytest

from hbasemk import connect
from hbasemk.kernel.ids.leases import all_leases
from hbasemk.repository import instance_of


def test_a_process_on_a_host_whose_name_is_not_utf_8_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: b"h\xf6st".decode("utf-8", "surrogateescape"))
    with connect("memory://") as repo:
        repo.run(lambda tx: tx.add("/a", {}))
        (lease,) = all_leases(instance_of(repo).store).values()
        assert lease.holder.startswith("h\\udcf6st pid ")

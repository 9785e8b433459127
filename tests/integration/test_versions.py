"""Expected versions, deleted nodes and the schema number on a real HBase."""

from __future__ import annotations

import pytest

from hbasemk import SchemaVersionError, Settings, VersionMismatchError, connect
from tests.support.hbase import HBase
from tests.support.repositories import Checked

SETTINGS = Settings(lease_ms=1_000, max_clock_skew_ms=500)


@pytest.mark.integration
def test_an_expected_version_holds_before_and_after_the_snapshot(hbase: HBase, checked: Checked) -> None:
    url = checked(hbase.url(hbase.prefix_with_tables()))
    with connect(url, poll_interval=0) as first, connect(url, poll_interval=0) as second:
        first.run(lambda tx: (tx.add("/a", {"p": 1}), tx.add("/b")))
        base = second.refresh()
        token = base["/a"].version
        assert token == first.head["/a"].version
        first.run(lambda tx: tx.set("/a", "p", 2, if_version=token))
        with pytest.raises(VersionMismatchError) as caught, second.transaction(base=base) as tx:
            tx.expect("/a", token)
            tx.set("/b", "p", 1)
        assert caught.value.found == first.head["/a"].version
        with pytest.raises(VersionMismatchError):
            second.run(lambda tx: tx.remove("/a", if_version=token))
        second.run(lambda tx: tx.remove("/a", if_version=caught.value.found))
        found = second.head.status(["/a", "/b", "/c"])
        assert [one.status for one in found.values()] == ["deleted", "present", "absent"]
        assert found["/a"].revision == second.head.revision


@pytest.mark.integration
def test_an_old_release_stops_committing(hbase: HBase, checked: Checked) -> None:
    url = checked(hbase.url(hbase.prefix_with_tables()))
    with connect(url, poll_interval=0.1, settings=SETTINGS, schema_version=range(2)) as new:
        with connect(url, poll_interval=0.1, schema_version=0) as old:
            old.run(lambda tx: tx.add("/a"))
            new.set_schema_version(1, expected=0)
            with pytest.raises(SchemaVersionError):
                old.run(lambda tx: tx.add("/b"))
        new.run(lambda tx: tx.add("/c"))
        assert new.head.children("/") == ["a", "c"]
        assert new.schema_version == 1

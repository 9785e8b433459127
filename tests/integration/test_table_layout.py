"""Tables that are created with a compression and several regions, as `hbasemk init --splits --compression` does."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import hbasemk
from hbasemk import InvalidValueError, StoreUnusableError
from hbasemk.format import paths, schema
from hbasemk.repository import instance_of
from hbasemk.store.hbase import COMPRESSIONS, Address, gateway
from hbasemk.store.hbase.client import Client
from hbasemk.store.hbase.transport import Transport
from tests.support.commands import USAGE, Ran, assert_one_line, run_captured
from tests.support.hbase import HBase
from tests.support.repositories import Checked, problems

pytestmark = pytest.mark.integration
SPLITS = ["/articles/m", "/users"]


@pytest.fixture
def client(hbase: HBase) -> Any:
    made = Client([Address(hbase.host, hbase.thrift2)], Transport(), timeout=20, pool_size=2)
    yield made
    made.close()


def starts(client: Client, name: str) -> list[bytes]:
    """Return the first key of each region of a table, without the empty one."""
    found = client.call(gateway.REGIONS, gateway.REGIONS.request(name.encode()), name.encode())
    return sorted(one.region.start for one in found if one.region.start)


def test_tables_get_the_requested_regions_and_compression(hbase: HBase, client: Client, checked: Checked) -> None:
    prefix = hbase.new_prefix()
    url = checked(hbase.url(prefix))
    with hbasemk.connect(url, splits=SPLITS, compression="gz") as repository:
        for folder in ("/articles", "/users"):
            repository.run(lambda tx, folder=folder: tx.add(folder))  # type: ignore[misc]
        for name in "azn":
            repository.run(lambda tx, name=name: tx.add(f"/articles/{name}", {"x": name}))  # type: ignore[misc]
        assert repository.refresh().children("/articles") == ["a", "n", "z"]
        assert problems(repository) == []
    assert starts(client, f"{prefix}nodes") == sorted(map(paths.key, SPLITS))
    assert starts(client, f"{prefix}blobs") == [b"\x55\x55", b"\xaa\xaa"]
    assert starts(client, f"{prefix}journal") == starts(client, f"{prefix}cluster") == []
    names = [gateway.idl.TableName(None, f"{prefix}{table.name}".encode()) for table in schema.TABLES]
    described = client.call(gateway.DESCRIBE, gateway.DESCRIBE.request(names), b"")
    families = [family for one in described for family in one.families]
    assert len(families) == 5
    assert {family.compression for family in families} == {COMPRESSIONS["GZ"]}


def test_init_again_accepts_the_same_layout_and_no_other(
    hbase: HBase, checked: Checked, capsys: pytest.CaptureFixture[str]
) -> None:
    url = checked(hbase.url(hbase.new_prefix()))

    def init(*arguments: str) -> Ran:
        return Ran(*run_captured(capsys, "--url", url, "init", *arguments))

    same = ("--splits", "/users", "--compression", "GZ")
    for arguments in (same, same, ()):
        assert init(*arguments).code == 0
    assert_one_line(init("--compression", "none"), USAGE, "exists with COMPRESSION = GZ, not NONE. It was not changed")
    assert_one_line(init("--splits", "/other"), USAGE, "no region of it begins at the path /other. It was not changed")


def test_a_codec_that_hbase_lacks_is_named_and_no_table_is_created(hbase: HBase) -> None:
    url = hbase.url(hbase.new_prefix())
    with pytest.raises(StoreUnusableError, match="HBase cannot compress with LZO, so table .* was not created"):
        hbasemk.connect(url, compression="LZO")
    with pytest.raises(StoreUnusableError, match="does not exist"):
        hbasemk.connect(url, create=False)


def test_two_creators_with_different_layouts_do_not_both_succeed(hbase: HBase, checked: Checked) -> None:
    url = checked(hbase.url(hbase.new_prefix()))

    def create(path: str) -> str | None:
        try:
            with hbasemk.connect(url, splits=[path], poll_interval=0) as repository:
                return str(instance_of(repository).settings.epoch_ms)
        except InvalidValueError as error:
            assert "no region of it begins at" in str(error)
            return None

    with ThreadPoolExecutor(2) as threads:
        assert sorted(threads.map(create, ["/a", "/b"]), key=str)[1] is None
    with hbasemk.connect(url) as repository:
        repository.run(lambda tx: tx.add("/works"))

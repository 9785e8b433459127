"""The integrity check and its repair on HBase: all kinds of damage in one repository, and none in an intact one."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from functools import partial

import pytest

from hbasemk import Settings
from hbasemk.check import Workers
from hbasemk.check import problem as kinds
from hbasemk.format import paths, schema
from hbasemk.kernel.commit.operations import AddNode
from hbasemk.kernel.instance import Instance
from hbasemk.opening import opened_instance
from hbasemk.store.hbase import Address, HBaseStore
from hbasemk.system import SystemRuntime
from tests.support.check_workers import use_for_all_rows
from tests.support.corruptions import CASES
from tests.support.features import use_everything
from tests.support.hbase import HBase
from tests.support.machines import Machine
from tests.support.tables import Tables

pytestmark = pytest.mark.integration


@pytest.fixture
def tables(hbase: HBase, request: pytest.FixtureRequest) -> Iterator[Tables]:
    """Return a new repository, with leases of 4 s or of the parameter, in ms."""
    store = HBaseStore([Address(hbase.host, hbase.thrift2)], prefix=hbase.new_prefix())
    settings = Settings(lease_ms=getattr(request, "param", 4_000), max_clock_skew_ms=1_500)
    runtime = SystemRuntime()

    def opened(mac: int) -> Instance:
        return Instance.open(store, Machine(mac), wanted=settings)

    yield Tables(store, opened, runtime.sleep, runtime.now_ms)
    store.close()


# The check must end while the leases of the live writers last, on a slow machine, too.
@pytest.mark.parametrize("tables", [15_000], indirect=True)
def test_a_repository_that_used_every_feature_has_no_problems(tables: Tables) -> None:
    use_everything(tables)
    assert tables.problems(live=True) == []


@pytest.mark.parametrize("moves_watermark", [False, True])
def test_all_kinds_of_damage_at_once_are_reported_and_repaired_if_possible(
    tables: Tables, moves_watermark: bool
) -> None:
    together = {
        name: case for name, case in CASES.items() if not case.alone and case.moves_watermark is moves_watermark
    }
    wanted = {}
    # Ids of another time come last: an instance commits only once the present has passed every id that it has seen.
    ordered = sorted(together.items(), key=lambda one: one[1].kind in {kinds.OUTSIDE_LEASE, kinds.OFF_CLOCK})
    for number, (name, case) in enumerate(ordered):
        wanted[name] = (case.kind, *case.damage(tables, f"/damaged{number:02}"))
    tables.wait(7)
    found = tables.found()
    assert {name: where for name, where in wanted.items() if where not in found} == {}
    # A first repair may reveal damage that was hidden.
    tables.repair()
    tables.repair()
    found = tables.found()
    # The watermark stops at the other damage, so it does not pass what no log shows.
    repaired = {name for name, case in together.items() if case.repaired and case.kind != kinds.UNANNOUNCED}
    assert {name: where for name, where in wanted.items() if name in repaired and where in found} == {}
    assert {name: where for name, where in wanted.items() if name not in repaired and where not in found} == {}


@pytest.mark.parametrize("tables", [15_000], indirect=True)
def test_several_processes_find_what_one_finds(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(tables.store, HBaseStore)
    url = tables.store.location
    for first in range(0, 800, 100):
        tables.commit(AddNode(f"/{first}", {}), *(AddNode(f"/{first}/{number}", {"n": number}) for number in range(99)))
    for first in range(0, 800, 100):
        tables.remove(schema.NODES, paths.key(f"/{first}/50"), schema.property_column("n"))

    def found(number: int) -> list[str]:
        several = Workers(number, partial(opened_instance, url))
        return sorted(map(str, tables.problems(live=True, workers=several)))

    use_for_all_rows(monkeypatch)
    alone = found(1)
    assert len(alone) == 8
    assert found(2) == alone
    assert multiprocessing.active_children() == []

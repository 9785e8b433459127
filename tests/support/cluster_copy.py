"""A standalone HBase in the network of a cluster, to which the cluster replicates tables."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from hbasemk.format import schema
from hbasemk.opening import open_store
from tests.support.cluster import Administrator, Cluster

BUILD: Final = Path(__file__).parents[2] / "docker" / "hbase"
HOST: Final = "copy"
"""The name of the copy in the network, and of the peer in the cluster."""
READY_WITHIN: Final = 240.0
"""Seconds for the copy to become healthy."""


@contextmanager
def running_copy(cluster: Cluster, port: int, folder: Path) -> Iterator[str]:
    """Run the copy, with its gateway at a port of this machine; return the name of its container."""
    container = f"{cluster.name}-{HOST}"
    built = subprocess.run(["sh", BUILD / "build.sh"], stdout=subprocess.PIPE, text=True, check=True)
    # It listens on loopback only; here region servers of the cluster connect to it.
    site = (BUILD / "conf" / "hbase-site.xml").read_text()
    for name in (
        "hbase.zookeeper.property.clientPortAddress",
        "hbase.master.ipc.address",
        "hbase.regionserver.ipc.address",
    ):
        site = site.replace(f"<name>{name}</name><value>127.0.0.1<", f"<name>{name}</name><value>0.0.0.0<")
    site = site.replace("<value>127.0.0.1<", f"<value>{HOST}<").replace("<value>localhost<", f"<value>{HOST}<")
    file = folder / "hbase-site.xml"
    file.write_text(site)
    options = ["--hostname", HOST, "--network", cluster.name, "--publish", f"127.0.0.1:{port}:9091"]
    _docker("create", "--name", container, *options, built.stdout.strip())
    try:
        _docker("cp", str(file), f"{container}:/opt/hbase/conf/hbase-site.xml")
        _docker("start", container)
        deadline = time.monotonic() + READY_WITHIN
        while subprocess.run(["docker", "exec", container, "/opt/hbase/bin/health"], check=False).returncode:
            assert time.monotonic() < deadline, f"{container} is not healthy after {READY_WITHIN} s"
            time.sleep(1)
        yield container
    finally:
        _docker("rm", "--force", "--volumes", container)


@contextmanager
def replicated(url: str, prefix: str, administrator: Administrator) -> Iterator[None]:
    """Create the tables of a repository, and send them to the copy until the end."""
    store, _, _ = open_store(url)
    with closing(store):
        store.create_tables(schema.TABLES)
    tables = [prefix + table.name for table in schema.TABLES]
    administrator("replicate", HOST, f"{HOST}:2181:/hbase", *tables)
    try:
        yield
    finally:
        administrator("remove-peer", HOST)


def spread_tables(prefix: str, administrator: Administrator) -> None:
    """Move the tables to different region servers, which replicate without a common order."""
    servers = administrator("servers")
    for number, table in enumerate(schema.TABLES):
        for line in administrator("regions", prefix + table.name):
            administrator("move", line.partition(" ")[0], servers[number % len(servers)])


def _docker(*arguments: str) -> None:
    subprocess.run(["docker", *arguments], stdout=subprocess.DEVNULL, check=True)

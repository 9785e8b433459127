"""More gateways of a real HBase: processes in its container that a test starts, kills, hangs and configures."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tests.support.hbase import HBase
from tests.support.hbase_container import MORE_PORTS, READY_WITHIN

_START = """
mkdir -p /run/hbasemk/{port}
sed 's#</configuration>#{properties}</configuration>#' /opt/hbase/conf/hbase-site.xml >/run/hbasemk/{port}/hbase-site.xml
echo $$ >/run/hbasemk/{port}/pid
# The HTTP server needs a newer servlet API than the one that the order of names puts first.
exec /opt/java/bin/java @/opt/hbase/conf/jvm.options -Xmx128m -Dhbasemk.data=/data -Dhbasemk.zookeeper.port=2181 \
    -cp '/run/hbasemk/{port}:/opt/hbase/lib/javax.servlet-api-3.1.0.jar:/opt/hbase/conf:/opt/hbase/classes:/opt/hbase/lib/*' \
    org.apache.hadoop.hbase.thrift2.ThriftServer start -p {port} -b 0.0.0.0 --infoport -1 >>/run/hbasemk/{port}/log 2>&1
"""


class GatewayProcess:
    """A Thrift2 gateway in the container of an HBase; ``port`` is where this machine reaches it."""

    def __init__(self, hbase: HBase, inside: int, settings: Mapping[str, str]) -> None:
        self.port = hbase.more_ports[inside]
        self._hbase = hbase
        self._inside = inside
        self._settings = settings

    def start(self) -> None:
        """Start the process; return before it answers."""
        properties = "".join(
            f"<property><name>{name}</name><value>{value}</value></property>" for name, value in self._settings.items()
        )
        script = _START.format(port=self._inside, properties=properties)
        self._hbase.container.exec_run(["bash", "-c", script], detach=True)

    def url(self, prefix: str) -> str:
        """Return the URL of the repository with a prefix, through this gateway."""
        return f"hbase://{self._hbase.host}:{self.port}/?prefix={prefix}"

    def signal(self, name: str) -> None:
        """Send a signal to the process: KILL, or STOP and CONT to let it hang and go on."""
        self._hbase.run_inside(["bash", "-c", f"kill -{name} $(cat /run/hbasemk/{self._inside}/pid)"])

    def until_ready(self) -> None:
        """Wait until the process listens."""
        deadline = time.monotonic() + READY_WITHIN
        probe = ["bash", "-c", f"exec 3<>/dev/tcp/127.0.0.1/{self._inside}"]
        while self._hbase.container.exec_run(probe).exit_code:
            if time.monotonic() > deadline:
                log = self._hbase.run_inside(["tail", "-n", "60", f"/run/hbasemk/{self._inside}/log"])
                raise RuntimeError(f"the gateway did not become ready:\n{log}")
            time.sleep(0.25)


@contextmanager
def gateway_process(hbase: HBase, settings: Mapping[str, str] | None = None) -> Iterator[GatewayProcess]:
    """Start one more gateway of an HBase, with these settings; skip the test if the HBase ran before the tests.

    Several may start at the same time; `until_ready` waits for one.
    """
    hbase.needs_own_gateway()
    inside = next(port for port in MORE_PORTS if port not in hbase.ports_in_use)
    hbase.ports_in_use.add(inside)
    made = GatewayProcess(hbase, inside, settings or {})
    try:
        made.start()
        yield made
    finally:
        with contextlib.suppress(AssertionError):
            made.signal("KILL")
        hbase.ports_in_use.discard(inside)

"""A distributed HBase in containers (`docker/cluster`), and what tests do to its servers."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

SCRIPT: Final = Path(__file__).parents[2] / "docker" / "cluster"
GATEWAYS: Final = ("gateway1", "gateway2")


class RefusedError(Exception):
    """HBase refused a command of the administrator."""


class Administrator:
    """Sends commands to HBase (`docker/hbase/Administrator.java`) by a process in a container.

    ``configuration`` is the folder of HBase's configuration in the container.
    """

    def __init__(self, container: str, configuration: str = "/opt/hbase/cluster") -> None:
        # A thread of the process ends when its input does, so nothing stays in the container.
        command = ["docker", "exec", "--interactive", container, "/opt/hbase/bin/administrator", configuration]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, bufsize=1
        )

    def __call__(self, *words: str) -> list[str]:
        """Run a command; return the lines of its answer. Raises RefusedError."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(" ".join(words) + "\n")
        lines: list[str] = []
        while True:
            line = self._process.stdout.readline()
            if not line:
                raise RefusedError(f"the administrator's process ended at {words}")
            line = line.rstrip("\n")
            if line == "ok":
                return lines
            if line.startswith("error "):
                raise RefusedError(f"{words}: {line}")
            # Other lines are log messages.
            if line.startswith("= "):
                lines.append(line[2:])

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


class Cluster:
    """The servers of a running cluster."""

    def __init__(self, name: str, ports: tuple[int, int]) -> None:
        self.name = name
        self.ports = ports

    @property
    def environment(self) -> dict[str, str]:
        """The variables of the script."""
        one, two = map(str, self.ports)
        return {"HBASEMK_CLUSTER": self.name, "HBASEMK_GATEWAY1_PORT": one, "HBASEMK_GATEWAY2_PORT": two}

    def script(self, *arguments: str) -> str:
        """Run `docker/cluster`."""
        variables = {**os.environ, **self.environment}
        return subprocess.run([SCRIPT, *arguments], env=variables, stdout=subprocess.PIPE, text=True, check=True).stdout

    def url(self, prefix: str) -> str:
        """The URL of the repository with a prefix, at both gateways."""
        return f"hbase://{','.join(f'127.0.0.1:{port}' for port in self.ports)}/?prefix={prefix}&timeout=10"

    def docker(self, verb: str, server: str, *options: str) -> None:
        """Kill, start, pause or unpause the container of a server."""
        subprocess.run(["docker", verb, *options, f"{self.name}-{server}"], stdout=subprocess.DEVNULL, check=True)

    def inside(self, server: str, command: str) -> int:
        """Run a shell command in the container of a server; return its exit code."""
        return subprocess.run(
            ["docker", "exec", f"{self.name}-{server}", "bash", "-c", command],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        ).returncode

    def set_clock_off(self, server: str, milliseconds: int) -> None:
        """Let the clock of a region server differ from the machine's."""
        assert self.inside(server, f"echo {milliseconds} >/run/hbasemk/clock") == 0

    def is_healthy(self, server: str) -> bool:
        """Return whether a server works."""
        return self.inside(server, f"/opt/hbase/bin/health {server.rstrip('123')}") == 0

    def until_healthy(self, server: str, seconds: float = 240.0) -> None:
        """Wait until a server works."""
        deadline = time.monotonic() + seconds
        while not self.is_healthy(server):
            assert time.monotonic() < deadline, f"{server} is not healthy after {seconds} s"
            time.sleep(0.5)

    @contextmanager
    def administrator(self) -> Iterator[Administrator]:
        """Connect as administrator, from the container of the name node, which no test kills."""
        made = Administrator(f"{self.name}-namenode")
        try:
            yield made
        finally:
            made.close()


def free_port() -> int:
    """Return a port of this machine that nothing uses."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: Any = one.getsockname()[1]
        return int(port)


@contextmanager
def running_cluster() -> Iterator[Cluster]:
    """The cluster that `HBASEMK_TEST_CLUSTER=name:port:port` names, or one that lives as long as the test."""
    given = os.environ.get("HBASEMK_TEST_CLUSTER")
    if given:
        name, one, two = given.split(":")
        yield Cluster(name, (int(one), int(two)))
        return
    made = Cluster(f"hbasemk-test-{os.getpid()}", (free_port(), free_port()))
    try:
        made.script("up")
        yield made
    finally:
        made.script("down")

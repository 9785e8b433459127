"""The container in which the tests run HBase. All processes of one run of pytest share it."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

BUILD = Path(__file__).parents[2] / "docker" / "hbase" / "build.sh"
READY_WITHIN = 240.0
"""Seconds for the container to become healthy."""
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""HBase lives for some minutes only: compiling its code well takes it more time than that saves."""
REMOVER = """
import fcntl, pathlib, subprocess, sys
known = pathlib.Path(sys.argv[2])
with open(sys.argv[1], "a+") as users:
    fcntl.lockf(users, fcntl.LOCK_EX)
    if known.exists():
        subprocess.run(["docker", "rm", "--force", "--volumes", known.read_text()])
        known.unlink()
"""
"""Removes the container when no process uses it any more. It finds one only if the last user has been killed."""
MORE_PORTS = range(9092, 9097)
"""Ports in the container for gateways that tests start."""


@contextmanager
def shared_container(directory: Path) -> Iterator[Any]:
    """The HBase container of this run: the first process that asks for it starts it, and the last one removes it.

    The processes of the run find each other in ``directory``.
    """
    # Ryuk would remove it with the process that has started it.
    os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")
    known = directory / "hbase.container"
    # Record locks end with their process, so a killed process does not keep the container.
    with open(directory / "hbase.lock", "a+") as lock, open(directory / "hbase.users", "a+") as users:
        with _locked(lock):
            fcntl.lockf(users, fcntl.LOCK_SH)
            if not known.exists():
                _start_remover(users.name, known)
                _start(known)
            found = _find(known.read_text())
        try:
            yield found
        finally:
            with _locked(lock):
                if _is_last(users):
                    known.unlink()
                    found.remove(force=True, v=True)


def _start_remover(users: str, known: Path) -> None:
    """Start a process that outlives all users, as a child of none."""
    subprocess.run(
        ["sh", "-c", '"$@" &', "sh", sys.executable, "-c", REMOVER, users, str(known)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        check=True,
    )


@contextmanager
def _locked(file: IO[str]) -> Iterator[None]:
    fcntl.lockf(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.lockf(file, fcntl.LOCK_UN)


def _is_last(users: IO[str]) -> bool:
    """Stop using the container; return whether no other process uses it."""
    try:
        fcntl.lockf(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        # Before the next process asks: this one uses it no longer.
        fcntl.lockf(users, fcntl.LOCK_UN)
        return False
    return True


def _find(container: str) -> Any:
    from testcontainers.core.docker_client import DockerClient

    return DockerClient().client.containers.get(container)


def _start(known: Path) -> None:
    """Start a container, write its id to a file, and return when it is healthy."""
    from testcontainers.core.container import DockerContainer

    built = subprocess.run(["sh", str(BUILD)], stdout=subprocess.PIPE, text=True, check=True)
    container = DockerContainer(built.stdout.strip())
    # Published on loopback only, on ports that are free.
    addresses: dict[str, Any] = {f"{port}/tcp": ("127.0.0.1", None) for port in (9090, 9091, *MORE_PORTS)}
    container.ports = addresses
    container.with_env("JDK_JAVA_OPTIONS", JAVA_OPTIONS)
    # Docker would run the health check every two seconds; `_until_healthy` runs it.
    container.with_kwargs(healthcheck={"test": ["NONE"]})
    try:
        container.start()
        started = container.get_wrapped_container()
        known.write_text(str(started.id))
        _until_healthy(started)
    except BaseException:
        known.unlink(missing_ok=True)
        container.stop(force=True, delete_volume=True)
        raise


def _until_healthy(container: Any) -> None:
    deadline = time.monotonic() + READY_WITHIN
    while True:
        container.reload()
        up = container.status == "running"
        if up and container.exec_run(["/opt/hbase/bin/health"]).exit_code == 0:
            return
        if not up or time.monotonic() > deadline:
            raise RuntimeError(f"HBase did not become ready:\n{container.logs(tail=60).decode(errors='replace')}")
        time.sleep(0.25)

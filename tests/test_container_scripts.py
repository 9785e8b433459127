"""Scripts of the container (`docker/hbase`), run outside of one."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "docker" / "hbase"


def run(script: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = ["bash", str(FOLDER / script), *arguments]
    variables = {**os.environ, **environment}
    return subprocess.run(command, env=variables, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that the folder of the run names as the gateway."""
    with subprocess.Popen(["sleep", "600"]) as process:
        (tmp_path / "thrift2.pid").write_text(f"{process.pid}\n")
        yield process
        process.kill()


def test_a_gateway_that_runs_is_not_started_again(tmp_path: Path, gateway: subprocess.Popen[bytes]) -> None:
    # The entry point would restart it after its next crash, instead of ending.
    assert run("gateway.sh", "start", HBASEMK_RUN=str(tmp_path)).returncode == 0
    assert not (tmp_path / "thrift2.restart").exists()
    assert run("gateway.sh", "stop", HBASEMK_RUN=str(tmp_path)).returncode == 0
    assert gateway.wait(60) == -9
    assert run("gateway.sh", "start", HBASEMK_RUN=str(tmp_path)).returncode == 0
    assert (tmp_path / "thrift2.restart").exists()


@pytest.mark.usefixtures("gateway")
def test_a_gateway_that_is_stopped_is_not_stopped_again(tmp_path: Path) -> None:
    assert run("gateway.sh", "stop", HBASEMK_RUN=str(tmp_path)).returncode == 0
    done = run("gateway.sh", "stop", HBASEMK_RUN=str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "gateway: the gateway is stopped already\n")


def test_a_server_without_a_role_says_which_there_are(tmp_path: Path) -> None:
    # The script creates folders before it looks at its role.
    programs = tmp_path / "mkdir"
    programs.write_text("#!/bin/sh\n")
    programs.chmod(0o755)
    done = run("server.sh", PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert done.returncode == 2
    assert "ROLE must be zookeeper, namenode, datanode, master, regionserver or gateway, got ''" in done.stderr

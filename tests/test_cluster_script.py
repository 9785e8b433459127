"""`docker/cluster`: it generates the compose file, and starts the servers that this file describes."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

DOCKER = Path(__file__).parents[1] / "docker"
COMPOSE = (DOCKER / "compose.cluster.yaml").read_text()
SERVERS = re.findall(r"^  (\w+):$", COMPOSE.partition("\nservices:\n")[2], re.MULTILINE)


def cluster(*arguments: str, **environment: str) -> str:
    """Run the script; return its output."""
    command = [DOCKER / "cluster", *arguments]
    variables = {name: value for name, value in os.environ.items() if not name.startswith("HBASEMK_")} | environment
    return subprocess.run(command, env=variables, stdout=subprocess.PIPE, text=True, check=True).stdout


def docker_calls(folder: Path, *arguments: str) -> list[list[str]]:
    """Return the arguments of each call of docker, which a script replaces that finds every container missing."""
    record = folder / "calls"
    fake = folder / "docker"
    fake.write_text(f'#!/bin/sh\nprintf "%s\\n" "$(printf "\'%s\' " "$@")" >>{record}\n[ "$2" != inspect ]\n')
    fake.chmod(0o755)
    build = folder / "sh"
    build.write_text('#!/bin/sh\ncase $1 in *build.sh) echo image ;; *) exec /bin/sh "$@" ;; esac\n')
    build.chmod(0o755)
    cluster(*arguments, PATH=f"{folder}:{os.environ['PATH']}")
    return [shlex.split(line) for line in record.read_text().splitlines()]


def test_the_compose_file_is_the_generated_one() -> None:
    assert cluster("compose") == COMPOSE


def test_up_starts_the_servers_of_the_compose_file_in_the_same_way(tmp_path: Path) -> None:
    runs = [call for call in docker_calls(tmp_path, "up") if call[0] == "run"]
    assert [call[call.index("--hostname") + 1] for call in runs] == SERVERS
    for server, call in zip(SERVERS, runs, strict=True):
        service = re.split(r"\n  \w", COMPOSE.partition(f"\n  {server}:\n")[2])[0]
        assert f"entrypoint: [{call[call.index('--entrypoint') + 1]}, {call[-1]}]" in service
        assert f'HBASEMK_HEAP: "{call[call.index("--env") + 1].partition("=")[2]}"' in service
        assert f"[CMD, {call[call.index('--health-cmd') + 1].replace(' ', ', ')}]" in service
        ports = [call[at + 1] for at, word in enumerate(call) if word == "--publish"]
        assert [re.sub(r":\$\{\w+:-(\d+)\}", r":\1", one) for one in re.findall(r'ports: \["(.*)"\]', service)] == ports
        assert all(port.startswith("127.0.0.1:") for port in ports)


def test_down_removes_every_container_with_its_data(tmp_path: Path) -> None:
    removed = [call for call in docker_calls(tmp_path, "down") if call[0] == "rm"]
    assert removed == [["rm", "--force", "--volumes", f"hbasemk-cluster-{server}"] for server in SERVERS]


def test_the_url_names_both_gateways() -> None:
    url = cluster("url", HBASEMK_GATEWAY1_PORT="1", HBASEMK_GATEWAY2_PORT="2").strip()
    assert url == "hbase://127.0.0.1:1,127.0.0.1:2/?prefix=try_"

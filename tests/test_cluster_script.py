"""`docker/cluster`: it generates the compose file, and starts the servers that this file describes."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

DOCKER = Path(__file__).parents[1] / "docker"
COMPOSE = (DOCKER / "compose.cluster.yaml").read_text()
SERVERS = re.findall(r"^  (\w+):$", COMPOSE.partition("\nservices:\n")[2], re.MULTILINE)


def cluster(*arguments: str, **environment: str) -> str:
    """Run the script; return its output."""
    done = attempt(*arguments, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def attempt(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the script, which may fail."""
    command = [DOCKER / "cluster", *arguments]
    variables = {name: value for name, value in os.environ.items() if not name.startswith("HBASEMK_")} | environment
    return subprocess.run(command, env=variables, capture_output=True, text=True, check=False)


def docker_path(folder: Path, refused: str = "nothing", *, unhealthy: bool = False, port: str = "") -> str:
    """Return a PATH with a script in place of docker, which finds every container missing and does not run ``refused``.

    With ``port`` all containers exist, and this is their port.
    It writes the arguments of each call into the file `calls`. With the variable DOCKER_HOST there is no engine.
    """
    fake = folder / "docker"
    fake.write_text(
        f"""#!/bin/sh
printf "%s\\n" "$(printf "'%s' " "$@")" >>{folder / "calls"}
[ "$2" != inspect ] || {{ echo {port}; exit {0 if port else 1}; }}
[ "${{1}} ${{DOCKER_HOST:-}}" != "version nowhere" ] || exit 1
[ "$1 {unhealthy}" != "exec True" ] || exit 1
case "$*" in "run "*"--hostname {refused} "*) exit 125 ;; esac
"""
    )
    fake.chmod(0o755)
    build = folder / "sh"
    build.write_text('#!/bin/sh\ncase $1 in *build.sh) echo image ;; *) exec /bin/sh "$@" ;; esac\n')
    build.chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


def docker_calls(folder: Path, *arguments: str) -> list[list[str]]:
    """Run the script; return the arguments of each call of docker, where every container is missing."""
    cluster(*arguments, PATH=docker_path(folder))
    return recorded(folder)


def recorded(folder: Path) -> list[list[str]]:
    """Return the arguments of each recorded call of docker."""
    return [shlex.split(line) for line in (folder / "calls").read_text().splitlines()]


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


def test_up_removes_a_container_that_docker_could_not_start(tmp_path: Path) -> None:
    # docker keeps it with its port: a later `up` would start it with the old one.
    done = attempt("up", PATH=docker_path(tmp_path, refused="gateway2"), HBASEMK_GATEWAY2_PORT="7")
    assert done.returncode == 1
    assert recorded(tmp_path)[-1] == ["rm", "--force", "--volumes", "hbasemk-cluster-gateway2"]
    assert "gateway2 did not start" in done.stderr
    assert "HBASEMK_GATEWAY2_PORT" in done.stderr
    assert "port 7" in done.stderr
    assert "docker/cluster down" in done.stderr


def test_no_port_is_to_blame_if_a_server_without_one_does_not_start(tmp_path: Path) -> None:
    done = attempt("up", PATH=docker_path(tmp_path, refused="master1"))
    assert done.returncode == 1
    assert recorded(tmp_path)[-1] == ["rm", "--force", "--volumes", "hbasemk-cluster-master1"]
    assert "master1 did not start" in done.stderr
    assert "_PORT" not in done.stderr
    assert "docker/cluster down" in done.stderr


@pytest.mark.parametrize("command", ["up", "status", "logs", "down"])
def test_a_missing_engine_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.chdir(tmp_path)
    done = attempt(command, PATH=docker_path(tmp_path), DOCKER_HOST="nowhere")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "cluster: no Docker engine answers; start one\n"
    assert recorded(tmp_path) == [["version"]]


def test_the_status_has_one_line_for_each_server(tmp_path: Path) -> None:
    path = docker_path(tmp_path, unhealthy=True)
    assert cluster("status", PATH=path).splitlines() == [f"{server} missing" for server in SERVERS]


def test_up_works_through_a_link(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(DOCKER / "cluster")
    path = docker_path(tmp_path)
    (tmp_path / "sh").write_text('#!/bin/sh\n[ ! -e "$1" ] || echo image\n')
    environment = {**os.environ, "PATH": path}
    done = subprocess.run([link, "up"], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (run, *_) = [call for call in recorded(tmp_path) if call[0] == "run"]
    assert run[-2:] == ["image", "zookeeper"]


def test_up_starts_servers_that_exist(tmp_path: Path) -> None:
    cluster("up", PATH=docker_path(tmp_path, port="9"), HBASEMK_GATEWAY1_PORT="9", HBASEMK_GATEWAY2_PORT="9")
    calls = [call for call in recorded(tmp_path) if call[0] in ("start", "run")]
    assert calls == [["start", f"hbasemk-cluster-{server}"] for server in SERVERS]


def test_up_refuses_another_port_for_a_gateway_that_exists(tmp_path: Path) -> None:
    done = attempt("up", PATH=docker_path(tmp_path, port="9"), HBASEMK_GATEWAY1_PORT="9", HBASEMK_GATEWAY2_PORT="7")
    assert done.returncode == 1
    assert "ready" not in done.stderr
    assert "gateway2 exists with port 9, not 7; set HBASEMK_GATEWAY2_PORT to 9" in done.stderr
    assert "docker/cluster down" in done.stderr


@pytest.mark.parametrize("arguments", [[], ["upp"], ["up", "9093"], ["url", "x"], ["logs", "a", "b"]], ids=" ".join)
def test_other_arguments_are_refused_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    done = attempt(*arguments, PATH=docker_path(tmp_path))
    assert (done.returncode, done.stdout, (tmp_path / "calls").exists()) == (2, "", False)
    assert done.stderr.startswith("usage: ")


def test_the_page_that_the_compose_file_names_describes_the_cluster() -> None:
    (page,) = re.findall(r"docs/\w+\.md", COMPOSE)
    assert "docker/compose.cluster.yaml" in (DOCKER.parent / page).read_text(encoding="utf-8")

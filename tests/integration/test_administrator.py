"""The administrator of the image (`docker/hbase/Administrator.java`), as the backup of docs/clusters.md uses it."""

from __future__ import annotations

import subprocess

import pytest

from tests.support.hbase import HBase

pytestmark = pytest.mark.integration


@pytest.mark.parametrize(
    ("commands", "answers", "code"),
    [
        (["servers"], ["=", "ok"], 0),
        (["snapshot no_such_table monday", "servers"], ["error", "=", "ok"], 1),
    ],
    ids=["all succeed", "the first one fails"],
)
def test_it_executes_all_commands_and_exits_with_1_if_one_failed(
    hbase: HBase, commands: list[str], answers: list[str], code: int
) -> None:
    hbase.needs_own_gateway()
    command = ["docker", "exec", "--interactive", hbase.container.id]
    done = subprocess.run(
        [*command, "/opt/hbase/bin/administrator", "/opt/hbase/conf"],
        input="".join(f"{line}\n" for line in commands),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        timeout=120,
        check=False,
    )
    first_words = [line.split(" ")[0] for line in done.stdout.splitlines()]
    assert [word for word in first_words if word in {"=", "ok", "error"}] == answers
    assert done.returncode == code

"""Which HBase a run of the tests uses, and which tests may use it (`tests/conftest.py`)."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.hbase import HBase, unused_prefix

ROOT = Path(__file__).parents[1]


def collect(file: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Collect the tests of a file, in a run that uses these variables."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--collect-only"]
    command += ["-p", "tests.conftest", "-c", str(ROOT / "setup.cfg"), str(file)]
    variables = {**os.environ, "HBASEMK_TEST_HBASE": "here:1", "HBASEMK_TEST_HBASE_THRIFT1": ""} | environment
    return subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "test_it.py"
    path.write_text("import pytest\n\n\n@pytest.mark.integration\ndef test_it(hbase_server):\n    pass\n")
    return path


@pytest.mark.parametrize(
    ("variable", "value", "problem"),
    [
        ("HBASEMK_TEST_HBASE", "here", "must be host:port, got 'here'"),
        ("HBASEMK_TEST_HBASE", "here:x", "must be host:port, got 'here:x'"),
        ("HBASEMK_TEST_HBASE_THRIFT1", "9090", "must be host:port, got '9090'"),
        ("HBASEMK_TEST_HBASE_THRIFT1", "there:9090", "must name the host 'here', got 'there'"),
    ],
)
def test_an_address_that_no_test_can_use_ends_the_run(file: Path, variable: str, value: str, problem: str) -> None:
    done = collect(file, **{variable: value})
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert f"{variable} {problem}" in done.stderr


def test_a_test_on_hbase_needs_its_mark(file: Path) -> None:
    assert collect(file, HBASEMK_TEST_HBASE_THRIFT1="here:2").returncode == 0
    file.write_text("def test_it(hbase_server):\n    pass\n")
    done = collect(file)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "test_it uses HBase; mark it with pytest.mark.integration" in done.stderr


class Failing(HBase):
    """An HBase that creates the tables under every second prefix only."""

    def __init__(self) -> None:
        super().__init__("here", 1, None)
        self.turns = itertools.count()
        self.created: list[str] = []
        self.removed: list[str] = []

    def _create_tables(self) -> str:
        if next(self.turns) % 2:
            raise OSError("no tables")
        self.created.append(unused_prefix())
        return self.created[-1]

    def _drop_tables(self, prefix: str) -> None:
        self.removed.append(prefix)


def test_a_failed_creation_leaves_no_tables_of_others() -> None:
    hbase = Failing()
    with suppress(OSError):
        hbase.prefix_with_tables()
    with pytest.raises(OSError, match="no tables"):
        hbase.close()
    assert len(hbase.created) > 1
    assert sorted(hbase.removed) == sorted(hbase.created)

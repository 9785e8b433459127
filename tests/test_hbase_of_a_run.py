"""Which HBase a run of the tests uses, and which tests may use it (`tests/conftest.py`)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

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

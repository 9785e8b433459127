"""An older version and this one on the same repositories, in processes of their own, and the upgrade between them."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import sysconfig
import time
import zipfile
from pathlib import Path

import pytest

from hbasemk import FormatError, connect
from hbasemk.kernel import settings
from tests.support.commands import run_captured
from tests.support.hbase import HBase
from tests.support.repositories import Checked

ROOT = Path(__file__).parents[2]
LAST_OF_FORMAT_1 = "43246725"
WRITER = """
import sys, hbasemk
with hbasemk.connect(sys.argv[1], settings=hbasemk.Settings(lease_ms=60_000, max_clock_skew_ms=100)) as repo:
    repo.run(lambda tx: tx.add("/a", {"v": 1}))
    branch = repo.branch()
    branch.run(lambda tx: tx.set("/a", "v", "branch"))
    print(hbasemk.__file__, branch.revision, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with a wheel of the last version with format 1, out of the history of this checkout.

    It takes the other packages from the environment of the tests.
    """
    made = subprocess.run(
        ["git", "archive", "--format=zip", LAST_OF_FORMAT_1], cwd=ROOT, capture_output=True, check=False
    )
    if made.returncode:
        pytest.skip(f"this checkout lacks the commit {LAST_OF_FORMAT_1}: {made.stderr.decode().strip()}")
    folder = tmp_path_factory.mktemp("older")
    source, wheels, environment = folder / "source", folder / "wheels", folder / "venv"
    with zipfile.ZipFile(io.BytesIO(made.stdout)) as archive:
        archive.extractall(source)
    run("-m", "venv", "--without-pip", environment)
    # Setuptools, which the environment of the tests has, builds it without a package index.
    run("-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index", "--no-build-isolation", "-w", wheels, source)
    (wheel,) = wheels.glob("hbasemk-*.whl")
    (packages,) = environment.glob("lib/python*/site-packages")
    run("-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", packages, wheel)
    (packages / "of_the_tests.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return environment


def run(*arguments: str | Path) -> None:
    """Run Python on arguments, and show its output if it fails."""
    done = subprocess.run([sys.executable, *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def start(older: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start the Python of the virtual environment with the older version."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.Popen(
        [str(older / "bin" / "python"), *arguments],
        env=environment,
        cwd=older,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def is_named_and_upgraded(older: Path, url: str, after: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Write to a new repository with the older version; assert that the upgrade waits for its process, and keeps its content."""
    with start(older, "-c", WRITER, url) as writer:
        assert writer.stdout is not None
        imported, revision = writer.stdout.readline().split()
        assert Path(imported).is_relative_to(older)
        with pytest.raises(FormatError, match="`hbasemk upgrade`"):
            connect(url, poll_interval=0)
        code, _, err = run_captured(capsys, "--url", url, "upgrade")
        assert code == 4
        assert f"pid {writer.pid}" in err
        assert writer.communicate()[1] == ""
    time.sleep(0.3)
    code, out, err = run_captured(capsys, "--url", url, "--output", "json", "upgrade")
    assert (code, err) == (0, "")
    assert json.loads(out)["done"] == f"upgraded from format 1 to format {after}"
    with connect(url, create=False, poll_interval=0) as repo:
        assert repo.head["/a"]["v"] == 1
        assert repo.at(revision)["/a"]["v"] == "branch"
        repo.resume_branch(revision).merge()
        assert repo.refresh()["/a"]["v"] == "branch"
    with start(older, "-m", "hbasemk", "--url", url, "cat", "/a") as reader:
        assert f"has format {after}, and this version of hbasemk knows formats up to 1" in reader.communicate()[1]
    assert reader.returncode == 1


def test_a_process_of_the_older_version_is_named_and_its_repository_upgraded(
    older: Path, tmp_path: Path, checked: Checked, capsys: pytest.CaptureFixture[str]
) -> None:
    is_named_and_upgraded(older, checked(f"sqlite:///{tmp_path / 'content.db'}"), settings.FORMAT_WITH_ORDER, capsys)


@pytest.mark.integration
def test_a_process_of_the_older_version_is_named_and_its_repository_upgraded_on_hbase(
    older: Path, hbase: HBase, checked: Checked, capsys: pytest.CaptureFixture[str]
) -> None:
    is_named_and_upgraded(older, checked(hbase.url(hbase.new_prefix())), settings.FORMAT, capsys)

"""Adjusted numbers in the MicroKernel and in exports: they look like numbers that were set."""

from __future__ import annotations

import json
import subprocess
import sys

import hbasemk
from hbasemk import MicroKernel


def test_an_adjusted_number_reads_hashes_and_diffs_like_a_set_one(url: str) -> None:
    with hbasemk.connect(url) as repo:
        kernel = MicroKernel(repo)
        repo.run(lambda tx: (tx.add("/a", {"n": 1}), tx.add("/b", {"n": 6, "m": 2.5})))
        before = kernel.get_head_revision()
        repo.adjust("/a", "n", 5)
        repo.adjust("/a", "m", 2.5)
        repo.refresh()
        head = kernel.get_head_revision()
        shown = json.loads(kernel.get_nodes("/", head, 1, 0, -1, '{"properties":["*",":hash"]}'))
        assert {name: value for name, value in shown["a"].items() if name != ":hash"} == {
            name: value for name, value in shown["b"].items() if name != ":hash"
        }
        assert shown["a"][":hash"] == shown["b"][":hash"]
        changes = kernel.diff(before, head, "/", -1)
        assert '^"/a/n":6' in changes
        assert '^"/a/m":2.5' in changes
        kernel.commit("/", '^"a/n":10', head, "")
        repo.refresh()
        repo.adjust("/a", "n", 1)
        assert repo.refresh()["/a"]["n"] == 11


def test_an_export_writes_the_sum(url: str) -> None:
    with hbasemk.connect(url) as repo:
        repo.run(lambda tx: tx.add("/a", {"n": 1}))
        repo.adjust("/a", "n", 5)
    command = [sys.executable, "-m", "hbasemk", "--url", url, "export", "-f", "json", "/a", "-"]
    ran = subprocess.run(command, capture_output=True, check=True)
    assert b'"n": 6' in ran.stdout or b'"n":6' in ran.stdout

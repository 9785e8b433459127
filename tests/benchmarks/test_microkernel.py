"""The benchmark of MicroKernel calls runs as its page says, and reports a wrong or used URL in one line."""

from __future__ import annotations

from pathlib import Path

import hbasemk
from tests.support.benchmark_programs import cells, ended
from tests.support.repositories import Checked

SMALL = ("--turns", "3", "--children", "40", "--revisions", "20", "--nodes", "1200")


def test_each_row_has_a_figure_and_its_work_was_done(tmp_path: Path, checked: Checked) -> None:
    url = checked(f"sqlite:///{tmp_path / 'content.db'}?durable=no")
    code, printed, errors = ended("microkernel", url, *SMALL)
    assert (code, errors) == (0, "")
    rows = {row[0]: row[1:] for row in cells(printed)}
    assert all(row[0].endswith(" ms") for row in rows.values())
    assert list(rows) == [
        "transaction: set one property",
        "get_nodes, depth 0",
        "commit of one property",
        "branch, commit, rebase, merge",
        "10 threads, each 50 branches",
        ":hash of 40 nodes, first",
        ":hash, again",
        ":hash, after a commit to one of the nodes",
        ":id, after a commit elsewhere",
        "diff to depth 0 of 40 added nodes",
        "log of /never among 20 revisions",
        "log of /client/5 among 20 revisions",
        "one commit that adds 1,200 nodes",
        "one commit that moves 1,200 nodes",
        "a transaction with background polling",
        "a transaction with poll_interval=0",
    ]
    with hbasemk.connect(url) as repository:
        # Each of ten threads has made the number of commits that its property counts.
        assert [repository.head[f"/thread{number}"]["n"] for number in range(10)] == [50] * 10
        assert sum(1 for _ in repository.head.walk("/moved")) == 1200
        assert len(repository.head.children("/wide")) == 40


def test_a_wrong_url_and_a_repository_with_nodes_show_no_traceback(tmp_path: Path) -> None:
    used = f"sqlite:///{tmp_path / 'used.db'}"
    with hbasemk.connect(used) as repository, repository.transaction() as tx:
        tx.add("/a")
    for url in ("nowhere", used, "memory://"):
        code, printed, errors = ended("microkernel", url, *SMALL)
        assert (code, printed) == (1, "")
        assert errors.startswith("Error: ")
        assert errors.count("\n") == 1

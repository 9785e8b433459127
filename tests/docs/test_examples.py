"""Each example of the documentation works when it is pasted, in the order of its page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.examples import Runner, in_directory
from tests.support.hbase import HBase
from tests.support.repositories import Checked

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
WITH_EXAMPLES = {"README.md", "guide.md", "index.md", "microkernel.md", "table-format.md", "tutorial.md"}
"""Pages that must have examples, so that a page whose examples no longer run is found."""
SQLITE_URL = "sqlite:///tutorial.db"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.name))
def test_examples_work_on_sqlite(page: Path, tmp_path: Path, checked: Checked) -> None:
    runner = Runner()
    with in_directory(tmp_path):
        runner.run(page)
    assert (runner.count > 0) == (page.name in WITH_EXAMPLES)
    for file in tmp_path.glob("*.db"):
        checked(f"sqlite:///{file}")


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_the_example_of_a_first_page_may_run_again(page: str, tmp_path: Path) -> None:
    with in_directory(tmp_path):
        for _ in range(2):
            Runner().run(ROOT / page)


def test_no_two_pages_use_the_same_file() -> None:
    used: dict[str, str] = {}
    for page in PAGES:
        if page.name in WITH_EXAMPLES:
            for file in set(re.findall(r'"sqlite:///(.*?)"', page.read_text(encoding="utf-8"))):
                assert used.setdefault(file, page.name) == page.name


def test_no_page_installs_hbasemk_from_an_index_before_its_first_release() -> None:
    released = re.findall(r"^## (\d.*)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    by_name = [page.name for page in PAGES if "pip install hbasemk" in page.read_text(encoding="utf-8")]
    assert released or by_name == []


@pytest.mark.integration
def test_the_tutorial_works_on_hbase_with_one_changed_line(hbase: HBase, tmp_path: Path, checked: Checked) -> None:
    text = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    export = f'export HBASEMK_URL="{SQLITE_URL}"\n'
    assert text.count(export) == 1
    url = checked(hbase.url(hbase.new_prefix()))
    page = tmp_path / "tutorial.md"
    page.write_text(text.replace(export, f'export HBASEMK_URL="{url}"\n'), encoding="utf-8")
    folder = tmp_path / "examples"
    folder.mkdir()
    with in_directory(folder):
        Runner().run(page)
    assert not list(folder.glob("*.db*"))

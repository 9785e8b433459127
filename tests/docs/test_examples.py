"""Each example of the documentation works when it is pasted, in the order of its page."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.examples import Runner, in_directory
from tests.support.repositories import Checked

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
WITH_EXAMPLES = {"README.md", "guide.md", "index.md", "microkernel.md", "table-format.md", "tutorial.md"}
"""Pages that must have examples, so that a page whose examples no longer run is found."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.name))
def test_examples_work_on_sqlite(page: Path, tmp_path: Path, checked: Checked) -> None:
    runner = Runner()
    with in_directory(tmp_path):
        runner.run(page)
    assert (runner.count > 0) == (page.name in WITH_EXAMPLES)
    for file in tmp_path.glob("*.db"):
        checked(f"sqlite:///{file}")

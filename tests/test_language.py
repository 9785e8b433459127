"""The vocabulary of the project: code, tests and pages use the terms of the field (CONTRIBUTING, "Rules")."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PRIVATE = "told|tells|untold|whoever|mend|mends|heir|kids|bury|settle|settles"
"""Words of an earlier private vocabulary, each of which stood for several things."""


def files() -> list[Path]:
    """Return the files with code or text, without this one."""
    names = ("hbasemk", "tests", "benchmarks", "docs", "scripts", "docker")
    found = [file for name in names for file in (ROOT / name).rglob("*") if file.is_file()]
    text = [file for file in found if file.suffix in {".py", ".md", ".rst", ".sh"} or file.parent.name == "scripts"]
    return [*text, *ROOT.glob("*.md")]


def test_no_file_uses_the_private_vocabulary() -> None:
    used = [
        f"{file.relative_to(ROOT)}:{number}: {line.strip()}"
        for file in files()
        if file != Path(__file__)
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if re.search(rf"\b({PRIVATE})\b", line, re.IGNORECASE)
    ]
    assert used == []


@pytest.mark.parametrize(
    "name", ["hbasemk/opening.py", "tests/conftest.py", "docs/guide.md", "scripts/test", "README.md"]
)
def test_the_search_covers_every_kind_of_file(name: str) -> None:
    assert ROOT / name in files()

"""Documented guarantees: each names the tests that keep it, and these exist; texts are whole."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
GUARANTEES = ROOT / "docs" / "guarantees.md"
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def rows() -> list[list[str]]:
    """The cells of each promise."""
    text = GUARANTEES.read_text(encoding="utf-8")
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return [cells for cells in lines if cells[0] not in {"promise", "---"}]


def functions(file: Path) -> set[str]:
    """The names of tests in a file, also in its classes."""
    return {
        node.name for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))) if isinstance(node, ast.FunctionDef)
    }


def test_every_guarantee_names_stores_and_tests_that_exist() -> None:
    promises = rows()
    assert len(promises) > 30
    for promise, stores, kept in promises:
        assert set(re.split(", ", stores)) <= {"all", "memory", "SQLite", "HBase"}, promise
        named = re.findall(r"`([^`]*test_[^`]*)`", kept)
        assert named or kept.startswith("no test: "), promise
        file = ""
        for one in named:
            path, _, function = one.partition("::")
            file = path or file
            assert (ROOT / file).is_file(), one
            if function:
                assert function in functions(ROOT / file), one


def test_the_readme_leads_to_the_guarantees() -> None:
    assert "(docs/guarantees.md)" in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_between_documents_lead_somewhere(document: Path) -> None:
    text = re.sub(r"```.*?```|`[^`\n]*`", "", document.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        found = (document.parent / name).resolve() if name else document
        assert found.exists(), target
        if anchor and found.suffix == ".md":
            heads = re.findall(r"^#+ (.*)$", found.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}, target


def test_no_file_holds_the_markers_of_an_unfinished_merge() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if listed.returncode:
        pytest.skip("not a checkout")
    for name in listed.stdout.decode().split("\0")[:-1]:
        if (ROOT / name).is_file():
            found = re.search(rb"^(<{7} |>{7} )", (ROOT / name).read_bytes(), re.MULTILINE)
            assert found is None, name

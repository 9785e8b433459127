"""The SQL of the store: parameters in the order of the text.

Python 3.12.0 to 3.12.3 warns of numbered parameters (``?1``) whose values come in a sequence.
"""

from __future__ import annotations

import re
from pathlib import Path

import benchmarks.systems
import hbasemk.store.sqlite

FOLDERS = [Path(module.__file__ or "").parent for module in (hbasemk.store.sqlite, benchmarks.systems)]
SOURCES = sorted(path for folder in FOLDERS for path in folder.glob("*.py"))


def test_no_statement_numbers_its_parameters() -> None:
    assert SOURCES
    found = [
        (path.name, line) for path in SOURCES for line in path.read_text().splitlines() if re.search(r"\?\d", line)
    ]
    assert not found

"""The same checks as ``tests.fuzz.jsop``, with texts that a coverage-guided fuzzer chooses.

Needs ``pip install atheris``; run ``python -m tests.fuzz.jsop_atheris -runs=1000000 -seed=7 [corpus directory]``.
"""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["hbasemk.jsop"]):
    from tests.fuzz import jsop

_KINDS = [(root, changed_subtrees) for root in ("", "/", "/r/s") for changed_subtrees in (False, True)]


def one(data: bytes) -> None:
    """The first byte says how to parse; the rest is the text, in UTF-8 where surrogates are allowed."""
    try:
        text = data[1:301].decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        text = data[1:301].decode("latin-1")
    jsop.check(text, *_KINDS[(data or b"\0")[0] % len(_KINDS)])


if __name__ == "__main__":
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()

"""Run the examples of a documentation page, in order, as a reader would paste them.

Python and shell examples share one directory and one environment. An ``output`` block behind an example is what that
example prints; ``...`` in it stands for any text. ``<!-- skip: next -->`` leaves out the example behind it.
"""

from __future__ import annotations

import contextlib
import doctest
import gc
import io
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sybil import Document, Example
from sybil.evaluators.python import PythonEvaluator
from sybil.parsers.markdown import CodeBlockParser, PythonCodeBlockParser, SkipParser

from hbasemk import Repository

OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
SHELL_TIMEOUT = 300.0
"""Seconds after which a shell example is taken to hang."""


class Runner:
    """Runs the examples of one page in the current directory."""

    def __init__(self) -> None:
        self.count = 0
        self._printed = ""
        self._python = PythonEvaluator()

    def run(self, page: Path) -> None:
        """Run all examples; raise what the first one that fails raises."""
        document = Document.parse(
            str(page),
            PythonCodeBlockParser(doctest_optionflags=OPTIONS),
            CodeBlockParser("sh", self.shell),
            CodeBlockParser("output", self.output),
            SkipParser(),
        )
        for example in document.examples():
            if example.region.evaluator is not None and isinstance(example.region.evaluator, PythonEvaluator):
                example.region.evaluator = self.python
            example.evaluate()
        _close(document)

    def python(self, example: Example) -> None:
        """Execute a Python example and keep what it prints."""
        self.count += 1
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            self._python(example)
        self._printed = printed.getvalue()

    def shell(self, example: Example) -> None:
        """Execute a shell example; what it exports holds for the examples behind it."""
        self.count += 1
        read, write = os.pipe()
        script = f"set -eu -o pipefail\n{example.parsed}\nenv -0 >&{write}\n"
        try:
            done = subprocess.run(
                ["bash", "-c", script],
                pass_fds=[write],
                capture_output=True,
                text=True,
                timeout=SHELL_TIMEOUT,
                check=False,
            )
        finally:
            os.close(write)
            with open(read, encoding="utf-8", errors="surrogateescape") as pipe:
                exported = pipe.read()
        where = f"{example.path}:{example.line}"
        assert done.returncode == 0, f"{where} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
        self._printed = done.stdout
        for field in exported.split("\0"):
            name, _, value = field.partition("=")
            if name and name not in {"_", "SHLVL", "PWD", "OLDPWD"}:
                os.environ[name] = value

    def output(self, example: Example) -> None:
        """Compare what the example before printed."""
        checker = doctest.OutputChecker()
        expected = str(example.parsed)
        if not checker.check_output(expected, self._printed, OPTIONS):
            one = doctest.Example("", expected)
            raise AssertionError(
                f"{example.path}:{example.line}\n{checker.output_difference(one, self._printed, OPTIONS)}"
            )


def definitions(page: Path) -> dict[str, Any]:
    """Return what the Python examples of a page define, without those that use hbasemk."""
    document = Document.parse(str(page), CodeBlockParser("python", lambda _: None))
    namespace: dict[str, Any] = {}
    for example in document.examples():
        if "import hbasemk" not in example.parsed:
            exec(compile(str(example.parsed), str(page), "exec"), namespace)
    return namespace


def _close(document: Document) -> None:
    """Close the repositories that an example left open, as the end of its program would."""
    for value in document.namespace.values():
        if isinstance(value, Repository):
            value.close()
    document.namespace.clear()
    gc.collect()


@contextlib.contextmanager
def in_directory(folder: Path) -> Iterator[None]:
    """Run examples in a folder, with the commands of this environment; restore the environment at the end."""
    before, saved = Path.cwd(), dict(os.environ)
    os.chdir(folder)
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    os.environ.pop("HBASEMK_URL", None)
    try:
        yield
    finally:
        os.chdir(before)
        os.environ.clear()
        os.environ.update(saved)

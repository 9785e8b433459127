"""The public names of the package: modules load when a name is used, and tools see all names."""

from __future__ import annotations

import ast
import pickle
import pydoc
import subprocess
import sys
from pathlib import Path

import pytest

import hbasemk

SOURCE = Path(hbasemk.__file__)


def python(code: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a new interpreter."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_an_import_loads_no_other_module_of_the_package() -> None:
    """It loaded nearly all of them, which took most of the start-up of a command."""
    ran = python(
        "import sys, hbasemk.__main__; print(sorted(name for name in sys.modules if name.startswith('hbasemk')))"
    )
    assert (ran.stdout, ran.stderr) == ("['hbasemk', 'hbasemk.__main__']\n", "")


def test_an_interrupt_while_modules_load_prints_no_traceback() -> None:
    """It printed one while the package itself was imported."""
    ran = python(
        "import sys\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'hbasemk.errors':\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupting())\n"
        "import hbasemk.__main__\n"
        "hbasemk.__main__.run()\n"
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, "", "hbasemk: interrupted\n")


def test_type_checkers_and_programs_find_the_same_names() -> None:
    tree = ast.parse(SOURCE.read_text())
    found = {
        alias.name: node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    declared = {name: home for name, home in found.items() if home is not None and home.startswith("hbasemk.")}
    assert declared == {name: f"hbasemk.{home}" for name, home in hbasemk._HOMES.items()}
    assert sorted(declared) == hbasemk.__all__


@pytest.mark.parametrize("name", hbasemk.__all__)
def test_each_name_is_what_its_module_defines(name: str) -> None:
    found = getattr(hbasemk, name)
    assert found is getattr(sys.modules[f"hbasemk.{hbasemk._HOMES[name]}"], name)
    if isinstance(found, type):
        assert pickle.loads(pickle.dumps(found)) is found


def test_each_name_can_be_the_first_one() -> None:
    """No order of imports is needed, although modules import each other."""
    ran = python(
        "import os, hbasemk\n"
        "for name in {home: name for name, home in hbasemk._HOMES.items()}.values():\n"
        "    process = os.fork()\n"
        "    if not process:\n"
        "        getattr(hbasemk, name)\n"
        "        os._exit(0)\n"
        "    assert os.waitpid(process, 0)[1] == 0, name\n"
    )
    assert (ran.returncode, ran.stderr) == (0, "")


def test_the_first_name_imports_all() -> None:
    """An error may be named first in a finalizer while Python ends, when nothing can be imported any more."""
    ran = python(
        "import sys, hbasemk\n"
        "hbasemk.Settings\n"
        "sys.meta_path.clear()\n"
        "sys.path.clear()\n"
        "print(all(getattr(hbasemk, name) for name in hbasemk.__all__))"
    )
    assert (ran.stdout, ran.stderr) == ("True\n", "")


def test_a_star_import_and_dir_have_all_names() -> None:
    ran = python("from hbasemk import *; import hbasemk; print(all(globals()[name] for name in hbasemk.__all__))")
    assert (ran.stdout, ran.stderr) == ("True\n", "")
    ran = python("import hbasemk; print(set(hbasemk.__all__) - set(dir(hbasemk)), '__version__' in dir(hbasemk))")
    assert (ran.stdout, ran.stderr) == ("set() True\n", "")


def test_help_shows_classes_and_functions() -> None:
    text = pydoc.render_doc(hbasemk, renderer=pydoc.plaintext)
    for shown in ("class Repository(", "class ConflictError(", "connect(url: 'str'", "One versioned tree of nodes"):
        assert shown in text


def test_a_wrong_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"module 'hbasemk' has no attribute 'nothing'\Z"):
        _ = hbasemk.nothing  # type: ignore[attr-defined]
    with pytest.raises(ImportError, match="cannot import name 'nothing'"):
        exec("from hbasemk import nothing")


def test_connect_stays_the_function_whatever_is_imported_first() -> None:
    ran = python("import hbasemk.opening, hbasemk.cli.main, hbasemk.check; print(callable(hbasemk.connect))")
    assert (ran.stdout, ran.stderr) == ("True\n", "")


@pytest.mark.parametrize("name", ["errors", "jsop"])
def test_public_modules_are_attributes(name: str) -> None:
    ran = python(f"import hbasemk; print(hbasemk.{name}.__name__)")
    assert (ran.stdout, ran.stderr) == (f"hbasemk.{name}\n", "")

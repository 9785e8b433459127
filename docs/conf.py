"""The configuration of the documentation site; ``scripts/docs`` builds it."""
# ruff: noqa: ARG001 - Sphinx decides what its handlers are called with

from __future__ import annotations

import importlib
import inspect
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging

import hbasemk

project = "hbasemk"
author = "the hbasemk authors"
release = version = hbasemk.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinxcontrib.mermaid"]
exclude_patterns = ["README.md"]
nitpicky = True

# --- pages -----------------------------------------------------------------------------------------------

myst_heading_anchors = 4
myst_fence_as_directive = ["mermaid"]
myst_enable_extensions = ["colon_fence"]
suppress_warnings = ["misc.highlighting_failure"]

html_theme = "furo"
html_title = f"hbasemk {release}"
html_copy_source = False
html_show_copyright = False

# --- the API reference -----------------------------------------------------------------------------------

DOCUMENTED = ("hbasemk", "hbasemk.jsop", "hbasemk.testing.store", "hbasemk.testing.history")
"""The packages whose ``__all__`` is the public API."""
CONSTRUCTED = {"BlobRef", "Json", "MicroKernel", "Repository", "Settings"}
"""The classes of ``hbasemk`` that users call. Methods of the others make their instances."""

autodoc_default_options = {"members": True, "undoc-members": True, "member-order": "bysource"}
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True

# The build reads no inventories of other projects, so that it needs no network; internal types have no page.
nitpick_ignore_regex = [
    ("py:.*", r"hbasemk\.(format|kernel)\..*"),
    # The docstring of connect describes these options; autodoc cannot show a TypedDict.
    ("py:class", r"(hbasemk\.opening\.)?RepositoryOptions"),
    ("py:.*", r"(abc|collections|datetime|enum|io|pathlib|types|typing)\..*"),
    ("py:.*", r"(bool|bytearray|bytes|dict|float|frozenset|int|list|memoryview|object|set|str|tuple|type)"),
    ("py:.*", r"(BaseException|Exception|KeyError|LookupError|TypeError|ValueError|KeyboardInterrupt|ResourceWarning)"),
    ("py:.*", r"(Any|BinaryIO|Callable|Iterable|Iterator|Literal|Mapping|NamedTuple|None|Sequence|Self|next|T|.*\.T)"),
]


def public_names() -> dict[str, Any]:
    """Return every public object by the name under which users import it."""
    found: dict[str, Any] = {}
    for package in DOCUMENTED:
        module = importlib.import_module(package)
        for name in module.__all__:
            found[f"{package}.{name}"] = getattr(module, name)
    return found


def public_members(name: str, cls: type) -> set[str]:
    """Return the full names of the attributes, methods and properties that a public class defines itself."""
    defined = {*vars(cls), *inspect.get_annotations(cls)}
    return {f"{name}.{member}" for member in defined if not member.startswith("_")}


_PUBLIC = public_names()
_BY_MODULE = {
    f"{found.__module__}.{found.__qualname__}": name
    for name, found in _PUBLIC.items()
    if hasattr(found, "__qualname__")
}
_SHORT = {name.rpartition(".")[2]: name for name in reversed(_PUBLIC)}


def resolve_public(app: Sphinx, env: BuildEnvironment, node: pending_xref, content: nodes.TextElement) -> Any:
    """Resolve a reference to the module that defines a public object, or to its bare name, to its public name."""
    if node.get("refdomain") != "py":
        return None
    target = node["reftarget"]
    head, _, member = target.partition(".") if target.partition(".")[0] in _SHORT else (target, "", "")
    public = _BY_MODULE.get(target) or _SHORT.get(head)
    if public is None:
        return None
    full = f"{public}.{member}" if member else public
    domain = env.domains["py"]
    for kind in ("obj", node["reftype"]):
        found = domain.resolve_xref(env, node["refdoc"], app.builder, kind, full, node, content)
        if found is not None:
            return found
    return None


def hide_constructor(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, signature: str | None, returned: str | None
) -> tuple[str, None] | None:
    """Show the parameters only of classes that users construct."""
    if what in {"class", "exception"} and name.startswith("hbasemk.") and name.rpartition(".")[2] not in CONSTRUCTED:
        return ("", None)
    return None


def check_reference(app: Sphinx, env: BuildEnvironment) -> None:
    """Warn of each public name that the reference lacks. Sphinx itself warns of names that appear twice."""
    logger = logging.getLogger(__name__)
    shown = set(env.domains["py"].data["objects"])
    for name, found in _PUBLIC.items():
        expected = {name}
        if inspect.isclass(found) and found.__name__ == name.rpartition(".")[2]:
            expected |= public_members(name, found)
        for missing in sorted(expected - shown):
            logger.warning("the API reference lacks %s", missing)


def setup(app: Sphinx) -> None:
    """Register the handlers of this file."""
    app.connect("missing-reference", resolve_public)
    app.connect("autodoc-process-signature", hide_constructor)
    app.connect("env-check-consistency", check_reference)

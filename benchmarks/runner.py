"""One run: select the systems and scenarios, measure, and return the results."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple, TextIO
from urllib.parse import parse_qs, unquote, urlsplit

from benchmarks.environment import environment
from benchmarks.harness import Harness
from benchmarks.registry import Entry, MissingPackageError, Store, entries
from benchmarks.results import Run, Writer
from benchmarks.scenarios import SCENARIOS
from benchmarks.sizes import Sizes
from benchmarks.systems.hbasemk import host_and_port
from hbasemk.errors import InvalidValueError
from hbasemk.opening import open_store

EXTRA: Final = "pip install -e '.[bench]'"
"""Installs the packages that the peers and the plots need."""


class Place(NamedTuple):
    """Where a run creates trees: the store, and the location from which the harness derives the place of each tree."""

    store: Store
    where: str


def place_of(text: str) -> Place:
    """Parse a folder, or the URL of an HBase or of a folder. Raises InvalidValueError."""
    scheme, _, rest = text.partition(":")
    if scheme == "hbase":
        hosts = rest.removeprefix("//").partition("/")[0].partition("?")[0]
        if not hosts or "," in hosts:
            raise InvalidValueError(f"{text!r} does not name one host; expected hbase://host:port/?prefix=name_")
        open_store(text)[0].close()  # checks the URL, and connects to nothing
        parts = urlsplit(text)
        given = parse_qs(parts.query)
        if more := sorted(given.keys() - {"prefix"}):
            raise InvalidValueError(
                f"{text!r} has {', '.join(more)}, which benchmarks do not use; expected hbase://host:port/?prefix=name_"
            )
        host, port = host_and_port(parts.netloc)
        host = f"[{host}]" if ":" in host else host
        return Place("hbase", f"{host}:{port}/{given.get('prefix', ['bench_'])[0]}")
    if scheme == "sqlite" and rest.startswith("///") and not set(rest) & set("?#"):
        return Place("sqlite", unquote(rest[3:]) or ".")
    if urlsplit(text).scheme:
        raise InvalidValueError(
            f"{text!r} is not a place for benchmarks; expected a folder or hbase://host:port/?prefix=name_"
        )
    return Place("sqlite", text)


def make_folder(place: Place) -> None:
    """Create the folder of a place, if it is one. Raises InvalidValueError if no files can be created in it."""
    if place.store == "sqlite":
        try:
            Path(place.where).mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryDirectory(dir=place.where).cleanup()
        except OSError as error:
            raise InvalidValueError(
                f"{place.where!r} must be a folder in which files can be created ({error.strerror}); choose another one"
            ) from error


def choose(store: Store, keys: Sequence[str]) -> tuple[list[Entry], dict[str, str]]:
    """Return the installed systems of a store, limited to ``keys`` if any, and why each other one is left out."""
    found: list[Entry] = []
    left_out: dict[str, str] = {}
    for entry in entries(store):
        if keys and entry.key not in keys:
            continue
        try:
            entry.load()
            found.append(entry)
        except MissingPackageError as error:
            left_out[entry.key] = str(error)
    return found, left_out


def check_scenarios(names: Sequence[str]) -> None:
    """Raise InvalidValueError for the name of an unknown scenario."""
    unknown = [name for name in names if name not in SCENARIOS]
    if unknown:
        raise InvalidValueError(f"unknown scenario {', '.join(unknown)}; expected one of {', '.join(SCENARIOS)}")


def measure(
    place: Place,
    sizes: Sizes,
    *,
    scenarios: Sequence[str] = (),
    systems: Sequence[str] = (),
    remark: str = "",
    report: Callable[[str], None] = lambda _: None,
    out: TextIO | None = None,
) -> Run:
    """Run scenarios (default: all) on the systems (default: all) of a place's store.

    ``report`` receives lines about the progress, and ``out`` each result as a JSON line as soon as it exists. Raises
    InvalidValueError for an unknown scenario.
    """
    check_scenarios(scenarios)
    chosen, left_out = choose(place.store, systems)
    run = Run(uuid.uuid4().hex[:8], place.store, environment(sizes, remark))
    run.environment["left_out"] = left_out
    for key, reason in left_out.items():
        report(f"{key} is left out: {reason}")
    if left_out:
        report(f"to measure all systems: {EXTRA}")
    with ExitStack() as stack:
        on_result = (lambda _: None) if out is None else stack.enter_context(Writer(run, out)).write
        harness = stack.enter_context(Harness(run, chosen, place.where, sizes, report, on_result))
        for name in dict.fromkeys(scenarios or SCENARIOS):
            harness.scenario = name
            SCENARIOS[name](harness)
    return run

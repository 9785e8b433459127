"""Results of benchmarks: stored as JSON lines, read back, compared, and reported."""

from __future__ import annotations

import io
import json
import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.environment import environment
from benchmarks.report import figures, markdown, plots, tables, targets
from benchmarks.results import Result, Run, read, spread, write
from benchmarks.runner import place_of
from benchmarks.sizes import FULL, QUICK, TINY
from hbasemk import InvalidValueError


def result(scenario: str, operation: str, system: str, median: float | None, unit: str = "s", note: str = "") -> Result:
    role = {"hbasemk": "hbasemk", "baseline": "baseline"}.get(system, "peer")
    found = {} if median is None else spread([median * 0.9, median, median * 1.2])
    return Result("sqlite", scenario, operation, system, system.upper(), role, unit, note=note, **found)


def run(*results: Result, store: str = "sqlite") -> Run:
    return Run("r1", store, environment(TINY, "a remark"), list(results))


def one(results: list[targets.TargetResult], begin: str) -> targets.TargetResult:
    (found,) = [one for one in results if one.target.startswith(begin)]
    return found


def test_results_survive_writing_and_reading(tmp_path: Path) -> None:
    first = run(
        result("set", "set one property", "hbasemk", 0.001), result("branch", "b", "baseline", None, "", "not possible")
    )
    second = Run("r2", "hbase", {"sizes": {}}, [result("set", "set one property", "baseline", 1.0, "1/s")])
    file = tmp_path / "results.jsonl"
    with file.open("a") as out:
        write(first, out)
        write(second, out)
    assert read([file]) == [first, second]


def test_an_invalid_file_is_rejected_with_the_line(tmp_path: Path) -> None:
    file = tmp_path / "other.jsonl"
    with file.open("w") as out:
        write(run(result("set", "set one property", "hbasemk", 0.001)), out)
        out.write('{"kind": "result", "run": "unknown"}\n')
    with pytest.raises(InvalidValueError, match=r"other\.jsonl, line 3"):
        read([file])


WRONG_RESULTS: list[dict[str, Any]] = [
    *({name: 3} for name in ("run", "store", "scenario", "operation", "system", "name", "role", "unit", "note")),
    *(
        {name: wrong}
        for name in ("median", "p25", "p75", "low")
        for wrong in ("1", [1], True, math.nan, math.inf, 10**400)
    ),
    *({"samples": wrong} for wrong in ("1", 1.5, None)),
    {"failed": 1},
]
WRONG_RUNS: list[dict[str, Any]] = [
    {"run": 3},
    {"store": 3},
    *({"environment": wrong} for wrong in (3, {"left_out": []}, {"packages": "all"}, {"load": 0.5})),
]


@pytest.mark.parametrize(
    ("kind", "changes"), [*(("result", one) for one in WRONG_RESULTS), *(("run", one) for one in WRONG_RUNS)]
)
def test_values_of_wrong_types_are_rejected_with_the_line(kind: str, changes: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "other.jsonl"
    with file.open("w") as out:
        write(run(result("set", "set one property", "hbasemk", 0.001)), out)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    number = next(number for number, line in enumerate(lines) if line["kind"] == kind)
    lines[number] |= changes
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(InvalidValueError, match=rf"other\.jsonl, line {number + 1} must be a benchmark result"):
        read([file])


def test_a_line_that_is_nested_too_deeply_is_rejected(tmp_path: Path) -> None:
    file = tmp_path / "other.jsonl"
    file.write_text("[" * 100_000)
    with pytest.raises(InvalidValueError, match=r"other\.jsonl, line 1"):
        read([file])


def test_the_quartiles_enclose_half_of_the_samples() -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    samples = [random.Random(seed + number).random() for number in range(101)]
    found = spread(samples)
    ordered = sorted(samples)
    assert (found["low"], found["p25"], found["median"], found["p75"]) == (
        ordered[0],
        ordered[25],
        ordered[50],
        ordered[75],
    )
    assert found["samples"] == 101
    # The weights of its two neighbours are 1 and 0, but for rounding.
    assert found["p99"] == pytest.approx(ordered[99], rel=1e-12)
    assert spread([3.0]) == {"samples": 1, "median": 3.0, "p25": 3.0, "p75": 3.0, "low": 3.0, "p99": None}


def test_too_few_samples_have_no_99th_percentile() -> None:
    assert spread([1.0] * 99)["p99"] is None
    assert spread([1.0] * 100)["p99"] == 1.0
    line = "1.5 ms (1-2, p99 1.2 s)"
    shown = replace(result("set", "x", "hbasemk", 0.0015), p25=0.001, p75=0.002, p99=1.2)
    assert figures.with_spread(shown) == line
    assert figures.with_spread(shown, brief=True) == "1.5 ms"


def test_ratios_refer_to_the_baseline_and_the_best_peer() -> None:
    (line,) = figures.lines(
        run(
            *(
                result("set", "x", system, median)
                for system, median in zip(["hbasemk", "baseline", "zodb", "zeo"], (6, 2, 4, 3), strict=True)
            )
        )
    )
    assert line.to_baseline == pytest.approx(3)
    assert line.to_peer == pytest.approx(2)
    (line,) = figures.lines(
        run(*(result("p", "x", system, median, "1/s") for system, median in (("hbasemk", 6), ("zodb", 4), ("zeo", 3))))
    )
    assert line.to_baseline is None
    assert line.to_peer == pytest.approx(1.5)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1.5e-6, "s", "1.5 µs"),
        (0.000999, "s", "999 µs"),
        (0.25, "s", "250 ms"),
        (12.0, "s", "12 s"),
        (3e-8, "s", "30 ns"),
        (512, "B", "512 B"),
        (1536, "B", "1.5 KiB"),
        (3 * 2**20, "B", "3 MiB"),
        (0, "B", "0 B"),
        (12345.6, "1/s", "12,346 /s"),
        (0.171, "%", "0.171 %"),
        (2.5, "retries", "2.5"),
    ],
)
def test_quantities_have_units_and_three_digits(value: float, unit: str, text: str) -> None:
    assert figures.quantity(value, unit) == text


def test_the_targets_on_sqlite() -> None:
    evaluated = targets.evaluate(
        [
            run(
                result("set", "set one property", "hbasemk", 0.002),
                result("set", "set one property", "baseline", 0.0001),
                result("set", "set one property", "zodb", 0.001),
                result("set", "set one property", "relstorage", 0.003),
                result("load", "bulk load of 100,000 nodes, per node", "hbasemk", 1e-5),
                result("load", "bulk load of 100,000 nodes, per node", "zodb", 2.5e-5),
                result("idle", "idle: calls per poll", "hbasemk", 1, "calls"),
                result("idle", "idle: share of a core", "hbasemk", 1.5, "%"),
            )
        ]
    )
    commits = one(evaluated, "durable commits per second, one property")
    assert (commits.measured, commits.met) == ("0.50 times ZODB", False)
    assert one(evaluated, "bulk load").met is True
    assert one(evaluated, "cold reads").met is None
    assert one(evaluated, "an idle poll").met is True
    assert one(evaluated, "an idle instance").met is False


def test_the_targets_on_hbase() -> None:
    def rate(count: int, system: str, value: float) -> Result:
        return result(
            "processes", f"{count} process{'es' if count > 1 else ''} on disjoint nodes", system, value, "1/s"
        )

    found = [
        result("set", "set one property", "hbasemk", 0.00124),
        result("set", "set one property", "baseline", 0.001),
        result("set", "set one property", "published_2013", 0.0001),
        result("read", "read a node, hot", "hbasemk", 2e-6),
        result("read", "read a node, warm", "hbasemk", 120e-6),
        result("read", "read a node, warm", "baseline", 100e-6),
        rate(1, "hbasemk", 100),
        rate(4, "hbasemk", 150),
        rate(1, "baseline", 200),
        rate(4, "baseline", 290),
        result("processes", "8 processes adding children below one parent: retries", "hbasemk", 0, "retries"),
    ]
    evaluated = targets.evaluate([run(*found, store="hbase")])
    assert one(evaluated, "a conflict-free commit").met is True
    assert one(evaluated, "reads at head").measured == "500,000 per second"
    assert one(evaluated, "a read of a node that is not cached").met is False
    assert one(evaluated, "a subtree, flat").met is None
    # 1.5 times is less than 1.8, but the baseline reaches only 1.45 times.
    assert one(evaluated, "4 processes").met is True
    assert one(evaluated, "siblings").met is True


def test_the_targets_of_branches_refer_to_a_commit_of_the_same_comparison() -> None:
    evaluated = targets.evaluate(
        [
            run(
                result("set", "set one property", "hbasemk", 0.001),
                result("branch", "commit to trunk, in turn with branches", "hbasemk", 0.002),
                result("branch", "branch, commit, rebase and merge", "hbasemk", 0.008),
            )
        ]
    )
    assert one(evaluated, "branch, commit, rebase and merge").measured == "4.00 times"


@pytest.mark.parametrize(("store", "met"), [("sqlite", True), ("hbase", False)])
def test_the_targets_of_adjusts(store: str, met: bool) -> None:
    def rate(words: str, value: float) -> Result:
        return result("adjust_processes", f"8 processes {words}", "hbasemk", value, "1/s")

    found = [
        rate("setting numbers of their own", 1000),
        rate("adjusting numbers of their own", 1100),
        rate("adjusting one number", 950),
        rate("incrementing one number", 250),
        result("adjust_processes", "8 processes adjusting one number: retries", "hbasemk", 0, "retries"),
        result("adjust", "set one number", "hbasemk", 0.0010),
        result("adjust", "adjust one number", "hbasemk", 0.0011),
        result("adjust", "read a number set 64 times", "hbasemk", 100e-6),
        result("adjust", "read a number with 1 slot", "hbasemk", 101e-6),
        result("adjust", "read a number with 8 slots", "hbasemk", 130e-6),
    ]
    evaluated = targets.evaluate([run(*found, store=store)])
    assert one(evaluated, "8 processes adjusting one number: no retries").met is True
    own = [each for each in evaluated if each.target.endswith("of their own")]
    assert [(each.measured, each.met) for each in own] == [("0.86 times", False), ("0.95 times", True)]
    # 3.8 times are enough on SQLite, but not on HBase.
    increments = [each for each in evaluated if each.target.endswith("the rate of incrementing one number")]
    assert [(each.measured, each.met) for each in increments] == [("3.80 times", met)]
    assert one(evaluated, "one process adjusting").measured == "0.91 times"
    assert one(evaluated, "one process adjusting").met is False
    assert one(evaluated, "read a number with 1 slot").met is True
    assert one(evaluated, "read a number with 8 slots").met is False
    assert one(evaluated, "read a number with 64 slots").met is None


def test_markdown_replaces_the_figures_and_keeps_the_other_text(tmp_path: Path) -> None:
    file = tmp_path / "RESULTS.md"
    file.write_text(f"# Results\n\nBefore.\n\n{markdown.BEGIN}\nfrom yesterday\n{markdown.END}\n\nAfter.\n")
    made = run(result("set", "a | b", "hbasemk", 0.001), result("set", "a | b", "zodb", None, "", "boom | <x>"))
    markdown.write([made], file)
    text = file.read_text()
    assert text.startswith("# Results\n\nBefore.\n\n")
    assert text.endswith(f"{markdown.END}\n\nAfter.\n")
    assert "yesterday" not in text
    assert "| a \\| b |" in text
    assert "boom \\| &lt;x>" in text
    again = text
    markdown.write([made], file)
    assert file.read_text() == again
    other = tmp_path / "new.md"
    markdown.write([made], other)
    assert other.read_text().startswith(markdown.BEGIN)


def test_markdown_with_a_begin_and_no_end_is_refused_and_kept(tmp_path: Path) -> None:
    file = tmp_path / "RESULTS.md"
    file.write_text(text := f"# Results\n\n{markdown.BEGIN}\nfrom yesterday\n\nBy hand.\n")
    with pytest.raises(InvalidValueError, match="end of figures"):
        markdown.write([run()], file)
    assert file.read_text() == text


def test_tables_fit_narrow_and_wide_terminals() -> None:
    from rich.console import Console

    made = run(
        result("set", "set one property", "hbasemk", 0.001),
        result("set", "set one property", "zodb", 0.002),
        result("branch", "branch", "zodb", None, "", "not possible"),
    )
    for width, spread_shown in ((100, False), (200, True)):
        out = io.StringIO()
        tables.show([made], Console(file=out, width=width))
        assert "1 ms" in out.getvalue()
        assert ("(0.95-1.1)" in out.getvalue()) is spread_shown
        # A load average of 10 or more is a character longer, and may break the line within the remark.
        assert "a remark" in " ".join(out.getvalue().split())


def test_the_bar_of_an_error_begins_at_a_quartile_of_zero() -> None:
    containers = pytest.importorskip("matplotlib.container")
    made = run(Result("sqlite", "s", "o", "hbasemk", "hbasemk", "hbasemk", "retries", 4, 2.0, 0.0, 3.0, 0.0))
    figure = plots._bars(figures.lines(made), figures.columns(made))
    (bars,) = [one for one in figure.axes[0].containers if isinstance(one, containers.BarContainer)]
    (segment,) = bars.errorbar[2][0].get_segments()
    assert [x for x, _ in segment] == [0.0, 3.0]


def test_sizes_are_checked() -> None:
    assert FULL.with_changes({"turns": "7"}).turns == 7
    for wrong in ({"turn": "7"}, {"turns": "0"}, {"turns": "-3"}, {"turns": "x"}, {"turns": ""}, {"turns": "1" * 5000}):
        with pytest.raises(InvalidValueError, match="a size must be NAME=NUMBER"):
            QUICK.with_changes(wrong)


@pytest.mark.parametrize("wrong", ["bulk=5000 chunk=10000", "bulk=5500 chunk=1000", "bulk=5 chunk=5", "folder=1"])
def test_sizes_that_do_not_fit_are_rejected(wrong: str) -> None:
    given = dict(size.split("=") for size in wrong.split())
    with pytest.raises(InvalidValueError, match="bulk must be a multiple of chunk|folder must be at least 2"):
        FULL.with_changes(given)
    assert FULL.with_changes({"bulk": "12", "chunk": "3", "folder": "2"}).chunk == 3


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("folder/x", ("sqlite", "folder/x")),
        ("sqlite:////tmp/x", ("sqlite", "/tmp/x")),
        ("hbase://h:9091/?prefix=p_", ("hbase", "h:9091/p_")),
        ("hbase://h", ("hbase", "h:9090/bench_")),
        ("hbase://[::1]:9091/?prefix=p_", ("hbase", "[::1]:9091/p_")),
        ("sqlite:///a%20b", ("sqlite", "a b")),
    ],
)
def test_places_are_parsed(text: str, place: tuple[str, str]) -> None:
    assert place_of(text) == place


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("hbase://h:99999/", "no valid port"),
        ("hbase://h:x/", "no valid port"),
        ("hbase://[::1/", "is not a URL"),
        ("hbase://h/?prefx=p_", "not known here: prefx"),
        ("hbase://h/?prefix=p_&timeout=3", "has timeout, which benchmarks do not use"),
        ("hbase://h/?transport=http", "has transport, which benchmarks do not use"),
        ("sqlite:///folder?durable=no", "is not a place for benchmarks"),
        ("sqlite://folder/x", "is not a place for benchmarks"),
    ],
)
def test_places_with_parts_that_have_no_meaning_are_rejected(wrong: str, words: str) -> None:
    with pytest.raises(InvalidValueError, match=words):
        place_of(wrong)


@pytest.mark.parametrize("wrong", ["memory://", "hbase://", "hbase://a:1,b:2/", "http://x"])
def test_invalid_places_are_rejected(wrong: str) -> None:
    with pytest.raises(InvalidValueError, match="hbase://host:port"):
        place_of(wrong)

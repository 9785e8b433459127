"""The command line: the output of commands, for people and for programs, and their exit codes."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from hbasemk import CommitUnknownError, ConflictError, Repository, connect
from hbasemk.repository import instance_of
from tests.support.commands import run_captured
from tests.support.imports import SMALL, on_disk, write_files

DONE, NO, USAGE, CONFLICT, UNREACHABLE = range(5)


class Ran(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


Run = Callable[..., Ran]


@pytest.fixture
def run(url: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the command line in this process, on a repository that does not exist yet."""
    monkeypatch.setenv("HBASEMK_URL", url)
    monkeypatch.delenv("HBASEMK_DEBUG", raising=False)

    def call(*arguments: str) -> Ran:
        return Ran(*run_captured(capfd, *arguments))

    return call


@pytest.fixture
def tree(run: Run, url: str) -> None:
    """A repository with a few nodes."""
    with connect(url) as repository:
        with repository.transaction("the first") as tx:
            tx.add("/a", {"title": "A", "count": 3, "ratio": 0.5, "yes": True, "tags": ["x", "y"], "raw": b"\xff\n"})
            tx.add("/a/b", {"title": "B\n"})
            tx.add("/c")
        repository.run(lambda tx: tx.set("/a/b", "title", "two"), "the second")


def process(*arguments: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, "-m", "hbasemk", *arguments], capture_output=True, check=False, **options)


# --- errors -----------------------------------------------------------------------------------------------


def assert_one_line(ran: Ran, code: int, *parts: str) -> None:
    assert ran.code == code
    assert ran.out == ""
    assert ran.err.count("\n") == 1
    assert ran.err.startswith("hbasemk: ")
    for part in parts:
        assert part in ran.err


def test_without_a_repository_the_usage_is_printed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HBASEMK_URL")

    ran = run("ls")

    assert ran.code == USAGE
    assert "HBASEMK_URL" in ran.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("fly",),
        ("ls", "--wings"),
        ("set", "/a", "count"),
        ("set", "/a", "count", "1", "--unset"),
        ("set", "/a", "count", "many", "--type", "integer"),
        ("set", "/a", "count", "--unst"),
        ("set", "/a", "--unst", "1"),
        ("set", "--creat", "/a", "count", "1"),
        ("set", "/a", "count", "-x"),
        ("set", "/a", "count", "-1x"),
        ("set", "/a", "--unst", "--", "1"),
        ("set", "-m", "--", "/a", "count", "--unst"),
        ("set", "/a", "yes", "maybe", "--type", "boolean"),
        ("set", "/a", "count", "{", "--type", "json"),
        ("set", "/a", "count", "null", "--type", "json"),
        ("set", "/a", "count", '{"an": "object"}', "--type", "json"),
        ("ls", "relative"),
        ("ls", "/a/../c"),
        ("ls", "--at", "yesterday"),
        ("ls", "--url", "ftp://somewhere"),
        ("ls", "--url", "http://[::1"),
        ("ls", "--url", "sqlite:///x?colour=red"),
        ("rm",),
        ("export", "/a"),
        ("import", "/no/such/directory"),
        ("import", ".", "--workers", "0"),
        ("import", ".", "--url", "memory://"),
        ("init", "--url", "memory://"),
        ("ls", "--url", "memory://shared"),
        ("watch", "--url", " Memory://"),
        ("log", "-n", "0"),
        ("init", "--lease", "1"),
    ],
)
def test_wrong_usage_ends_with_2_and_changes_nothing(
    run: Run, tree: None, url: str, arguments: tuple[str, ...]
) -> None:
    with connect(url) as repository:
        before = repository.refresh().revision

    ran = run(*arguments)

    assert ran.code == USAGE
    assert ran.out == ""
    assert ran.err != ""
    assert "Traceback" not in ran.err
    with connect(url) as repository:
        assert repository.refresh().revision == before


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("ls", "/nowhere"), "/nowhere"),
        (("cat", "/nowhere"), "/nowhere"),
        (("cat", "/a", "-p", "colour"), "colour"),
        (("rm", "/nowhere"), "/nowhere"),
        (("rm", "/"), "root"),
        (("mv", "/a", "/a/b/c"), "/a"),
        (("mv", "/a", "/c"), "/c"),
        (("cp", "/nowhere", "/d"), "/nowhere"),
        (("set", "/nowhere", "x", "1"), "/nowhere"),
        (("export", "/nowhere", "out"), "/nowhere"),
    ],
)
def test_an_impossible_request_ends_with_1_and_one_line(
    run: Run, tree: None, arguments: tuple[str, ...], named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert_one_line(run(*arguments), NO, named)


def test_a_missing_repository_ends_with_4_and_is_not_created(run: Run, tmp_path: Path) -> None:
    assert_one_line(run("ls"), UNREACHABLE, str(tmp_path / "content.db"))
    assert os.listdir(tmp_path) == []


def test_a_missing_revision_ends_with_1(run: Run, tree: None, url: str) -> None:
    with connect(url) as repository:
        text = repository.head.revision
    # A counter that no writer has reached in this millisecond.
    other = f"{int(text, 16) + 0x50:016x}"

    assert_one_line(run("ls", "--at", other), NO, other)


def test_an_unreachable_store_ends_with_4(run: Run) -> None:
    assert_one_line(run("ls", "--url", "hbase://127.0.0.1:1/"), UNREACHABLE, "127.0.0.1:1")


def test_a_file_that_is_not_a_repository_is_left_alone(run: Run, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    other.write_bytes(b"something else entirely, and of some length" * 100)
    before = other.read_bytes()

    for command in ("ls", "init"):
        ran = run(command, "--url", f"sqlite:///{other}")
        assert_one_line(ran, ran.code, str(other))
        assert ran.code in {NO, UNREACHABLE}
    assert other.read_bytes() == before


@pytest.mark.parametrize(
    "error",
    [
        ConflictError("lost", path="/a", column="title", revision="r1", other="r2"),
        CommitUnknownError("unknown", revision="r1"),
    ],
)
def test_a_conflict_ends_with_3(run: Run, tree: None, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def lose(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(Repository, "run", lose)

    assert_one_line(run("set", "/a", "title", "new"), CONFLICT, str(error))


@pytest.mark.parametrize("where", ["before", "behind", "environment"])
def test_debug_shows_where_an_error_comes_from(
    run: Run, tree: None, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if where == "environment":
        monkeypatch.setenv("HBASEMK_DEBUG", "1")
    ran = run(*["--debug"] * (where == "before"), "ls", "/nowhere", *["--debug"] * (where == "behind"))

    assert ran.code == NO
    assert "Traceback" in ran.err
    assert "NodeNotFoundError" in ran.err


# --- reading ----------------------------------------------------------------------------------------------


def test_ls_lists_children(run: Run, tree: None) -> None:
    assert run("ls") == (DONE, "a\nc\n", "")
    assert run("ls", "/a").out == "b\n"
    assert run("ls", "/c") == (DONE, "", "")
    assert run("ls", "-r").out == "/a\n/c\n/a/b\n"
    assert run("ls", "--output", "json").lines == [{"name": "a"}, {"name": "c"}]


def test_ls_long_prints_revisions_and_property_counts(run: Run, tree: None, url: str) -> None:
    with connect(url) as repository:
        head = repository.head
        wanted = [
            {"path": path, "revision": head[path].revision, "properties": count}
            for path, count in (("/a", 6), ("/c", 0), ("/a/b", 1))
        ]

    assert run("ls", "-lr", "--output", "json").lines == wanted
    assert run("ls", "-l", "/a").out == f"b\t{wanted[2]['revision']}\t1\n"


def test_versions_are_printed_and_expected(run: Run, tree: None, url: str) -> None:
    with connect(url) as repository:
        version = repository.head["/a/b"].version
        assert repository.head["/a"].version != version
    assert run("cat", "/a/b", "--show-version") == (DONE, f"{version}\n", "")
    assert run("cat", "/a/b", "--show-version", "--output", "json").json == {"version": version}
    assert run("ls", "/a", "--versions").out == f"b\t{version}\n"
    assert run("ls", "-l", "/a", "--versions", "--output", "json").json["version"] == version
    assert run("cat", "/a/b", "--show-version", "-p", "title").code == USAGE
    for command in (
        ("set", "/a/b", "title", "x"),
        ("set", "/a/b", "title", "--unset"),
        ("rm", "/a/b"),
        ("mv", "/a/b", "/a/c"),
    ):
        refused = run(*command, "--if-version", "0" * 24)
        assert refused[:2] == (CONFLICT, "")
        assert f"the node /a/b has version {version} in revision" in refused.err
        assert run(*command, "--if-version", "x").code == USAGE
    assert run("set", "/a/b", "title", "new", "--if-version", version).code == DONE
    assert run("set", "/a/b", "title", "newer", "--if-version", version).code == CONFLICT
    moved = run("cat", "/a/b", "--show-version").out.strip()
    assert run("mv", "/a/b", "/a/c", "--if-version", moved).code == DONE
    assert run("rm", "/a/c", "--if-version", run("cat", "/a/c", "--show-version").out.strip()).code == DONE


def test_cat_prints_properties_or_one_exactly(run: Run, tree: None) -> None:
    assert run("cat", "/a/b").out == 'title = "two"\n'
    assert run("cat", "/a", "--output", "json").json == {
        "title": "A",
        "count": 3,
        "ratio": 0.5,
        "yes": True,
        "tags": ["x", "y"],
        "raw": {"$bytes": "/wo="},
    }
    assert run("cat", "/a", "-p", "title").out == "A"
    assert run("cat", "/a", "-p", "count").out == "3\n"
    assert run("cat", "/a", "-p", "title", "--output", "json").json == "A"


def test_bytes_are_printed_as_bytes(tree: None, url: str) -> None:
    assert process("--url", url, "cat", "/a", "-p", "raw").stdout == b"\xff\n"


def test_earlier_revisions_can_be_read(run: Run, tree: None) -> None:
    revisions = [line["revision"] for line in run("log", "--output", "json").lines]

    assert run("cat", "/a/b", "-p", "title", "--at", revisions[1]).out == "B\n"
    assert run("ls", "--at", revisions[2]).out == ""


def test_names_that_are_not_text_are_printed_as_their_bytes_on_disk(url: str) -> None:
    with connect(url) as repository, repository.transaction() as tx:
        tx.add("/caf\udce9")
        tx.add("/\ud800")

    ran = process("--url", url, "ls", env={**os.environ, "PYTHONIOENCODING": "utf-8"})

    assert ran.returncode == DONE
    assert set(ran.stdout.splitlines()) == {b"caf\xe9", b"\xed\xa0\x80"}
    ran = process("--url", url, "ls", "--output", "json")
    assert [json.loads(line)["name"] for line in ran.stdout.splitlines()] == ["caf\udce9", "\ud800"]


def test_log_lists_revisions_newest_first(run: Run, tree: None) -> None:
    printed = run("log", "--output", "json", "--changes").lines

    assert [one["message"] for one in printed] == ["the second", "the first", "created"]
    assert printed[0]["base"] == printed[1]["revision"]
    assert [change["path"] for change in printed[0]["changes"]] == ["/a/b"]
    assert [change["properties"] for change in printed[0]["changes"]] == [["title"]]
    assert {change["path"] for change in printed[1]["changes"]} >= {"/a", "/a/b", "/c"}
    assert sorted((one["revision"] for one in printed), reverse=True) == [one["revision"] for one in printed]
    assert all(one["time"].endswith("Z") for one in printed)


def test_log_can_be_limited_in_number_place_and_time(run: Run, tree: None) -> None:
    newest, first, _ = (one["revision"] for one in run("log", "--output", "json").lines)

    assert run("log", "-n", "1").out.startswith(newest)
    assert run("log", "-n", "1").out.count("\n") == 1
    assert [one["revision"] for one in run("log", "/c", "--output", "json").lines] == [first]
    assert [one["revision"] for one in run("log", "-n", "1", "--until", first, "--output", "json").lines] == [first]
    assert "/a/b" in run("log", "--changes").out


def test_status_describes_the_repository_and_its_writers(run: Run, tree: None, url: str) -> None:
    with connect(url) as writing:
        writing.run(lambda tx: tx.set("/a", "title", "new"))
        found = run("status", "--output", "json").json

        assert found["head"] == writing.refresh().revision
        assert found["format"] == 2
        assert found["epoch"] == "2013-01-01T00:00:00.000Z"
        assert found["ids_run_out"] == "2030-06-03T21:56:53.887Z"
        assert found["pending_revisions"] == []
        assert [lease["state"] for lease in found["leases"]].count("held") == 1
        assert str(os.getpid()) in found["leases"][0]["holder"]
    assert {lease["state"] for lease in run("status", "--output", "json").json["leases"]} == {"expired"}
    text = run("status").out
    for name in ("location", "watermark", "leases", "head time"):
        assert name in text


# --- changing ---------------------------------------------------------------------------------------------


def test_init_creates_a_repository_once(run: Run, url: str) -> None:
    ran = run("init", "--epoch", "2020-02-02", "--lease", "2000", "--max-clock-skew", "300", "--output", "json")

    assert ran.code == DONE
    with connect(url, create=False) as repository:
        settings = instance_of(repository).settings
        assert settings.epoch_ms == 1_580_601_600_000
        assert (settings.lease_ms, settings.max_clock_skew_ms) == (2000, 300)
        assert ran.json["revision"] == repository.head.revision
    assert run("init").code == DONE
    assert run("init", "--lease", "2000").code == DONE
    assert_one_line(run("init", "--lease", "3000"), USAGE, "2000")
    with connect(url, create=False) as repository:
        assert instance_of(repository).settings == settings


@pytest.mark.parametrize(
    ("value", "kind", "wanted"),
    [
        ("text", "string", "text"),
        ("", "string", ""),
        ("42", "string", "42"),
        ("42", "integer", 42),
        ("-7", "integer", -7),
        ("-0.5", "float", -0.5),
        ("1e3", "float", 1000.0),
        ("TRUE", "boolean", True),
        ("false", "boolean", False),
        ('["a", 1, 2.5, false]', "json", ["a", 1, 2.5, False]),
        ("[]", "json", []),
    ],
)
def test_set_keeps_the_requested_type(run: Run, tree: None, url: str, value: str, kind: str, wanted: object) -> None:
    assert run("set", "/c", "new", value, "--type", kind).code == DONE

    with connect(url) as repository:
        found = repository.head["/c"]["new"]
    assert found == wanted
    assert type(found) is type(wanted)


@pytest.mark.parametrize(
    ("arguments", "name", "wanted"),
    [
        (("--", "/c", "new", "--unset"), "new", "--unset"),
        (("/c", "new", "--", "-x"), "new", "-x"),
        (("-m", "--", "--", "/c", "--new", "-"), "--new", "-"),
        (("--message", "-7", "/c", "-1", "-1e3"), "-1", "-1e3"),
        (("/c", "new", "-"), "new", "-"),
    ],
)
def test_set_accepts_a_leading_hyphen_after_a_separator(
    run: Run, tree: None, url: str, arguments: tuple[str, ...], name: str, wanted: str
) -> None:
    assert run("set", *arguments).code == DONE

    with connect(url) as repository:
        assert dict(repository.head["/c"]) == {name: wanted}


def test_set_names_an_unknown_option_and_suggests_the_separator(run: Run, tree: None) -> None:
    ran = run("set", "/a", "title", "--unst")

    assert "--unst;" in ran.err
    assert "put -- before" in ran.err
    assert "Put -- before" in run("set", "--help").out


def test_set_can_remove_a_property_and_create_a_node(run: Run, tree: None, url: str) -> None:
    assert run("set", "/a", "title", "--unset").code == DONE
    assert run("set", "/a/new", "x", "1", "--create", "-m", "made").code == DONE

    with connect(url) as repository:
        assert "title" not in repository.head["/a"]
        assert repository.head["/a/new"]["x"] == "1"
    assert run("log", "-n", "1", "--output", "json").json["message"] == "made"


def test_adjust_adds_to_a_number_and_creates_it(run: Run, tree: None, url: str) -> None:
    assert run("adjust", "/c", "stock", "5").code == DONE
    assert run("adjust", "/c", "stock", "-2", "-m", "sold").code == DONE
    assert run("adjust", "/c", "weight", "0.5").code == DONE

    with connect(url) as repository:
        assert dict(repository.head["/c"]) == {"stock": 3, "weight": 0.5}
    assert "stock" in run("log", "-n", "2", "--changes").out


@pytest.mark.parametrize("by", ["x", "nan", "inf", "-inf", "1_0x", "", "9" * 5000])
def test_adjust_refuses_what_is_no_finite_number(run: Run, tree: None, by: str) -> None:
    ran = run("adjust", "/c", "stock", by)

    assert ran.code == USAGE
    assert "BY must be an integer or a finite number" in ran.err or "digits" in ran.err


def test_adjust_takes_an_expected_version(run: Run, tree: None) -> None:
    version = run("cat", "/c", "--show-version").out.strip()

    assert run("adjust", "/c", "stock", "-5", "--if-version", version).code == DONE
    assert run("adjust", "/c", "stock", "-5", "--if-version", version).code == CONFLICT


def test_adjust_names_the_value_that_is_no_number(run: Run, tree: None) -> None:
    ran = run("adjust", "/a", "title", "1")

    assert ran.code == NO
    assert "must be a finite number, got the str" in ran.err


def test_mv_cp_and_rm_change_whole_subtrees_and_print_the_revision(run: Run, tree: None) -> None:
    printed = [run("cp", "/a", "/c/a"), run("mv", "/c/a", "/d"), run("rm", "/a")]

    assert [ran.code for ran in printed] == [DONE] * 3
    assert run("ls", "-r").out == "/c\n/d\n/d/b\n"
    assert run("cat", "/d/b").out == 'title = "two"\n'
    logged = [one["revision"] for one in run("log", "-n", "3", "--output", "json").lines]
    assert [ran.out.strip() for ran in reversed(printed)] == logged


# --- import and export ------------------------------------------------------------------------------------


def test_import_reports_its_result_and_export_writes_it_back(run: Run, tmp_path: Path) -> None:
    top = write_files(tmp_path / "docs", {**SMALL, "large": b"x" * 100_000})
    count = len(on_disk(top))

    ran = run("import", str(top), "--workers", "2", "--batch", "3", "--output", "json")

    assert ran.code == DONE
    assert ran.err == ""
    printed = ran.json
    assert printed["imported_to"] == "/docs"
    assert (printed["entries"], printed["nodes_added"], printed["differences"], printed["processes"]) == (
        count,
        count,
        0,
        2,
    )
    assert (printed["contents_not_kept"], printed["contents_in_blobs"]) == (0, 1)
    size = sum(len(data) for data in SMALL.values()) + 100_000
    assert printed["contents_compared"] == f"{len(SMALL) + 1} contents of {size} bytes"
    assert printed["commits"] >= count / 3
    assert printed["retries"] >= printed["conflicts"] >= 0
    assert f"{count} nodes" in printed["compared"]

    assert run("export", "/docs", str(tmp_path / "out")).code == DONE
    assert on_disk(tmp_path / "out") == on_disk(top)

    whole = run("export", "/docs", "--format", "json").json
    assert whole["children"]["a"]["children"]["one.txt"]["properties"][":content"] == "one\n"
    assert run("export", "/docs", str(tmp_path / "docs.json"), "-f", "json") == (DONE, "", "")
    assert json.loads((tmp_path / "docs.json").read_text()) == whole
    assert run("export", "/docs", "-", "-f", "json").json == whole
    assert sorted(os.listdir(tmp_path))[-2:] == ["docs.json", "out"]


def test_export_ends_with_1_if_anything_is_left_out(run: Run, tmp_path: Path, url: str) -> None:
    top = write_files(tmp_path / "docs", SMALL)
    assert run("import", str(top), "--workers", "1", "--contents", "small", "--inline-limit", "6").code == DONE

    ran = run("export", "/docs", str(tmp_path / "out"))

    assert ran.code == NO
    assert "skipped: /docs/a/b/c/three.txt: " not in ran.err
    assert "skipped: /docs/a/b/two.txt: the import left its content out" in ran.err

    for value, kind in (("-1", "integer"), (str(2**70), "integer"), ("rwx", "string")):
        assert run("set", "-t", kind, "--", "/docs/a/one.txt", ":mode", value).code == DONE
        ran = run("export", "/docs/a/one.txt", str(tmp_path / "one"))
        assert ran.code == NO
        assert "incomplete: /docs/a/one.txt: its mode" in ran.err
        assert (tmp_path / "one").read_bytes() == b"one\n"


def test_export_writes_a_single_file(run: Run, tmp_path: Path) -> None:
    top = write_files(tmp_path / "docs", SMALL)
    (top / "readme.txt").chmod(0o4755)
    assert run("import", str(top), "--workers", "1").code == DONE

    ran = run("export", "/docs/readme.txt", str(tmp_path / "one"), "--output", "json")
    assert (ran.code, ran.json["files"], ran.json["directories"]) == (DONE, 1, 0)
    assert "--special-modes" in ran.err
    assert (tmp_path / "one").read_bytes() == b"Trees\n"
    assert (tmp_path / "one").stat().st_mode & 0o7777 == 0o755
    assert run("export", "/docs/readme.txt", str(tmp_path / "one"), "--special-modes").err == ""
    assert (tmp_path / "one").stat().st_mode & 0o7777 == 0o4755


def test_export_to_standard_output_is_for_json(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run("init")
    before = os.listdir(tmp_path)

    assert run("export", "-f", "json", "/", "-").json == {"properties": {}, "children": {}}
    assert run("export", "/", "-").code == USAGE
    assert run("export", "-f", "json", "--special-modes", "/", "-").code == USAGE
    assert os.listdir(tmp_path) == before


def test_every_import_counts_the_files_whose_content_it_does_not_keep(run: Run, tmp_path: Path) -> None:
    top = write_files(tmp_path / "docs", {**SMALL, "more/latin": b"caf\xe9", "more/long.txt": b"x" * 101})
    (top / "link").symlink_to("binary")
    import_ = ("import", str(top), "--workers", "2", "--batch", "2", "--contents", "small", "--inline-limit", "100")

    assert run(*import_, "--output", "json").json["contents_not_kept"] == 1
    (top / "more/long.txt").write_bytes(b"short")
    again = run(*import_, "--output", "json").json

    assert (again["contents_not_kept"], again["nodes_changed"], again["differences"]) == (0, 1, 0)
    assert "contents not kept" in run(*import_).out
    assert "SHA-256" in run("import", "--help").out


def test_import_explains_an_earlier_layout(run: Run, tmp_path: Path) -> None:
    top = write_files(tmp_path / "docs", SMALL)
    jsop = '+"/docs":{"nodes":1,"files":1,"links":0,"bytes":6,"directories":0,"readme.txt":{"kind":"file"}}'
    assert run("init").code == DONE
    assert run("commit", jsop).code == DONE

    ran = run("import", str(top))

    assert ran.code == NO
    assert "an earlier version" in ran.err
    assert "--at" in ran.err
    ran = run("export", "/docs/readme.txt", str(tmp_path / "out"))
    assert ran.code == NO
    assert "an earlier version" in ran.err


def test_differences_are_listed_and_end_with_1(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hbasemk.transfer.files import importer

    top = write_files(tmp_path / "docs", SMALL)
    real = importer.Import.run

    def meddled(self: importer.Import) -> importer.Result:
        result = real(self)
        (top / "readme.txt").write_bytes(b"changed meanwhile\n")
        (top / "bad\nname").write_bytes(b"")
        return result

    monkeypatch.setattr(importer.Import, "run", meddled)

    ran = run("import", str(top), "--workers", "1", "--output", "json")

    assert ran.code == NO
    assert "/docs/readme.txt: :sha256" in ran.err
    assert "/docs/bad\\nname" in ran.err
    assert ran.json["differences"] == ran.err.count("differs:") > 1
    assert run("import", str(top), "--workers", "1", "--no-verify").code == DONE


def test_many_differences_are_summarized_in_a_few_lines(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hbasemk.transfer.files import importer

    top = write_files(tmp_path / "docs", {f"{number:03}": b"" for number in range(100)})
    real = importer.Import.run

    def meddled(self: importer.Import) -> importer.Result:
        result = real(self)
        for name in on_disk(top):
            os.utime(top / name, ns=(0, 0))
        return result

    monkeypatch.setattr(importer.Import, "run", meddled)

    ran = run("import", str(top), "--workers", "1", "--output", "json")

    assert ran.json["differences"] == 100
    assert ran.err.count("\n") < 30
    assert "80 more" in ran.err


# --- the process ------------------------------------------------------------------------------------------


def test_help_imports_nothing_heavy() -> None:
    check = (
        "import sys; from hbasemk.cli.main import cli; "
        "loaded = {'rich', 'thriftpy2', 'sqlite3', 'multiprocessing', 'asyncio'} & set(sys.modules); "
        "sys.exit(f'loaded: {loaded}' if loaded else 0)"
    )
    ran = subprocess.run([sys.executable, "-c", check], capture_output=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, b"")


def test_every_command_has_help_and_is_listed(run: Run) -> None:
    listed = run("--help").out
    for command in ("init", "import", "export", "ls", "cat", "set", "rm", "mv", "cp", "log", "status"):
        assert f"\n  {command} " in listed
        ran = run(command, "--help")
        assert ran.code == DONE
        assert "Usage: hbasemk" in ran.out


def test_no_summary_of_a_command_is_cut_off(run: Run) -> None:
    for help_text in (run("--help").out, run("blob", "--help").out):
        summaries = help_text.partition("Commands:")[2]
        assert summaries
        assert "..." not in summaries, summaries


def test_a_closed_pipe_is_not_an_error(url: str) -> None:
    with connect(url) as repository, repository.transaction() as tx:
        for number in range(5_000):
            tx.add(f"/node-with-a-long-name-{number:08}")
    with subprocess.Popen(
        [sys.executable, "-m", "hbasemk", "--url", url, "ls"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.readline()
        running.stdout.close()
        assert running.stderr.read() == b""


def test_progress_is_shown_on_a_terminal_only(run: Run, tmp_path: Path, url: str) -> None:
    import pty

    top = write_files(tmp_path / "docs", SMALL)
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "hbasemk", "--url", url, "--output", "json", "import", str(top), "--workers", "1"],
        stdout=subprocess.PIPE,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
    ) as running:
        os.close(theirs)
        shown = io.BytesIO()
        while True:
            try:
                shown.write(os.read(ours, 4096))
            except OSError:
                # The end of a terminal's output on Linux.
                break
        os.close(ours)
        assert running.stdout is not None
        printed = json.loads(running.stdout.read())
    assert b"import to /docs" in shown.getvalue()
    assert printed["differences"] == 0
    # Without a terminal no progress is printed.
    assert run("import", str(top), "--workers", "1").err == ""

"""Commands that import, export and compare."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hbasemk import StoreNotAppliedError
from hbasemk.transfer.files.worker import Batch
from hbasemk.transfer.retry import StoreRetry
from tests.support.commands import DONE, NO, USAGE, Run, assert_one_line
from tests.support.imports import SMALL, on_disk, write_files


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


def test_an_import_gives_all_its_commits_the_message(run: Run, tree: None, tmp_path: Path) -> None:
    top = write_files(tmp_path / "docs", SMALL)
    assert run("export", "/a", str(tmp_path / "a.json"), "-f", "json").code == DONE
    newest = run("log", "-n", "1", "--output", "json").json["revision"]

    assert run("import", str(top), "-m", "new texts", "-w", "1", "-b", "3").code == DONE
    assert run("import", "-f", "json", str(tmp_path / "a.json"), "--at", "/d", "--message", "new texts").code == DONE

    entries = run("log", "--output", "json").lines
    made = [entry["message"] for entry in entries if entry["revision"] > newest]
    assert len(made) > 3
    assert set(made) == {"new texts"}


@pytest.mark.parametrize("form", ["files", "json"])
def test_an_import_with_a_message_that_is_too_long_changes_nothing(run: Run, tmp_path: Path, form: str) -> None:
    assert run("init").code == DONE
    source = write_files(tmp_path / "docs", SMALL) if form == "files" else tmp_path / "x.json"
    if form == "json":
        source.write_text('{"properties": {"x": 1}, "children": {}}')

    ran = run("import", "-f", form, str(source), "-m", "x" * 65_537)

    assert_one_line(ran, USAGE, "at most 65536 are possible")
    assert (run("ls").out, run("cat", "/").out) == ("", "")


@pytest.mark.parametrize(
    ("error", "code", "what"),
    [
        (KeyboardInterrupt(), 130, "interrupted"),
        (FileNotFoundError(2, "No such file or directory", "/docs"), NO, "an error"),
        (StoreNotAppliedError("the store is away"), 4, "an error"),
    ],
)
def test_an_end_of_the_comparison_says_what_was_imported(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, what: str
) -> None:
    def failing(*_: object, **__: object) -> Iterator[str]:
        yield "a difference"
        raise error

    monkeypatch.setattr("hbasemk.transfer.files.verify.verify", failing)
    top = write_files(tmp_path / "docs", {"a": b"1"})
    ran = run("import", str(top), "-w", "1")
    assert ran.code == code
    assert ran.err.splitlines()[0] == (
        f"hbasemk: {what} during the comparison; the import is complete: 1 node added, 0 changed and 0 removed in 1 commit stay."
    )


def test_a_directory_that_disappears_ends_an_import_which_prints_what_it_has_committed(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hbasemk.transfer.files.importer import Import

    top = write_files(tmp_path / "docs", {"a": b"1", "b": b"2"})
    vanished = Import._vanished

    def rename_and_search(self: Import) -> Iterator[Batch]:
        top.rename(tmp_path / "elsewhere")
        return vanished(self)

    monkeypatch.setattr(Import, "_vanished", rename_and_search)
    ran = run("import", str(top), "-w", "1")
    assert ran.code == NO
    assert ran.err.splitlines() == [
        "hbasemk: not complete; 2 nodes added, 0 changed and 0 removed in 1 commit stay. Run the same command again to "
        "continue.",
        f"hbasemk: {top}/: No such file or directory",
    ]


def test_one_thing_is_not_called_by_its_plural(run: Run, tmp_path: Path) -> None:
    top = write_files(tmp_path / "docs", {"a": b"1"})
    out = run("import", str(top), "-w", "1", "--at", "/").out
    assert "  1 node at revision " in out
    assert out.splitlines()[-2].endswith("  1 content of 1 byte")
    (top / "a").chmod(0o2644)
    run("import", str(top), "-w", "1", "--at", "/")
    assert "1 entry has set-user-id" in run("export", "/", str(tmp_path / "out")).err
    head = run("log", "-n", "1", "--full").out.splitlines()[0]
    assert head.endswith(" 1 node")


def test_nodes_and_diff_accept_times(run: Run, tree: None) -> None:
    early = "1970-01-01"
    assert "no revision that is known to be committed before" in run("nodes", "/", "--at", early).err
    assert "no revision that is known to be committed before" in run("diff", early).err
    assert run("nodes", "/a", "--at", "0s").json["title"] == "A"
    assert run("diff", "0s", "--paths") == (DONE, "", "")
    assert run("diff", "0s") == (DONE, "", "")


@pytest.mark.parametrize(
    ("parameter", "option", "seconds"),
    [("", (), 120), ("?retry_timeout=7", (), 7), ("?retry_timeout=7", ("--retry-timeout", "9"), 9)],
)
def test_the_option_or_the_url_limits_the_retries(
    run: Run,
    tmp_path: Path,
    url: str,
    parameter: str,
    option: tuple[str, ...],
    seconds: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    top = write_files(tmp_path / "docs", SMALL)
    limits: list[float] = []
    made = StoreRetry.__init__

    def record(retry: StoreRetry, limit: float, report: Callable[[str], None]) -> None:
        limits.append(limit)
        made(retry, limit, report)

    monkeypatch.setattr(StoreRetry, "__init__", record)
    for command in (
        ("import", str(top), "--workers", "1"),
        ("export", "/docs", str(tmp_path / "docs.json"), "-f", "json"),
        ("import", "-f", "json", str(tmp_path / "docs.json"), "--at", "/docs"),
        ("export", "/docs", str(tmp_path / "out")),
    ):
        before = len(limits)
        assert run("--url", url + parameter, *command, *option).code == DONE
        assert len(limits) > before
    assert set(limits) == {seconds}

"""Commands that read: ls, cat, log and status."""

from __future__ import annotations

import json
import os
import re

import pytest

from hbasemk import Repository, connect
from tests.support.commands import CONFLICT, DONE, NO, USAGE, Run, assert_one_line, process


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
        for wrong in ("x", "None", "0" * 23, "A" * 24):
            refused = run(*command, "--if-version", wrong)
            assert refused.code == USAGE
            assert "Invalid value for '--if-version'" in refused.err
            assert f"'{wrong}' is not a version; expected 24 hexadecimal digits, as `hbasemk cat" in refused.err
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


def test_status_says_in_words_what_a_repository_does_not_have_yet(run: Run, tree: None) -> None:
    lines = run("status").out.splitlines()
    facts = dict(re.split("  +", line.strip(), maxsplit=1) for line in lines if "  " in line.strip())
    assert "None" not in facts.values()
    assert facts["oldest readable"] == "every revision"
    assert facts["collected up to"] == "nothing collected yet"
    assert facts["collection waits for"] == facts["collection stopped by"] == "nothing"
    assert run("status", "--output", "json").json["oldest_readable"] is None


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


def test_json_output_has_whole_messages_of_checkpoints(run: Run) -> None:
    assert run("init").code == DONE
    made = run("checkpoint", "make", "1h", "-m", "line 1\nline 2", "--output", "json").json
    assert made["message"] == "line 1\nline 2"
    assert run("checkpoint", "list", "--output", "json").json == made
    assert run("status", "--output", "json").json["checkpoints"][0]["message"] == "line 1\nline 2"
    assert run("checkpoint", "list").out.count("\n") == 1


def test_log_says_that_a_node_without_recorded_revisions_was_deleted(
    run: Run, tree: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    by = run("rm", "/a").out.strip()
    # As if the collection had removed them.
    monkeypatch.setattr(Repository, "log", lambda *_: iter(()))
    assert_one_line(run("log", "/a"), NO, "there is no node at /a", f"revision {by} deleted it")
    assert_one_line(run("log", "/none"), NO, "there is no node at /none", "there never was one")

"""Output to a pipe or a file is exact, whatever the locale."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from hbasemk import ConflictError, Repository, Snapshot, connect
from hbasemk.cli.main import main
from tests.support.commands import CONFLICT, DONE, NO, USAGE, run_captured
from tests.support.hostile import NAMES, TITLE, TREE, VALUE, Hostile, as_stored
from tests.support.repositories import problems
from tests.support.terminal import controls, on_terminal


@pytest.fixture
def piped(hostile: Hostile, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a command in this process; its exit code, output and messages."""
    monkeypatch.setenv("HBASEMK_URL", hostile.url)

    return partial(run_captured, capfdbinary)


def test_names_in_a_pipe_are_exact(piped: Any) -> None:
    names = sorted(map(as_stored, NAMES))

    assert sorted(piped("ls", "-0", TREE)[1].split(b"\0")[:-1]) == names
    code, out, err = piped("ls", TREE)
    assert (code, err) == (DONE, b"")
    assert out.endswith(b"\n")
    assert sorted(out.split(b"\n")) == sorted(b"\n".join([*names, b""]).split(b"\n"))
    with_tree = sorted(as_stored(f"{TREE}/{name}") for name in NAMES)
    assert sorted(piped("ls", "-r", "--null", TREE)[1].split(b"\0")[:-1]) == with_tree
    long_ = [line.rsplit(b"\t", 2) for line in piped("ls", "-l0", TREE)[1].split(b"\0")[:-1]]
    assert sorted(line[0] for line in long_) == names
    assert {line[2] for line in long_} == {b"2", b"3"}


def test_values_in_a_pipe_are_exact(piped: Any, hostile: Hostile) -> None:
    path = f"{TREE}/{NAMES[1]}"
    assert piped("cat", path, "-p", f"p{NAMES[1]}") == (DONE, as_stored(VALUE), b"")
    assert piped("cat", path, "-p", "bytes")[1] == VALUE.encode("utf-8", "surrogatepass")
    lines = piped("cat", "-0", path)[1].split(b"\0")
    assert any(line.startswith(as_stored(f"p{NAMES[1]} = ")) for line in lines)
    assert piped("blob", "get", hostile.blob)[1] == TITLE.encode() + b"\xff\n\x9b"


def test_paths_in_a_pipe_are_exact(piped: Any, hostile: Hostile) -> None:
    nodes = {as_stored(TREE), *(as_stored(f"{TREE}/{name}") for name in NAMES)}

    code, out, _ = piped("diff", hostile.first, hostile.head, "--paths", "-0")
    assert (code, set(out.split(b"\0")[:-1])) == (NO, nodes)
    assert piped("diff", hostile.head, hostile.head, "--paths", "-0") == (DONE, b"", b"")
    at_top = piped("diff", hostile.first, hostile.head, "--paths", "-0", "-d", "0", "--path", TREE)[1]
    assert at_top == as_stored(TREE) + b"\0"
    touched = piped("log", "--paths", "-0", TREE)[1].split(b"\0")[:-1]
    assert set(touched) == nodes
    assert [json.loads(line)["path"] for line in piped("log", "--paths", "--output", "json", "-n", "1")[1].splitlines()]
    assert {as_stored(name) for name in NAMES} <= {
        path.rpartition(b"/")[2] for path in piped("log", "--paths", "-0")[1].split(b"\0")
    }


def test_json_in_a_pipe_is_valid_and_exact(piped: Any, hostile: Hostile) -> None:
    for arguments in (("ls", TREE), ("cat", f"{TREE}/{NAMES[1]}"), ("log", "--changes"), ("status",), ("check",)):
        _, out, _ = piped(*arguments, "--output", "json")
        lines = [out] if arguments[0] == "status" else out.splitlines()
        for line in lines:
            json.loads(line.decode("utf-8"))
    names = [json.loads(line)["name"] for line in piped("ls", TREE, "--output", "json")[1].splitlines()]
    assert sorted(names) == sorted(NAMES)
    assert set(NAMES) <= json.loads(piped("nodes", TREE)[1].decode("utf-8")).keys()
    assert json.loads(piped("export", TREE, "-f", "json")[1].decode("utf-8"))["children"].keys() == set(NAMES)
    assert (
        "half" in json.loads(piped("diff", hostile.first, hostile.head, "--output", "json")[1].decode("utf-8"))["diff"]
    )
    piped("diff", hostile.first, hostile.head)[1].decode("utf-8")


def test_log_shows_the_first_line_of_a_message_or_all_of_it_indented(piped: Any) -> None:
    lines = piped("log", "/", "-n", "100")[1].split(b"\n")[:-1]
    assert b"forged" not in b"".join(lines)
    assert sum(line.endswith(b" nodes  first line") for line in lines) == 1
    assert sum(line.endswith(as_stored(f" 1 node   second {TITLE}\r")) for line in lines) == 1

    full = piped("log", "--full")[1].split(b"\n")
    at = full.index(b"    first line")
    assert full[at - 1].endswith(b" nodes")
    assert full[at + 1 : at + 4] == [
        b"    ffffffffffffffff  2026-01-01T00:00:00.000Z       1 nodes  forged",
        b"",
        b"    last\x1b[2J",
    ]
    assert b"" not in [
        line for line, before in zip(full[1:], full, strict=False) if before.endswith((b" node", b" nodes"))
    ]
    changes = piped("log", "--changes")[1].split(b"\n")
    assert all(line[:16].isalnum() or line.startswith(b"    ") for line in changes[:-1])


@pytest.mark.parametrize(
    "arguments",
    [
        ("ls", "-0", "--output", "json"),
        ("--output", "json", "ls", "-0"),
        ("log", "-0"),
        ("log", "-0", "--changes"),
        ("log", "--paths", "--full"),
        ("diff", "-0", "x"),
        ("cat", "/", "-0", "-p", "x"),
    ],
)
def test_contradictory_options_are_rejected(piped: Any, arguments: tuple[str, ...]) -> None:
    code, out, err = piped(*arguments)
    assert (code, out) == (USAGE, b"")
    assert b"Error: " in err


def test_messages_are_escaped_in_a_pipe_too(piped: Any) -> None:
    code, out, err = piped("ls", f"/{TITLE}\nforged\ud800\udce9")
    assert (code, out) == (NO, b"")
    assert err.count(b"\n") == 1
    assert b"\\x1b]0;owned\\x07" in err
    assert controls(err.decode()) == []


ENCODINGS: dict[str, dict[str, str]] = {
    "C": {"LC_ALL": "C"},
    "C without UTF-8": {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
    "POSIX": {"LANG": "POSIX", "LC_ALL": ""},
    "ascii": {"PYTHONIOENCODING": "ascii"},
    "ascii strict": {"PYTHONIOENCODING": "ascii:strict"},
    "latin-1": {"PYTHONIOENCODING": "latin-1:strict"},
    "utf-16": {"PYTHONIOENCODING": "utf-16"},
}


@pytest.mark.parametrize("name", ENCODINGS)
def test_the_locale_changes_no_byte_in_a_pipe(hostile: Hostile, name: str) -> None:
    environment = {**os.environ, **ENCODINGS[name], "HBASEMK_URL": hostile.url}
    code = (
        "import sys\n"
        "from hbasemk.cli.main import main\n"
        "for one in (['ls', '-r0'], ['ls', '/none\\udce9\\u20ac']):\n"
        "    try:\n        main(one)\n"
        "    except SystemExit as ended:\n        codes = ended.code\n"
        "sys.exit(codes)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, env=environment)

    assert ran.returncode == NO
    assert {as_stored(f"{TREE}/{name}") for name in NAMES} <= set(ran.stdout.split(b"\0"))
    assert b"\\xe9" in ran.stderr.replace(b"\0", b"")
    assert b"Traceback" not in ran.stderr


@pytest.mark.parametrize("name", ["C without UTF-8", "ascii strict", "latin-1"])
def test_a_terminal_of_another_encoding_shows_escapes(hostile: Hostile, tmp_path: Path, name: str) -> None:
    ran = on_terminal({"ls": ("ls", TREE)}, str(tmp_path), HBASEMK_URL=hostile.url, **ENCODINGS[name])["ls"]

    assert ran.code == DONE, ran.data
    assert b"family\\U0001f468\\u200d\\U0001f469" in ran.data
    assert b"caf\\xe9" in ran.data
    assert ran.data.count(b"\n") == len(NAMES)


def test_names_from_the_file_system_come_back_through_a_pipe(hostile: Hostile) -> None:
    command = [sys.executable, "-m", "hbasemk", "--url", hostile.url]
    listed = subprocess.run([*command, "ls", "-0", TREE], capture_output=True, check=True).stdout.split(b"\0")[:-1]
    name = next(one for one in listed if one.startswith(b"caf"))
    ran = subprocess.run(
        [*command, "cat", as_stored(TREE) + b"/" + name, "-p", b"p" + name], capture_output=True, check=False
    )
    assert ran.stdout == as_stored(VALUE)


def test_a_conflict_error_cannot_forge_a_line(
    hostile: Hostile, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    def lose(*_: object, **__: object) -> None:
        raise ConflictError(f"lost at {TITLE}\nhbasemk: all is well", path="/", column="x", revision="r", other="s")

    monkeypatch.setattr("hbasemk.repository.Repository.run", lose)
    with pytest.raises(SystemExit) as ended:
        main(["--url", hostile.url, "set", TREE, "a", "b"])
    assert ended.value.code == CONFLICT
    assert capfdbinary.readouterr().err == b"hbasemk: lost at \\x1b]0;owned\\x07\\nhbasemk: all is well\n"


def test_log_messages_of_the_library_are_escaped_like_all_messages(
    hostile: Hostile, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    logger = logging.getLogger("hbasemk.store")

    def refresh(repository: Repository) -> Snapshot:
        logger.warning("trouble with %s", f"{TITLE}\nforged")
        return repository.head

    monkeypatch.setattr("hbasemk.repository.Repository.refresh", refresh)
    with pytest.raises(SystemExit) as ended:
        main(["--url", hostile.url, "ls"])
    assert ended.value.code == DONE
    assert capfdbinary.readouterr().err == b"hbasemk: trouble with \\x1b]0;owned\\x07\\nforged\n"
    assert logging.getLogger("hbasemk").handlers == []


def test_skipped_and_unwritable_entries_are_shown_with_escapes(hostile: Hostile, tmp_path: Path) -> None:
    top = tmp_path / "in"
    top.mkdir()
    for name in ("esc\x1b[31m", "new\nline", "fine"):
        (top / name).write_text(name)
        os.mkfifo(top / f"{name}-fifo")
    url = f"sqlite:///{tmp_path / 'other.db'}"
    commands = {
        "init": ("init", "--url", url),
        "import": ("import", str(top), "--at", f"/x{TITLE}", "--workers", "1", "--url", url),
        "export": ("export", TREE, str(tmp_path / f"out{TITLE}"), "--url", hostile.url),
    }

    ran = on_terminal(commands, str(tmp_path))

    assert controls(ran["import"].text) == [], ran["import"].data
    assert "skipped: esc\\x1b[31m-fifo" in ran["import"].text
    assert "skipped: new\\nline-fifo" in ran["import"].text
    assert ran["import"].code == DONE, ran["import"].data
    assert controls(ran["export"].text) == [], ran["export"].data
    assert ran["export"].code == NO
    assert "skipped: /t\\x1b[7m\\nree" in ran["export"].text
    with connect(url) as repository:
        assert problems(repository) == []

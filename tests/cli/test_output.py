"""Output to a terminal and to a pipe when names, values and messages are hostile."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
import unicodedata
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from hbasemk import ConflictError, Repository, Snapshot, connect
from hbasemk.cli import output
from hbasemk.cli.main import main
from tests.support.commands import run_captured
from tests.support.repositories import problems
from tests.support.terminal import Shown, controls, on_terminal

DONE, NO, USAGE, CONFLICT, UNREACHABLE = range(5)

TITLE = "\x1b]0;owned\x07"
"""Sets the title of a terminal's window."""
FORGED = "first line\nffffffffffffffff  2026-01-01T00:00:00.000Z       1 nodes  forged\n\nlast\x1b[2J"
NAMES = (
    "plain",
    "esc\x1b[31mred",
    f"title{TITLE}",
    "new\nline",
    "tab\there",
    "carriage\rreturn",
    "del\x7fete",
    "c1\x9b31m",
    "nel\x85line",
    "bidi\u202etxt.exe",
    "isolate\u2066x\u2069",
    "separator\u2028line",
    "[red]markup[bold]",
    ":smile:",
    "caf\udce9",
    "half\ud83d",
    "tag\U000e0041",
    "family\U0001f468\u200d\U0001f469",
    "l" * 300,
)
VALUE = f"{TITLE}one\ntwo\t\x1b[31mred\x9b\u202e caf\udce9 \u00e9\r\n[red]"
TREE = "/t\x1b[7m\nree"
"""The parent of all of them."""


def as_stored(text: str) -> bytes:
    """The exact bytes of a text."""
    return b"".join(
        bytes([ord(one) - 0xDC00]) if 0xDC80 <= ord(one) <= 0xDCFF else one.encode("utf-8", "surrogatepass")
        for one in text
    )


class Hostile:
    """A repository full of texts that attack a terminal."""

    def __init__(self, path: Path) -> None:
        self.url = f"sqlite:///{path}"
        with connect(self.url, poll_interval=0) as repository:
            self.first = repository.head.revision
            with repository.transaction(FORGED) as tx:
                tx.add(TREE, {"title": "x"})
                for name in NAMES:
                    tx.add(f"{TREE}/{name}", {f"p{name}": VALUE, "bytes": VALUE.encode("utf-8", "surrogatepass")})
            branch = repository.branch()
            victim = f"{TREE}/{NAMES[1]}"
            branch.run(lambda tx: tx.set(victim, "a\x1b[0m", 1))
            repository.run(lambda tx: tx.set(victim, "a\x1b[0m", 2), f"second {TITLE}\r\n\nmore")
            self.branch = branch.revision
            second = repository.branch()
            second.run(lambda tx: tx.set(victim, "a\x1b[0m", 3))
            repository.run(lambda tx: tx.set(victim, "a\x1b[0m", 4))
            self.second = second.revision
            self.head = repository.refresh().revision
            self.blob = repository.blobs.write(TITLE.encode() + b"\xff\n\x9b").id


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hostile]:
    made = Hostile(tmp_path_factory.mktemp("hostile") / "content.db")
    yield made
    with connect(made.url, create=False, poll_interval=0) as repository:
        assert problems(repository) == []


COMMANDS: dict[str, tuple[int, Callable[[Hostile], tuple[str, ...]]]] = {
    "ls": (DONE, lambda _: ("ls", TREE)),
    "ls long": (DONE, lambda _: ("ls", "-l", TREE)),
    "ls recursive": (DONE, lambda _: ("ls", "-lr", TREE)),
    "ls json": (DONE, lambda _: ("ls", TREE, "--output", "json")),
    "cat": (DONE, lambda _: ("cat", f"{TREE}/{NAMES[1]}")),
    "cat json": (DONE, lambda _: ("cat", f"{TREE}/{NAMES[6]}", "--output", "json")),
    "cat text": (DONE, lambda _: ("cat", f"{TREE}/{NAMES[1]}", "-p", f"p{NAMES[1]}")),
    "cat bytes": (DONE, lambda _: ("cat", f"{TREE}/{NAMES[1]}", "-p", "bytes")),
    "log": (DONE, lambda _: ("log",)),
    "log changes": (DONE, lambda _: ("log", "--changes")),
    "log full": (DONE, lambda _: ("log", "--full")),
    "log paths": (DONE, lambda _: ("log", "--paths")),
    "log json": (DONE, lambda _: ("log", "--changes", "--output", "json")),
    "status": (DONE, lambda _: ("status",)),
    "nodes": (DONE, lambda _: ("nodes", TREE)),
    "diff": (NO, lambda it: ("diff", it.first)),
    "diff paths": (NO, lambda it: ("diff", it.first, "--paths")),
    "diff json": (NO, lambda it: ("diff", it.first, "--output", "json")),
    "watch": (DONE, lambda it: ("watch", "--since", it.first, "-n", "2")),
    "watch json": (DONE, lambda it: ("watch", "--since", it.first, "-n", "2", "--output", "json")),
    "check": (DONE, lambda _: ("check",)),
    "check subtree": (DONE, lambda _: ("check", "--path", TREE)),
    "recover": (DONE, lambda _: ("recover",)),
    "export": (DONE, lambda _: ("export", TREE, "-f", "json")),
    "blob get": (DONE, lambda it: ("blob", "get", it.blob)),
    "rebase": (DONE, lambda it: ("branch", "--rebase", it.branch)),
    "merge": (CONFLICT, lambda it: ("merge", it.second)),
    "set": (DONE, lambda _: ("set", TREE, TITLE, TITLE, "-m", TITLE)),
    "commit": (DONE, lambda _: ("commit", '+"/c":{}', "-m", TITLE)),
    "ls of nothing": (NO, lambda _: ("ls", f"/{TITLE}\nx")),
    "ls of a wrong path": (USAGE, lambda _: ("ls", f"{TITLE}\nx")),
    "ls at a wrong revision": (USAGE, lambda _: ("ls", "--at", f"{TITLE}\nx")),
    "ls of a wrong URL": (USAGE, lambda _: ("ls", "--url", f"ftp://{TITLE}x")),
    "ls of another URL": (UNREACHABLE, lambda _: ("ls", "--url", "sqlite:////nowhere/%1b]0;owned%07x")),
    "cat of nothing": (NO, lambda _: ("cat", f"/{TITLE}\nx")),
    "cat of no property": (NO, lambda _: ("cat", TREE, "-p", f"{TITLE}\nx")),
    "log of nothing": (NO, lambda _: ("log", f"/{TITLE}\nx")),
    "check of nothing": (NO, lambda _: ("check", "--path", f"/{TITLE}\nx")),
    "nodes of nothing": (NO, lambda _: ("nodes", f"/{TITLE}\nx")),
    "nodes with a wrong filter": (USAGE, lambda _: ("nodes", "/", "--filter", f"{TITLE}\nx")),
    "rm of nothing": (NO, lambda _: ("rm", f"/{TITLE}\nx")),
    "mv of nothing": (NO, lambda _: ("mv", f"/{TITLE}\nx", "/y")),
    "cp to where something is": (NO, lambda _: ("cp", TREE, f"{TREE}/{NAMES[1]}")),
    "set of nothing": (NO, lambda _: ("set", f"/{TITLE}\nx", "a", "b")),
    "set of a wrong value": (USAGE, lambda _: ("set", TREE, "a", f"{TITLE}\nx", "-t", "integer")),
    "commit of a wrong text": (USAGE, lambda _: ("commit", f"{TITLE}\nx")),
    "commit of nothing there": (NO, lambda _: ("commit", '-"/\\u001b]0;x\\u0007\\ny"')),
    "blob of a wrong id": (NO, lambda _: ("blob", "get", f"{TITLE}\nx")),
    "a wrong option": (USAGE, lambda _: ("ls", f"--{TITLE}\nx")),
    "a wrong command": (USAGE, lambda _: (f"{TITLE}\nx",)),
    "a wrong choice": (USAGE, lambda _: ("ls", "--output", f"{TITLE}\nx")),
    "import of nothing": (USAGE, lambda _: ("import", f"/nowhere/{TITLE}\nx")),
    "an error with its place": (NO, lambda _: ("--debug", "ls", f"/{TITLE}\nx")),
}


@pytest.fixture(scope="module")
def shown(hostile: Hostile, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Shown]:
    """The output of each command on a terminal."""
    commands = {name: make(hostile) for name, (_, make) in COMMANDS.items()}
    folder = str(tmp_path_factory.mktemp("plan"))
    return on_terminal(commands, folder, HBASEMK_URL=hostile.url, HBASEMK_DEBUG="")


# --- on a terminal ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", COMMANDS)
def test_no_control_character_reaches_a_terminal(shown: dict[str, Shown], name: str) -> None:
    ran = shown[name]

    assert ran.code == COMMANDS[name][0], ran.data
    assert controls(ran.text) == [], ran.data
    assert ran.data != b""
    assert ("Traceback" in ran.text) == (name == "an error with its place")


def test_a_terminal_shows_one_name_a_line_with_escapes(shown: dict[str, Shown]) -> None:
    expected = {
        "esc\\x1b[31mred",
        "title\\x1b]0;owned\\x07",
        "new\\nline",
        "tab\\there",
        "carriage\\rreturn",
        "del\\x7fete",
        "c1\\u009b31m",
        "nel\\u0085line",
        "bidi\\u202etxt.exe",
        "isolate\\u2066x\\u2069",
        "separator\\u2028line",
        "[red]markup[bold]",
        ":smile:",
        "caf\\xe9",
        "half\\ud83d",
        "tag\\U000e0041",
        "family\U0001f468\u200d\U0001f469",
        "plain",
        "l" * 300,
    }

    assert set(shown["ls"].text.splitlines()) == expected
    assert len(shown["ls"].text.splitlines()) == len(NAMES)
    assert len(shown["ls recursive"].text.splitlines()) == len(NAMES)


def test_a_terminal_keeps_the_lines_of_a_text(shown: dict[str, Shown]) -> None:
    wanted = "\\x1b]0;owned\\x07one\ntwo\t\\x1b[31mred\\u009b\\u202e caf\\xe9 é\\r\n[red]\n"

    assert shown["cat text"].text == wanted
    assert shown["blob get"].text == "\\x1b]0;owned\\x07\\xff\n\\x9b\n"


def test_json_on_a_terminal_is_exact(shown: dict[str, Shown]) -> None:
    names = [json.loads(line)["name"] for line in shown["ls json"].text.splitlines()]
    assert sorted(names) == sorted(NAMES)
    assert json.loads(shown["nodes"].text)[NAMES[1]][":childNodeCount"] == 0
    assert f"p{NAMES[6]}" in json.loads(shown["cat json"].text)
    assert TREE[1:] not in shown["export"].text
    assert json.loads(shown["export"].text)["children"].keys() == set(NAMES)
    assert any(one["message"] == FORGED for one in map(json.loads, shown["log json"].text.splitlines()))


def test_an_error_on_a_terminal_is_one_line(shown: dict[str, Shown]) -> None:
    for name in (
        "ls of nothing",
        "log of nothing",
        "check of nothing",
        "nodes of nothing",
        "merge",
        "commit of nothing there",
    ):
        assert shown[name].text.count("\n") == 1, name
        assert shown[name].text.startswith("hbasemk: ")
        assert "\\x1b" in shown[name].text


def test_a_log_cannot_be_forged(shown: dict[str, Shown], hostile: Hostile) -> None:
    with connect(hostile.url, poll_interval=0) as repository:
        revisions = [entry.revision for entry in repository.log()]
    for name in ("log", "log full", "log changes"):
        begun = [line.split()[0] for line in shown[name].text.splitlines() if line[:1].strip()]
        # Commands that commit may have run since.
        assert set(begun) <= set(revisions), name
        assert len(begun) == len(set(begun)) > 3
    assert "forged" not in shown["log"].text
    assert "    ffffffffffffffff  2026" in shown["log full"].text
    assert "    last\\x1b[2J" in shown["log full"].text


def test_the_progress_of_an_import_shows_its_target_as_it_is(hostile: Hostile, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_bytes(b"a")
    url = f"sqlite:///{tmp_path / 'other.db'}"
    target = f"/[red]x[bold]{TITLE}"
    commands = {
        "init": ("init", "--url", url),
        "import": ("import", str(tmp_path / "in"), "--at", target, "--workers", "1", "--url", url),
        "check": ("check", "--url", url),
    }

    ran = on_terminal(commands, str(tmp_path), term="xterm")

    assert ran["import"].code == DONE, ran["import"].data
    assert b"import to /[red]x[bold]\\x1b]0;owned\\x07" in ran["import"].data
    assert b"\x1b]" not in ran["import"].data
    assert b"\x07" not in ran["import"].data
    assert ran["check"].data.endswith(b"notes            0\n")
    with connect(url) as repository:
        assert problems(repository) == []


def test_a_line_beside_a_progress_bar_is_neither_wrapped_nor_interpreted(
    tmp_path: Path,
) -> None:
    path = tmp_path / "content.db"
    code = (
        "import sys\n"
        "from hbasemk.cli import output\n"
        "from hbasemk.cli.session import Session\n"
        "output.prepare_streams()\n"
        "with output.progress_bar() as bar:\n"
        "    bar.add_task('[red]busy', total=None)\n"
        "    Session().line('[bold]' + 'x ' * 100 + ':smile: \\x1b[31m')\n"
        "    output.complain('y ' * 100 + '[blue]')\n"
    )
    path.write_text("")
    import pty

    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=theirs, stderr=theirs, env={**os.environ, "TERM": "xterm", "COLUMNS": "80"}
    ) as running:
        os.close(theirs)
        data = b""
        while True:
            try:
                data += os.read(ours, 65536)
            except OSError:
                break
    os.close(ours)
    assert running.returncode == 0, data
    assert b"[bold]" + b"x " * 100 + b":smile: \\x1b[31m\r\n" in data
    assert b"hbasemk: " + b"y " * 100 + b"[blue]\r\n" in data
    assert b"[red]busy" in data


def test_the_escaped_characters_are_those_that_control_or_hide() -> None:
    visible_format = set("\u200c\u200d\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2")
    visible_format |= {"\U000110bd", "\U000110cd"} | {chr(code) for code in range(0x13430, 0x13460)}
    for code in range(sys.maxunicode + 1):
        one = chr(code)
        kind = unicodedata.category(one)
        if kind in {"Cc", "Cs", "Zl", "Zp"} or (kind == "Cf" and one not in visible_format):
            assert output.visible(one) != one, hex(code)
            assert output.visible(one).isascii()
        elif kind not in {"Cn", "Mn"}:
            assert output.visible(one) == one, hex(code)


def test_different_bytes_and_controls_look_different() -> None:
    shown = [output.visible(one) for one in ("\x85", "\udc85", "\n", "\x0a", "\x1b", "\u202e", "\ud800")]
    assert shown == ["\\u0085", "\\x85", "\\n", "\\n", "\\x1b", "\\u202e", "\\ud800"]


def test_every_command_prints_through_one_module() -> None:
    folder = Path(output.__file__).parent
    for file in sorted(folder.glob("*.py")):
        if file.name != "output.py":
            found = re.findall(
                r"click\.s?echo\b|(?<![\w.])print\(|std(?:out|err)\.(?:buffer|write)", file.read_text("utf-8")
            )
            assert found == [], file.name


# --- in a pipe --------------------------------------------------------------------------------------------


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
    assert sum(line.endswith(b"nodes  first line") for line in lines) == 1
    assert sum(line.endswith(as_stored(f"nodes  second {TITLE}\r")) for line in lines) == 1

    full = piped("log", "--full")[1].split(b"\n")
    at = full.index(b"    first line")
    assert full[at - 1].endswith(b" nodes")
    assert full[at + 1 : at + 4] == [
        b"    ffffffffffffffff  2026-01-01T00:00:00.000Z       1 nodes  forged",
        b"",
        b"    last\x1b[2J",
    ]
    assert b"" not in [line for line, before in zip(full[1:], full, strict=False) if before.endswith(b" nodes")]
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


# --- encodings --------------------------------------------------------------------------------------------

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

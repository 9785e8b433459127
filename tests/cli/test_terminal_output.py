"""Output to a terminal: nothing from data controls the terminal or forges a line."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest

from hbasemk import connect
from hbasemk.cli import output
from tests.support.commands import DONE
from tests.support.hostile import COMMANDS, FORGED, NAMES, TITLE, TREE, Hostile
from tests.support.repositories import problems
from tests.support.terminal import Shown, controls, on_terminal


@pytest.fixture(scope="module")
def shown(hostile: Hostile, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Shown]:
    """The output of each command on a terminal."""
    commands = {name: make(hostile) for name, (_, make) in COMMANDS.items()}
    folder = str(tmp_path_factory.mktemp("plan"))
    return on_terminal(commands, folder, HBASEMK_URL=hostile.url, HBASEMK_DEBUG="")


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

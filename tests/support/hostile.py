"""A repository whose names, values and messages contain control characters, and commands that print them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hbasemk import connect
from tests.support.commands import CONFLICT, DONE, NO, UNREACHABLE, USAGE

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
    """Return the exact bytes of a text."""
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

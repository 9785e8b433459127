"""The command line on a terminal: what arrives there, byte by byte."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import termios
import unicodedata
from collections.abc import Mapping, Sequence
from typing import NamedTuple

_DRIVER = """
import importlib, json, os, sys
main = importlib.import_module(sys.argv[2]).main
for number, arguments in enumerate(json.load(open(sys.argv[1]))):
    try:
        main(arguments)
    except SystemExit as ended:
        sys.stdout.flush()
        sys.stderr.flush()
        os.write(1, f"\\0{number} {int(ended.code or 0)}\\0".encode())
"""


class Shown(NamedTuple):
    """How a command ended, and the bytes that reached the terminal."""

    code: int
    data: bytes

    @property
    def text(self) -> str:
        return self.data.decode()


def on_terminal(
    commands: Mapping[str, Sequence[str]],
    folder: str,
    *,
    term: str = "dumb",
    module: str = "hbasemk.cli.main",
    **environment: str,
) -> dict[str, Shown]:
    """Run commands one after the other in one process, whose standard output and error are a terminal.

    ``main`` in the ``module`` gets the arguments of each.
    """
    plan = os.path.join(folder, "commands.json")
    with open(plan, "w", encoding="ascii") as file:
        json.dump([list(arguments) for arguments in commands.values()], file)
    ours, theirs = pty.openpty()
    mode = termios.tcgetattr(theirs)
    mode[1] &= ~termios.OPOST  # the bytes as they are written
    termios.tcsetattr(theirs, termios.TCSANOW, mode)
    given = {**os.environ, "TERM": term, "COLUMNS": "80", **environment}
    received = bytearray()
    with subprocess.Popen(
        [sys.executable, "-c", _DRIVER, plan, module],
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        env=given,
    ):
        os.close(theirs)
        while True:
            try:
                received += os.read(ours, 65536)
            except OSError:
                # The end of a terminal's output on Linux.
                break
    os.close(ours)
    found = {}
    pieces = re.split(rb"\x00(\d+ \d+)\x00", bytes(received))
    for name, data, ended in zip(commands, pieces[::2], pieces[1::2], strict=False):
        found[name] = Shown(int(ended.split()[1]), data)
    assert list(found) == list(commands), bytes(received)
    return found


def controls(text: str) -> list[str]:
    """Return the characters, except line feeds and tabs, that control a terminal or reorder its text."""
    return [
        one
        for one in text
        if one not in "\n\t"
        and (
            unicodedata.category(one) in {"Cc", "Cs", "Zl", "Zp"}
            or unicodedata.bidirectional(one) in {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
            or one in "\u200e\u200f\u061c"
        )
    ]

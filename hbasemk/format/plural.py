"""Numbers of things in messages."""

from __future__ import annotations


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun, such as 1 node or 2 nodes. ``plural`` is needed if it is not the noun with an s."""
    return f"{number} {noun}" if number == 1 else f"{number} {plural or noun + 's'}"

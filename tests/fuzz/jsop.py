"""Throws texts at the JSOP reader: valid ones, and what random mutation makes of them.

Each text is either refused with a position in it, or read to what the naive reader finds; and what is read is written
to a text that means the same. Half of the texts meet limits that are so low that short texts pass them.

Run by hand: ``python -m tests.fuzz.jsop --inputs 1000000 --seed 7``.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

from hbasemk.errors import JsopError
from hbasemk.format import limits, paths
from hbasemk.jsop import Operation, parse, write
from tests.support import naive_jsop

ROOTS = ("", "", "/", "/r/s")
TOKENS: tuple[str, ...] = (
    *'+-^>*=:,{}[]"\\/ \t\n.x0e',
    *('""', '"a"', '"b"', '"/"', '"/a"', '"/a/b"', '"a/b"', '"."', '"/.."', '"a/"', '"//"', '":id"', '"\\u0061"'),
    *("0", "-1", "1.50", "1e3", "-0.0E+7", "01", "1.", "NaN", "true", "false", "null", "{}", "[]", '{"a":1}', "[1,2]"),
    *('"\\n"', '"\\ud83d\\ude00"', '"\\ud800"', '"\\udc00"', '"\\u12"', '"\ud83d\ude00"', '"\ud83d\\ude00"', "\ud800"),
    *("\x00", "\x1f", "\x7f", "\x85", "\u2028", "\ufeff", "é", "😀", "\u0661"),
)
SEEDS = (
    '+"/a":{"b":{"c":1.50,"d":[1,"x",true]},"e":null}',
    '^"/a/b":"x\\u00e9\\n" - "/a" >"/a":"/b"*"/b":"/c"',
    '+"a":{} +"b":[] ^"c":null\n-"d"',
    '^"/a":{}+"/a":{ "x" : { } , "y" : [ "\\ud83d\\ude00" , false ] }',
)


class Figures(NamedTuple):
    """How many texts were tried, and how many of them were JSOP."""

    inputs: int
    accepted: int
    seconds: float


@contextmanager
def low_limits(rng: random.Random) -> Iterator[None]:
    """Limits that texts of 200 characters can pass: of levels, names, paths, all paths together, and numbers."""
    longest = rng.randrange(3, 12)
    low = {
        "MAX_DEPTH": rng.randrange(1, 5),
        "MAX_NAME": longest - 1,
        "MAX_PATH": longest,
        "MAX_PATHS": rng.randrange(4, 60),
        "MAX_DIGITS": rng.randrange(1, 6),
    }
    before = {name: getattr(limits, name) for name in low}
    longest_key = paths.MAX_KEY
    for name, value in low.items():
        setattr(limits, name, value)
    paths.MAX_KEY = low["MAX_PATH"] + 2  # type: ignore[misc]
    try:
        yield
    finally:
        paths.MAX_KEY = longest_key  # type: ignore[misc]
        for name, value in before.items():
            setattr(limits, name, value)


def check(text: str, root: str, changed_subtrees: bool) -> bool:
    """Whether the text is JSOP; fails if the reader and the writer do not do what they must."""
    try:
        operations = parse(text, root, changed_subtrees=changed_subtrees)
    except JsopError as error:
        refusal = error
    else:
        _check_meaning(operations, naive_jsop.read(text, root, changed_subtrees))
        return True
    assert 0 <= refusal.offset <= len(text)
    assert refusal.context in str(refusal)
    str(refusal).encode()
    try:
        wanted = naive_jsop.read(text, root, changed_subtrees)
    except naive_jsop.RefusedError:
        return False
    raise AssertionError(f"refused, but it means {wanted}") from refusal


def _check_meaning(operations: list[Operation], wanted: list[tuple[Any, ...]]) -> None:
    assert naive_jsop.plain(operations) == wanted
    written = write(operations)
    written.encode()
    again = parse(written, changed_subtrees=True)
    assert again == operations
    assert write(again) == written


def mutate(rng: random.Random, text: str, other: str) -> str:
    """The text with one random change."""
    at = rng.randrange(len(text) + 1)
    end = min(len(text), at + rng.randrange(1, 8))
    kind = rng.randrange(6)
    if kind == 0:
        return text[:at] + text[end:]
    if kind == 1:
        return text[:end] + text[at:]
    if kind == 2:
        return text[:at] + rng.choice(TOKENS) + text[end:]
    if kind == 3:
        start = rng.randrange(len(other) + 1)
        return text[:at] + other[start : start + rng.randrange(20)] + text[at:]
    if kind == 4:
        return text[:at] + chr(rng.randrange(0x80)) + text[at + 1 :]
    return text[:at] + rng.choice(TOKENS) + text[at:]


def run(inputs: int, seed: int) -> Figures:
    """Try that many texts; a failure names the text, and the seed that repeats the run."""
    rng = random.Random(seed)
    pool = list(SEEDS)
    accepted = 0
    begun = time.perf_counter()
    for number in range(inputs):
        text = rng.choice(pool)
        for _ in range(rng.randrange(4)):
            text = mutate(rng, text, rng.choice(pool))
        text = text[:200]
        root, changed_subtrees = rng.choice(ROOTS), rng.random() < 0.5
        low = rng.random() < 0.5
        try:
            with low_limits(rng) if low and len(root) < 3 else nullcontext():
                fine = check(text, root, changed_subtrees)
        except Exception as error:
            raise AssertionError(
                f"input {number}: parse({text!r}, {root!r}, changed_subtrees={changed_subtrees}): {error!r}; "
                f"repeat with: python -m tests.fuzz.jsop --inputs {number + 1} --seed {seed}"
            ) from error
        accepted += fine
        if (fine and rng.random() < 0.2) or rng.random() < 0.02:
            if len(pool) < 500:
                pool.append(text)
            else:
                pool[rng.randrange(len(SEEDS), 500)] = text
    return Figures(inputs, accepted, time.perf_counter() - begun)


def main() -> None:
    parser = argparse.ArgumentParser(description="Fuzz the JSOP reader and writer.")
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    chosen = parser.parse_args()
    print(f"seed {chosen.seed}", flush=True)
    figures = run(chosen.inputs, chosen.seed)
    print(f"{figures.inputs} inputs, {figures.accepted} of them JSOP, {figures.seconds:.1f} s")


if __name__ == "__main__":
    main()

"""Arguments that begin with a hyphen: JSOP that removes, negative numbers, and options that do not exist."""

from __future__ import annotations

import math

import pytest

from hbasemk import connect
from tests.support.commands import DONE, NO, USAGE, Run


def properties(url: str, path: str) -> dict[str, object]:
    with connect(url, poll_interval=0) as repository:
        return dict(repository.head[path])


@pytest.fixture
def names(run: Run) -> list[str]:
    """Nodes whose names begin with the letters of options of `commit`."""
    made = ["home", "message", "the", "url", "x"]
    assert run("init").code == DONE
    for name in made:
        assert run("commit", f'+"/{name}":{{}}').code == DONE
    return made


@pytest.mark.parametrize("form", ['-"/{}"', '- "/{}"', '-\t"/{}"'])
def test_commit_takes_a_removal_whatever_the_name_begins_with(run: Run, names: list[str], form: str) -> None:
    for name in names:
        ran = run("commit", form.format(name))
        assert (ran.code, len(ran.out), ran.err) == (DONE, 17, ""), name
    assert run("ls").out == ""


@pytest.mark.parametrize(
    "words",
    [
        ('-"/home"', "-m", "-5"),
        ("-m", "-5", '-"/home"'),
        ("-m-5", '-"/home"'),
        ('-"/home"', "-m-5"),
        ("--message", "-5", '-"/home"'),
        ('-"/home"', "--message=-5"),
        ("-m", "-5", "--", '-"/home"'),
    ],
    ids=" ".join,
)
def test_commit_takes_a_removal_before_and_after_options(run: Run, names: list[str], words: tuple[str, ...]) -> None:
    assert run("commit", *words).code == DONE
    assert "home" not in run("ls").out
    assert run("log", "-n", "1", "--output", "json").json["message"] == "-5"


def test_commit_takes_a_message_that_looks_like_a_removal(run: Run, names: list[str]) -> None:
    assert run("commit", "-m", '-"/x"', '-"/home"').code == DONE
    assert run("log", "-n", "1", "--output", "json").json["message"] == '-"/x"'
    assert "x" in run("ls").out


def test_commit_takes_only_one_text(run: Run, names: list[str]) -> None:
    ran = run("commit", '-"/home"', '-"/x"')
    assert ran.code == USAGE
    assert '-"/x"' in ran.err
    assert "home" in run("ls").out


@pytest.mark.parametrize("text", ["-/home", '-["/home"]'])
def test_commit_says_what_is_wrong_with_a_removal(run: Run, names: list[str], text: str) -> None:
    ran = run("commit", text)
    assert ran.code == USAGE
    assert "expected a path in double quotes" in ran.err


NUMBERS = ["-5", "-1.5", "-inf", "-infinity", "-1e3", "-0", "-.5"]


@pytest.mark.parametrize("number", NUMBERS)
def test_set_takes_a_negative_number(run: Run, tree: None, url: str, number: str) -> None:
    assert run("set", "/c", "text", number, "-m", "-7").code == DONE
    assert run("set", "-t", "float", "/c", "real", number).code == DONE
    assert properties(url, "/c") == {"text": number, "real": float(number)}
    assert run("log", "-n", "2", "--output", "json").lines[1]["message"] == "-7"


@pytest.mark.parametrize("number", [one for one in NUMBERS if "inf" not in one])
def test_adjust_takes_a_negative_number(run: Run, tree: None, url: str, number: str) -> None:
    assert run("adjust", "/c", "n", "1000").code == DONE
    assert run("adjust", "/c", "n", number).code == DONE
    assert properties(url, "/c") == {"n": 1000 + float(number)}


def test_arguments_keep_their_order(run: Run, tree: None, url: str) -> None:
    assert run("set", "/c", "-m", "made", "-1", "x").code == DONE
    assert run("set", "/c", "-2", "--type", "float", "-3").code == DONE
    assert run("set", "--type=float", "/c", "-4", "--", "-inf").code == DONE
    assert properties(url, "/c") == {"-1": "x", "-2": -3.0, "-4": -math.inf}


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("set", "/c", "shell", "-bash"), "-bash"),
        (("set", "/c", "greeting", "-hello"), "-e"),
        (("set", "/c", "delay", "-30min"), "-30min"),
        (("set", "/c", "n", "-1x"), "-1x"),
        (("set", "/c", "n", "1", "--creat=yes"), "--creat=yes"),
        (("adjust", "/c", "n", "-5min"), "-5min"),
        (("adjust", "/c", "n", "-1_0"), "-1_0"),
        (("commit", "-q", '+"/new":{}'), "-q"),
        (("commit", '+"/new":{}', "--quiet"), "--quiet"),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, tuple) else "",
)
def test_an_option_that_does_not_exist_changes_nothing(
    run: Run, tree: None, url: str, words: tuple[str, ...], named: str
) -> None:
    before = run("log", "-n", "1").out
    ran = run(*words)
    assert (ran.code, ran.out) == (USAGE, "")
    assert named in ran.err
    assert "o such option" in ran.err
    assert named == "-e" or "put -- before the arguments" in ran.err
    assert run("log", "-n", "1").out == before


@pytest.mark.parametrize(
    "words",
    [
        ("set", "/c", "n", "-5", "-m"),
        ("set", "/c", "n", "1", "--message"),
        ("adjust", "/c", "n", "-5", "-m"),
        ("commit", '-"/c"', "-m"),
    ],
    ids=" ".join,
)
def test_an_option_without_its_value_is_named(run: Run, tree: None, words: tuple[str, ...]) -> None:
    ran = run(*words)
    assert ran.code == USAGE
    assert words[-1] in ran.err
    assert "requires an argument" in ran.err
    assert run("cat", "/c") == (DONE, "", "")


def test_options_together_take_the_next_word_as_their_value(run: Run, tree: None, url: str) -> None:
    ran = run("set", "/c", "n", "1", "-hm", "-5")
    assert (ran.code, ran.err) == (DONE, "")
    assert ran.out.startswith("Usage: hbasemk set")
    assert properties(url, "/c") == {}


def test_a_removal_of_a_missing_node_fails(run: Run, names: list[str]) -> None:
    assert run("commit", '-"/missing"').code == NO

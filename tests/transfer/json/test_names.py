"""Names in JSON exports: exact, or an error."""

from __future__ import annotations

import pytest

from hbasemk import InvalidValueError, Repository
from hbasemk.transfer.json.exporter import export_json
from tests.support.repositories import Instances

PAIR = "\ud83d" + "\ude00"
"""Two surrogates side by side. JSON readers join them to one character."""


def exported(repository: Repository, path: str) -> str:
    return "".join(export_json(repository.head, path))


def test_a_name_that_json_would_change_is_not_exported(opened: Instances) -> None:
    one = opened()
    one.run(lambda tx: (tx.add("/a", {PAIR: 1}), tx.add("/b"), tx.add(f"/b/{PAIR}"), tx.add("/c", {"x": PAIR})))
    for path in ("/a", "/b", "/"):
        with pytest.raises(InvalidValueError, match="would join two surrogates"):
            exported(one, path)
    assert exported(one, "/c").startswith("{")


@pytest.mark.parametrize("name", ["\ud83d", "\ude00\ud83d", "\U0001f600", "\x00", '"\\'])
def test_other_names_are_exported(opened: Instances, name: str) -> None:
    one = opened()
    one.run(lambda tx: tx.add("/a", {name: 1}))
    assert exported(one, "/a")

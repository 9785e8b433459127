"""Every error can be pickled and copied, with its message and its facts."""

from __future__ import annotations

import copy
import inspect
import pickle

import pytest

from hbasemk import errors

CLASSES = [found for _, found in inspect.getmembers(errors, inspect.isclass) if issubclass(found, errors.HbasemkError)]


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_pickling_and_copying_keep_message_and_facts(kind: type[errors.HbasemkError]) -> None:
    error = kind("it happened", path="/a", revision="00", other="01")
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(again) is kind
        assert str(again) == "it happened"
        assert (again.path, again.revision, again.other) == ("/a", "00", "01")


def test_a_missing_node_is_a_key_error_with_a_readable_text() -> None:
    error = errors.NodeNotFoundError("there is no node at /a", path="/a", revision=None)
    assert isinstance(error, KeyError)
    assert str(error) == "there is no node at /a"

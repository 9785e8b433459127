"""Every error can be pickled and copied, with its message and its facts."""

from __future__ import annotations

import copy
import inspect
import pickle

import pytest

from hbasemk import MicroKernel, connect, errors

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


def test_an_error_about_a_name_with_lone_surrogates_can_be_printed() -> None:
    name = "a\udcff\ud800"
    with connect("memory://") as repository, pytest.raises(errors.NodeNotFoundError) as raised:
        _ = repository.head["/" + name]

    assert str(raised.value).encode("utf-8").startswith(rb"there is no node at /a\xff\ud800 in")
    assert raised.value.args == (raised.value.message,) == (str(raised.value),)
    assert raised.value.path == "/" + name


def test_an_error_whose_text_is_completed_later_can_be_printed() -> None:
    with connect("memory://") as repository, pytest.raises(errors.NodeNotFoundError) as raised:
        MicroKernel(repository).commit("", '-"/a\udcff"')

    assert str(raised.value).encode("utf-8").startswith(rb"there is neither a node nor a property at /a\xff to remove")
    assert raised.value.args == (raised.value.message,)
    assert str(copy.copy(raised.value)) == str(raised.value)

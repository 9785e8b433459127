"""Values from the Python API that have no plain JSON form are readable, and so are the nodes around them."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest

from hbasemk import InvalidValueError
from hbasemk.format import values
from hbasemk.format.values import Json
from tests.support.microkernel import Cluster


def test_integers_up_to_the_limit_are_returned_and_round_trip(mk: Cluster) -> None:
    digits = "1" + "7" * 4299
    number = int(Decimal(digits))
    before = mk.get_head_revision()
    mk.next.repository.run(lambda tx: tx.add("/big", {"n": number, "all": [-number, 1]}))
    text = str(mk.get_nodes("/", None, 9))
    assert f'"n":{digits}' in text
    assert f'"all":[-{digits},1]' in text
    diff = str(mk.diff(before, None))
    mk.commit("", '-"/big"')
    mk.commit("", diff)
    assert str(mk.get_nodes("/", None, 9)) == text


def test_stored_json_that_is_not_a_number_is_returned_as_a_string(mk: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as earlier:
        # Earlier versions accepted and stored any text.
        earlier.setattr(values, "_is_number", lambda text: True)
        mk.next.repository.run(lambda tx: tx.add("/j", {"o": Json('{"a":1}'), "all": [Json("NaN"), Json("1.50")]}))
    text = str(mk.get_nodes("/", None, 3))
    assert json.loads(text)["j"] == {"all": [":json:NaN", 1.5], "o": ':json:{"a":1}', ":childNodeCount": 0}
    assert "1.50" in text
    assert ":json:" in str(mk.get_journal(mk.get_head_revision(), None))


def test_a_text_cannot_store_a_str_that_looks_like_a_reference(mk: Cluster) -> None:
    before = mk.get_head_revision()
    mk.next.repository.run(lambda tx: tx.set("/", "p", ":blobId:note"))
    diff = str(mk.diff(before, None))
    assert diff == '^"/p":":blobId:note"'
    with pytest.raises(InvalidValueError, match="id of a blob"):
        mk.commit("", diff)


@pytest.mark.parametrize(("text", "stored"), [("5", 5), ("1.5", 1.5)])
def test_a_text_stores_a_kept_spelling_that_a_number_has_anyway_as_that_number(
    mk: Cluster, text: str, stored: float
) -> None:
    before = mk.get_head_revision()
    mk.next.repository.run(lambda tx: tx.set("/", "p", Json(text)))
    kept = mk.get_head_revision()
    diff = str(mk.diff(before, kept))
    mk.commit("", diff)
    assert mk.next.repository.head["/"]["p"] == stored
    assert mk.diff(kept, None) == diff == f'^"/p":{text}'

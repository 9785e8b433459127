"""The conformance suite finds stores that break one promise of the contract."""

from __future__ import annotations

import pytest

from tests.support.wrong_stores import FINDINGS, Finding

NAMES = [f"{finding.store.__name__}-{finding.test}" for finding in FINDINGS]


@pytest.mark.parametrize("finding", FINDINGS, ids=NAMES)
def test_the_suite_finds_a_wrong_store(finding: Finding) -> None:
    with pytest.raises((AssertionError, KeyError, pytest.fail.Exception)):
        finding.run(finding.store)


@pytest.mark.parametrize("finding", FINDINGS, ids=NAMES)
def test_the_test_that_finds_a_wrong_store_accepts_a_right_one(finding: Finding) -> None:
    finding.run(finding.store.__mro__[1])

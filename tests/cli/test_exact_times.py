"""A time names a snapshot of its own, which can contain more than the snapshot of its newest revision."""

from __future__ import annotations

import datetime
import time

import pytest

from hbasemk import connect
from hbasemk.repository import instance_of
from tests.support.commands import Run


@pytest.fixture
def concurrent(url: str) -> dict[str, str]:
    """A branch on the newest revision, and a commit with a lower id that arrived later: only its snapshot by time has both."""
    with connect(url, poll_interval=0) as late, connect(url, poll_interval=0) as quick:
        late.run(lambda tx: tx.add("/a", {"n": 1}))
        base = late.refresh()
        announcements = instance_of(late).announcements
        low = announcements.next(base_id := int(base.revision, 16), [])
        assert low > base_id
        time.sleep(0.002)
        high = quick.run(lambda tx: (tx.add("/quick"), tx)[1]).revision
        branch = quick.branch()
        branch.run(lambda tx: tx.add("/mine"))
        with pytest.MonkeyPatch.context() as patched, late.transaction(base=base) as tx:
            patched.setattr(announcements, "next", lambda *_: low)
            tx.add("/late")
        assert tx.revision is not None
        found = {"late": tx.revision, "high": str(high), "branch": branch.revision}
        assert found["late"] < found["high"]
        time.sleep(0.01)
        found["time"] = datetime.datetime.now(datetime.timezone.utc).isoformat()
        shown = late.at(time=datetime.datetime.fromisoformat(found["time"]))
        assert shown.revision == found["high"]
        assert "/late" in shown
        assert "/late" not in late.at(found["high"])
        return found


def test_a_diff_from_a_time_to_a_branch_shows_all_that_differs(run: Run, concurrent: dict[str, str]) -> None:
    time, branch, high = concurrent["time"], concurrent["branch"], concurrent["high"]
    assert run("diff", high, branch).out == '+"/mine":{}\n'
    assert run("diff", branch, high).out == '-"/mine"\n'
    assert run("diff", time, branch).out.split() == ['-"/late"', '+"/mine":{}']
    assert run("diff", branch, time).out.split() == ['-"/mine"', '+"/late":{}']
    assert run("diff", branch).out.split() == ['-"/mine"', '+"/late":{}']
    assert run("diff", time).out == ""


@pytest.mark.parametrize("when", ["999999999999w", "9999w9999w9999w9999w9999w9999w9999w9999w9999w9999w9999w9999w"])
def test_a_duration_before_all_times_is_named(run: Run, tree: None, when: str) -> None:
    ran = run("ls", "--at", when)
    assert ran.code == 2
    assert f"'{when}' is too long ago; expected a duration" in ran.err

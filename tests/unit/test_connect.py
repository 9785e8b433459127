"""URLs mean what they say or are refused; stores in memory live as long as somebody has them open."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from hbasemk import InvalidValueError, Settings, StoreUnusableError, connect
from hbasemk.errors import ClosedError
from tests.support.repositories import Checked, problems


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("sqlite:///{}/my#file.db", "%23"),
        ("sqlite:///{}/file.db#", "%23"),
        ("sqlite:///{}/file.db?busy_timeout=1#2", "%23"),
        ("sqlite:///{}/my\nfile.db", "%0A"),
        ("sqlite:///{}/my\tfile.db", "%09"),
        ("sqlite:///{}/my\rfile.db", "%0D"),
        ("sqlite:///{}/a%FFb.db", "UTF-8"),
        ("sqlite:///{}/a%00b.db", "zero byte"),
        ("hbase://[::1/", "no URL"),
        ("http://[::1", "no URL"),
        ("hbase://[nonsense]/", "no URL"),
        ("hbase://host:99999/", "port"),
    ],
)
def test_a_url_of_which_something_would_get_lost_is_refused(url: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidValueError, match=said):
        connect(url.format(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_file_may_have_any_name(tmp_path: Path, checked: Checked) -> None:
    with connect(checked(f"sqlite:///{tmp_path}/my%23file%3F%0A%25.db"), poll_interval=0) as repo:
        repo.run(lambda tx: tx.add("/a"))
    assert [path.name for path in tmp_path.iterdir()] == ["my#file?\n%.db"]


def test_the_command_line_tells_a_wrong_url_without_a_traceback() -> None:
    command = [sys.executable, "-m", "hbasemk", "--url", "hbase://[::1/", "ls"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


class TestMemory:
    def test_a_name_is_shared_while_anyone_has_it_open(self) -> None:
        one = connect("memory://shared/name", poll_interval=0)
        two = connect("memory://shared/name", poll_interval=0)
        one.run(lambda tx: tx.add("/a"))
        one.close()
        one.close()
        with pytest.raises(ClosedError):
            one.store.scan("nodes", None)  # type: ignore[arg-type]
        with connect("memory://shared/name", poll_interval=0, create=False) as three:
            assert "/a" in three.head
        two.refresh()
        two.run(lambda tx: tx.add("/b"))
        assert problems(two) == []
        assert two.store.location == "memory://shared/name"
        two.close()

    def test_what_the_last_one_closes_is_gone_at_once(self) -> None:
        gc.disable()
        try:
            kept = connect("memory://last", poll_interval=0)
            kept.run(lambda tx: tx.add("/a"))
            assert problems(kept) == []
            kept.close()
            with pytest.raises(StoreUnusableError):
                connect("memory://last", create=False, poll_interval=0)
            with connect("memory://last", poll_interval=0) as fresh:
                assert list(fresh.head) == ["/"]
        finally:
            gc.enable()

    def test_what_is_not_closed_stays_whatever_is_freed(self) -> None:
        connect("memory://forgotten", poll_interval=0).run(lambda tx: tx.add("/a"))
        gc.collect()
        with connect("memory://forgotten", create=False, poll_interval=0) as repo:
            assert "/a" in repo.head
            assert problems(repo) == []

    def test_an_opening_that_fails_does_not_count(self) -> None:
        for settings, poll_interval in ((Settings(lease_ms=-1), 0), (None, -1)):
            with pytest.raises(InvalidValueError):
                connect("memory://failed", settings=settings, poll_interval=poll_interval)
        connect("memory://failed", poll_interval=0).close()
        with pytest.raises(StoreUnusableError):
            connect("memory://failed", create=False, poll_interval=0)

    def test_names_are_apart(self) -> None:
        with connect("memory://a", poll_interval=0) as one, connect("memory://b", poll_interval=0) as two:
            one.run(lambda tx: tx.add("/a"))
            assert "/a" not in two.refresh()
            assert problems(one) == problems(two) == []

    def test_threads_may_open_and_close_at_once(self) -> None:
        failed: list[BaseException] = []

        def work(number: int) -> None:
            try:
                for at in range(20):
                    with connect("memory://threads", poll_interval=0) as repo:
                        repo.run(lambda tx, at=at: tx.add(f"/{number}-{at}"))  # type: ignore[misc]
            except BaseException as error:
                failed.append(error)

        with connect("memory://threads", poll_interval=0) as repo:
            threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(120)
            assert failed == []
            assert len(repo.refresh().children("/")) == 80
            assert problems(repo) == []

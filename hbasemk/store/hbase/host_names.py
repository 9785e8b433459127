"""The addresses of host names, within a time limit: the system's resolver has none, and may wait for a silent server."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from typing import Any, Final

from hbasemk.interrupts import Deferred, start_thread
from hbasemk.store.hbase.address import Address
from hbasemk.wakeup import Flag


class UnresolvedInTime(TimeoutError):
    """The system's resolver has not answered by the deadline."""


class _Lookup:
    """One lookup, which a thread makes and any number of threads wait for."""

    def __init__(self, address: Address) -> None:
        self.is_over = Flag()
        self._address = address
        self._found: list[Any] = []
        self._error: Exception | None = None

    def run(self, key: tuple[int, str]) -> None:
        """Make the lookup."""
        try:
            self._found = socket.getaddrinfo(*self._address, type=socket.SOCK_STREAM)
        except Exception as error:
            self._error = error
        finally:
            _running.pop(key, None)
            self.is_over.raise_()

    def hosts(self) -> list[str]:
        """Return the addresses, or raise the error of the resolver."""
        if self._error is not None:
            raise self._error.with_traceback(None)
        return _hosts(self._found)


_running: Final[dict[tuple[int, str], _Lookup]] = {}
"""By process and host. A forked child does not have the threads of its parent."""


def hosts_of(address: Address, deadline: float, clock: Callable[[], float]) -> list[str]:
    """Return the numeric addresses of a host; a thread looks up a name, one for each name at a time.

    Raises socket.gaierror for a name that cannot be resolved, and UnresolvedInTime.
    """
    try:
        return _hosts(socket.getaddrinfo(*address, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST))
    except socket.gaierror:
        lookup = _lookup_of(address)
    if not lookup.is_over.wait(deadline - clock()):
        raise UnresolvedInTime(f"the name {address.host} was not resolved in time")
    return lookup.hosts()


def _lookup_of(address: Address) -> _Lookup:
    """Return the running lookup of a name, or start one."""
    key = os.getpid(), address.host
    made = _Lookup(address)
    with Deferred():
        lookup = _running.setdefault(key, made)
        if lookup is not made:
            return lookup
        try:
            start_thread(threading.Thread(target=made.run, args=(key,), name="hbasemk-resolver", daemon=True))
        except RuntimeError:
            # The interpreter ends, or there are too many threads.
            _running.pop(key, None)
        else:
            return made
    made.run(key)
    return made


def _hosts(found: list[Any]) -> list[str]:
    return [str(place[0]) for *_, place in found]

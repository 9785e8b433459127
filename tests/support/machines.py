"""Processes of several machines on the real clock."""

from __future__ import annotations

from hbasemk.system import SystemRuntime


class Machine(SystemRuntime):
    """A process with a given machine id, on the real clock."""

    def __init__(self, mac: int) -> None:
        super().__init__()
        self._mac = mac

    def identity(self) -> tuple[int, str]:
        return self._mac, f"machine {self._mac}"

"""The address of a gateway."""

from __future__ import annotations

from typing import Final, NamedTuple

DEFAULT_PORT: Final = 9090


class Address(NamedTuple):
    """A host name or IP address, without brackets, and a port."""

    host: str
    port: int = DEFAULT_PORT

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

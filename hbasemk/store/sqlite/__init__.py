"""The embedded store: one SQLite file, many processes of one machine."""

from hbasemk.store.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]

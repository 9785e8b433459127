"""The embedded store: one SQLite file that many processes of one machine share."""

from hbasemk.store.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]

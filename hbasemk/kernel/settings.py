"""A repository's settings: written once when it is created, then read by every instance.

If two processes create the same repository at once, compare-and-set leaves one settings row. A process that finds an
unfinished creation completes it; every step is idempotent.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from typing import Any, Final

from hbasemk.errors import FormatError, InvalidValueError, StoreUnusableError
from hbasemk.format import limits, paths, revisions, schema
from hbasemk.format.horizon import Horizon
from hbasemk.format.trim_level import TrimLevel
from hbasemk.format.watermark import Watermark, above_all
from hbasemk.format.writer_log import Claims
from hbasemk.kernel import schema_version
from hbasemk.kernel.schema_version import Accepted
from hbasemk.store.abc import Cell, Column, Get, NewCell, Put, Row, Scan, Store

FORMAT: Final = 4
"""The format of this version in stores that do not order all writes. Before it, rows of ``nodes`` had no shared marks
(``schema.shared_mark``). Before format 3 they had no marks, and every revision had a journal row before its first cell."""
FORMAT_WITH_ORDER: Final = 2
"""The format of this version in stores that order all writes. Format 1 has no arrival numbers (``schema.ARRIVAL``)."""
SHORTEST_SKEW_MS: Final = 100
"""A skew shorter than a slow round trip would reject every commit: ids could not be close enough to the store's clock."""
SHORTEST_LEASE_MS: Final = 1_000
"""Instances check their lease a few times a second; a shorter one would expire in between."""
LONGEST_MS: Final = revisions.MAX_MS
LEAST_IDS_MS: Final = 365 * 24 * 3600 * 1000
"""A new repository must have revision ids for at least this long."""
CURRENT: Final = Get(schema.SETTINGS_ROW, columns=(schema.SETTINGS,))
"""The read of the settings cell alone."""
FARTHEST_MS: Final = 10**18
DEFAULT_RETENTION_MS: Final = 7 * 24 * 3600 * 1000
FOREVER: Final = b"forever"
"""The retention of a repository in which nothing is collected."""
_YEARS: Final = revisions.MAX_MS / (365.25 * 24 * 3600 * 1000)
_DAY_MS: Final = 24 * 3600 * 1000
_BEGIN: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)


def format_of(store: Store) -> int:
    """Return the format that this version reads and writes in a store."""
    return FORMAT_WITH_ORDER if store.supports_transactions else FORMAT


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings that all instances of one repository share. Times are in ms.

    ``epoch_ms``: the time, since 1970, at which revision ids begin. ``lease_ms``: how long a writer keeps its machine id
    without a renewal. ``max_clock_skew_ms``: how far clocks may differ. ``root_revision``, the first revision, and
    ``format``, the version of the tables, are set at the creation. Unlike other revision ids of the API, ``root_revision`` is an
    int; ``f"{root_revision:016x}"`` is its text form.
    """

    epoch_ms: int = revisions.DEFAULT_EPOCH_MS
    max_clock_skew_ms: int = 5_000
    lease_ms: int = 10_000
    root_revision: int = 0
    format: int = FORMAT

    def check(self) -> None:
        """Raise InvalidValueError for settings no repository can have; ``create`` also checks the epoch."""
        for name, value, least in (
            ("max_clock_skew_ms", self.max_clock_skew_ms, SHORTEST_SKEW_MS),
            ("lease_ms", self.lease_ms, SHORTEST_LEASE_MS),
        ):
            if type(value) is not int or not least <= value <= LONGEST_MS:
                raise InvalidValueError(
                    f"{name} must be an int, in ms, from {least} to {LONGEST_MS}; got {limits.shown(value)}. It cannot be "
                    "changed later. Nothing was written."
                )
        if type(self.epoch_ms) is not int or abs(self.epoch_ms) > FARTHEST_MS:
            raise InvalidValueError(
                f"epoch_ms must be an int, in ms since 1970, of at most 18 digits; got {limits.shown(self.epoch_ms)}"
            )

    @property
    def ids_end_ms(self) -> int:
        """The last ms since 1970 at which a repository with this epoch can issue revision ids."""
        return revisions.last_moment_ms(self.epoch_ms)

    def encode(self) -> bytes:
        """Return the bytes of the settings cell."""
        return json.dumps(
            {
                "format": self.format,
                "epochMs": self.epoch_ms,
                "maxClockSkewMs": self.max_clock_skew_ms,
                "leaseMs": self.lease_ms,
                "rootRevision": revisions.to_text(self.root_revision),
            }
        ).encode()

    @classmethod
    def decode(cls, data: bytes, store: Store) -> Settings:
        """Parse ``data``, the settings cell in ``store``; raise FormatError for a newer format or damaged data."""
        try:
            fields = json.loads(data)
            found = _integer(fields, "format")
            if found > format_of(store):
                raise _other_format(found, store)
            settings = cls(
                epoch_ms=_integer(fields, "epochMs"),
                max_clock_skew_ms=_integer(fields, "maxClockSkewMs"),
                lease_ms=_integer(fields, "leaseMs"),
                root_revision=revisions.from_text(fields["rootRevision"]),
                format=found,
            )
            times = (settings.max_clock_skew_ms, settings.lease_ms)
            if found < 1 or abs(settings.epoch_ms) > FARTHEST_MS or not all(0 <= one <= LONGEST_MS for one in times):
                raise ValueError("out of range")
            return settings
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise schema.damaged(
                f"the settings of the repository at {store.location} are damaged: {data[:200]!r}",
                schema.CLUSTER,
                schema.SETTINGS_ROW,
                schema.SETTINGS,
            ) from error


def _integer(fields: Mapping[str, Any], name: str) -> int:
    """Return an integer of the settings; raise TypeError for a number in another form, or a text, which no version writes."""
    if type(fields[name]) is not int:
        raise TypeError(f"{name} must be an integer")
    found: int = fields[name]
    return found


def _other_format(found: int, store: Store) -> FormatError:
    """Return the error for a repository of another format."""
    has, own = f"the repository at {store.location} has format {found}", format_of(store)
    if found > own:
        return FormatError(
            f"{has}, and this version of hbasemk knows formats up to {own}; use a newer version", format=found
        )
    return FormatError(
        f"{has}, and this version of hbasemk uses format {own}; end all processes that use the repository, then run "
        "`hbasemk upgrade` once",
        format=found,
    )


def format_change(row: Row, store: Store) -> FormatError | None:
    """Return the error if a settings row read again shows another format, else None. The integrity check reports damage."""
    for cell in row.cells:
        if cell.qualifier != schema.SETTINGS[1]:
            continue
        try:
            found = _integer(json.loads(cell.value), "format")
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            continue
        if found != format_of(store):
            return _other_format(found, store)
    return None


def read(store: Store, *, any_format: bool = False) -> tuple[Settings | None, Watermark | None]:
    """Return the settings and the watermark; None for each one that does not exist yet. One round trip.

    Raises FormatError for a format that this version does not use, unless ``any_format`` accepts older ones.
    """
    found = _read_row(store)
    settings: Settings | None = None
    if schema.SETTINGS in found:
        settings = Settings.decode(found[schema.SETTINGS].value, store)
        if settings.format < format_of(store) and not any_format:
            raise _other_format(settings.format, store)
    return settings, watermark_of(found, store)


def read_watermark(store: Store) -> Watermark:
    """Return the watermark, which every open repository has. One round trip."""
    watermark = watermark_of(_read_row(store), store)
    if watermark is None:
        raise schema.damaged("there is no watermark", schema.CLUSTER, schema.SETTINGS_ROW, schema.WATERMARK)
    return watermark


def require_revisions(watermark: int, store: Store) -> None:
    """Raise FormatError if a watermark is above all revisions, in a store that orders all writes.

    One round trip; none in other stores, where the counter of claims shows a wrong watermark. Collectors delete no row from the
    horizon up, so there always is a row at the watermark, or above.
    """
    if store.supports_transactions:
        flags = (schema.COMMITTED, schema.ABORT)
        scan = Scan(schema.revision_key(watermark), None, 1, columns=flags)
        if not store.scan(schema.JOURNAL, scan):
            raise above_all(watermark)


def _read_row(store: Store) -> Mapping[Column, Cell]:
    columns = (
        schema.SETTINGS,
        schema.WATERMARK,
        schema.ARRIVAL,
        schema.CHECKPOINTS,
        schema.HORIZON,
        schema.TRIMMED,
        schema.CLAIMS,
    )
    row = store.read(schema.CLUSTER, [Get(schema.SETTINGS_ROW, columns=columns)])[0]
    return {cell[:2]: cell for cell in row.cells}


def watermark_of(found: Mapping[Column, Cell], store: Store) -> Watermark | None:
    """Return the watermark in cells of the settings row that were read at one moment; None if there is none."""
    if schema.WATERMARK not in found:
        return None
    values = {column: cell.value for column, cell in found.items()}
    # In other stores than those that order all writes, the horizon is a copy for claims, which may be higher.
    horizon = Horizon.decode(values.get(schema.HORIZON)).revision if store.supports_transactions else 0
    watermark = replace(
        Watermark.decode(values[schema.WATERMARK]),
        arrival=Watermark.arrival_of(values.get(schema.ARRIVAL)),
        has_checkpoints=schema.CHECKPOINTS in values,
        horizon=horizon,
        trimmed=TrimLevel.decode(values.get(schema.TRIMMED)),
        claims=Claims.decode(found.get(schema.CLAIMS)),
        stamp=found[schema.WATERMARK].timestamp,
    )
    watermark.check_order()
    if schema.CLAIMS in found and watermark.revision > watermark.claims.watermark:
        # The id after a wrong watermark could be years ahead.
        raise schema.damaged(
            f"the watermark is {revisions.to_text(watermark.revision)}, and the watermark in the counter of claims is "
            f"{revisions.to_text(watermark.claims.watermark)}, which is never below it: one of the two is wrong",
            schema.CLUSTER,
            schema.SETTINGS_ROW,
            schema.WATERMARK,
        )
    return watermark


def require(store: Store) -> tuple[Settings, Watermark]:
    """Return the settings and the watermark of an existing repository.

    Raises StoreUnusableError if there is none, or if its tables have the wrong structure, and FormatError as :func:`read`.
    """
    store.verify(schema.TABLES)
    settings, watermark = read(store)
    if settings is None or watermark is None:
        _check_unused(store, settings)
        raise StoreUnusableError(
            f"there is no repository at {store.location}; check the URL, or create one first (hbasemk init)"
        )
    return settings, watermark


def create(store: Store, wanted: Settings, accepted: Accepted | None = None) -> tuple[Settings, Watermark, bool]:
    """Create the repository unless it exists, or complete an interrupted creation.

    Returns its settings and watermark, and whether this call has created or completed it.
    If the repository already exists, its settings may differ from ``wanted``. The function chooses ``root_revision``
    itself. Raises InvalidValueError for settings that no repository can have, because they cannot be changed later: see
    :meth:`Settings.check`. By the store's clock, the epoch must also lie in the past and leave at least a year of
    revision ids: see :func:`possible_epochs_ms`. ``accepted`` are the schema numbers of the process;
    :func:`schema_version.first_cells` says with which one a new repository begins. Raises SchemaVersionError, before anything is
    written, if it is none of them.
    """
    wanted.check()
    # An existing repository of another format must be refused before anything is written.
    settings, watermark = _read_if_any(store)
    number = schema_version.first_cells(accepted, store.location) if settings is None else []
    now_ms = store.clock_ms()
    if settings is None and now_ms is not None:
        # Where the time is known without tables, an impossible epoch creates none.
        _root(wanted.epoch_ms, now_ms, store.location)
    store.create_tables(schema.TABLES)
    created = watermark is None
    if settings is None or watermark is None:
        _check_unused(store, settings)
    if settings is None:
        new = Settings(
            epoch_ms=wanted.epoch_ms,
            max_clock_skew_ms=wanted.max_clock_skew_ms,
            lease_ms=wanted.lease_ms,
            root_revision=_root(wanted.epoch_ms, _store_ms(store), store.location),
            format=format_of(store),
        )
        retention = NewCell(*schema.RETENTION, str(DEFAULT_RETENTION_MS).encode())
        cells = [NewCell(*schema.SETTINGS, new.encode()), retention, *number]
        store.check_and_write(schema.CLUSTER, schema.SETTINGS, None, Put(schema.SETTINGS_ROW, cells))
        settings, watermark = read(store)
        created = settings == new
    if settings is None:
        raise StoreUnusableError(f"the settings written to {store.location} cannot be read back")
    if watermark is None:
        watermark = _complete(store, settings)
    return settings, watermark, created


def _check_unused(store: Store, settings: Settings | None) -> None:
    """Raise FormatError if there are revisions, but no settings or no watermark: a new repository would hide them.

    ``settings`` were read before (None: there were none). One or two round trips.
    """
    # A creation writes the settings, then the first revision, then the watermark. Others may have done this meanwhile.
    if len(store.scan(schema.JOURNAL, Scan(None, None, 2))) > (settings is not None):
        found = read(store)[0 if settings is None else 1]
        if found is None:
            what, column = ("settings", schema.SETTINGS) if settings is None else ("watermark", schema.WATERMARK)
            raise FormatError(
                f"{store.location} has revisions, but no {what}: this part of the settings row is damaged or deleted; restore "
                "the tables from a copy",
                table=schema.CLUSTER,
                row=schema.SETTINGS_ROW,
                column=column,
            )


def _read_if_any(store: Store) -> tuple[Settings | None, Watermark | None]:
    """Return what :func:`read` finds; nothing if there are no tables yet."""
    try:
        return read(store)
    except FormatError:
        raise
    except StoreUnusableError:
        # If the store cannot be used for another reason, the creation of the tables fails for it too.
        return None, None


def _root(epoch_ms: int, now_ms: int, location: str) -> int:
    """Return the id of the first revision."""
    earliest, latest = possible_epochs_ms(now_ms)
    if epoch_ms > latest:
        problem = f"lies in the future: by the clock of {location} it is {_day(now_ms)} now"
    elif epoch_ms < earliest:
        problem = (
            f"leaves revision ids until {_day(revisions.last_moment_ms(epoch_ms))} only: by the clock of {location} it is "
            f"{_day(now_ms)} now, and a new repository needs ids for at least a year"
        )
    else:
        return revisions.pack(now_ms - epoch_ms, 0, 0)
    raise InvalidValueError(
        f"epoch_ms {epoch_ms} ({_day(epoch_ms)}) {problem}. Ids last {_YEARS:.1f} years from the epoch; choose an epoch from "
        f"{_day(earliest + _DAY_MS - 1)} to {_day(latest)} (epoch_ms {earliest} to {latest}). The repository was not created."
    )


def possible_epochs_ms(now_ms: int) -> tuple[int, int]:
    """Return the earliest and the latest epoch, in ms since 1970, of a repository created at ``now_ms``."""
    return now_ms + LEAST_IDS_MS - revisions.MAX_MS, now_ms


def _day(ms: int) -> str:
    """Return the UTC date of a time in ms since 1970, or the number itself if it is outside the calendar."""
    try:
        return (_BEGIN + timedelta(milliseconds=ms)).date().isoformat()
    except OverflowError:
        return f"{ms} ms since 1970"


def _store_ms(store: Store) -> int:
    """Return the store's time in ms since 1970, for the first id: all later ids are greater, so it must be reliable."""
    put = Put(schema.SETTINGS_ROW, [NewCell(*schema.CLOCK, schema.YES)])
    store.write(schema.CLUSTER, [put], durable=False)
    get = Get(schema.SETTINGS_ROW, columns=(schema.CLOCK,))
    row = store.read(schema.CLUSTER, [get])[0]
    if not row.cells:
        raise StoreUnusableError(f"the clock cell written to {store.location} cannot be read back")
    return row.cells[0].timestamp


def _complete(store: Store, settings: Settings) -> Watermark:
    root = settings.root_revision
    node = Put(
        paths.key(paths.ROOT),
        [
            NewCell(*schema.DELETED, schema.ALIVE, root),
            NewCell(*schema.LAST_REVISION, schema.TOUCHED, root),
        ],
    )
    store.write(schema.NODES, [node])
    journal = Put(
        schema.revision_key(root),
        [
            NewCell(*schema.COMMITTED, schema.YES),
            NewCell(*schema.ABORT, schema.NO),
            NewCell(*schema.MESSAGE, b"created"),
        ],
    )
    store.check_and_write(schema.JOURNAL, schema.COMMITTED, None, journal)
    first = Watermark(root, frozenset())
    put = Put(schema.SETTINGS_ROW, [NewCell(*schema.WATERMARK, first.encode())])
    store.check_and_write(schema.CLUSTER, schema.WATERMARK, None, put)
    _, watermark = read(store)
    if watermark is None:
        raise StoreUnusableError(f"the watermark written to {store.location} cannot be read back")
    return watermark

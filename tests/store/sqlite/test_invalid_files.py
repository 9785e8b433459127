"""Tests of the SQLite store on files that are missing, of other programs, newer, or damaged."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import sqlite3
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from hbasemk.errors import FormatError, InvalidValueError, StoreUnusableError
from hbasemk.store.abc import Decision, Get, NewCell, Page, Put, Scan
from hbasemk.store.sqlite import SqliteStore, database_file
from tests.support.sqlite import FLAG, TABLES, flag, run


def every_first_call(path: Path):
    """Return each call that may be the first one on a file."""
    for call in (
        lambda store: store.create_tables(TABLES),
        lambda store: store.verify(TABLES),
        lambda store: store.read("one", [Get(b"r")]),
        lambda store: store.write("one", [flag(b"r")]),
    ):
        store = SqliteStore(str(path))
        yield lambda call=call, store=store: call(store)
        store.close()


class TestFiles:
    def test_creating_a_store_object_touches_nothing(self, path: Path) -> None:
        SqliteStore(str(path)).close()
        assert not path.exists()

    def test_a_relative_path_in_a_deleted_folder_is_an_error(self, tmp_path: Path) -> None:
        folder = tmp_path / "gone"
        folder.mkdir()
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            folder.rmdir()
            with pytest.raises(
                StoreUnusableError, match=r"'content.db' is relative, and the folder .* has been deleted"
            ):
                SqliteStore("content.db")
            SqliteStore(str(tmp_path / "content.db")).close()

    def test_only_create_tables_creates_the_file(self, path: Path) -> None:
        store = SqliteStore(str(path))
        for call in (lambda: store.verify(TABLES), lambda: store.write("one", [flag(b"r")])):
            with pytest.raises(StoreUnusableError, match=r"the file .*content\.db does not exist"):
                call()
        assert not path.exists()
        store.create_tables(TABLES)
        store.write("one", [flag(b"r")])
        store.close()
        assert path.exists()

    @pytest.mark.parametrize("kind", ["a device", "a folder", "a pipe", "a socket"])
    def test_only_a_file_is_accepted(self, path: Path, kind: str) -> None:
        with socket.socket(socket.AF_UNIX) as bound:
            if kind == "a device":
                path.symlink_to(os.devnull)
            elif kind == "a folder":
                path.mkdir()
            elif kind == "a pipe":
                os.mkfifo(path)
            else:
                bound.bind(os.path.relpath(path))
            for call in every_first_call(path):
                with pytest.raises(StoreUnusableError, match=rf"content\.db is {kind}; use the path of a file"):
                    call()

    def test_an_empty_file_is_accepted(self, path: Path) -> None:
        path.touch()
        store = SqliteStore(str(path))
        with pytest.raises(StoreUnusableError, match=r"content\.db is empty"):
            store.verify(TABLES)
        store.create_tables(TABLES)
        store.write("one", [flag(b"r")])
        store.close()

    @pytest.mark.parametrize("encoding", ["UTF-16le", "UTF-16be"])
    def test_an_empty_database_in_utf_16_is_rejected_by_name_and_unchanged(self, path: Path, encoding: str) -> None:
        with contextlib.closing(sqlite3.connect(path)) as db:
            db.executescript(f"PRAGMA encoding='{encoding}'; CREATE TABLE x (a); DROP TABLE x; VACUUM")
        content = path.read_bytes()
        store = SqliteStore(str(path))
        with pytest.raises(StoreUnusableError, match=rf"with the encoding {encoding}, and a repository needs UTF-8"):
            store.create_tables(TABLES)
        with pytest.raises(StoreUnusableError, match=r"content\.db is empty"):
            store.verify(TABLES)
        store.close()
        assert path.read_bytes() == content
        assert not path.with_name("content.db-wal").exists()

    def test_a_journal_without_a_roll_back_does_not_prevent_opening(self, store: SqliteStore, path: Path) -> None:
        store.close()
        path.with_name("content.db-journal").write_bytes(b"")
        again = SqliteStore(str(path))
        again.write("one", [flag(b"r")])
        again.close()

    def test_a_path_may_contain_characters_that_are_special_in_a_url(self, tmp_path: Path) -> None:
        path = tmp_path / "a b%20?mode=ro#x&y ü.db"
        store = SqliteStore(str(path))
        store.create_tables(TABLES)
        store.write("one", [flag(b"r")])
        assert store.location == str(path)
        store.close()
        assert path.exists()

    @pytest.mark.parametrize("path", ["/tmp/\udcff.db", "/tmp/\udcff/content.db"])
    def test_a_path_that_is_not_utf_8_is_rejected_by_name(self, path: str) -> None:
        with pytest.raises(InvalidValueError, match=r"'/tmp/.udcff.*is not UTF-8.*rename"):
            SqliteStore(path)

    @pytest.mark.parametrize("size", [1, 10, 99, 100, 600, 5000, 100_000])
    def test_a_file_that_is_not_sqlite_is_rejected_by_name_and_unchanged(self, path: Path, size: int) -> None:
        content = (b"This is somebody's important text. " * 3000)[:size]
        path.write_bytes(content)
        for call in every_first_call(path):
            with pytest.raises(FormatError, match=r"content\.db"):
                call()
        assert path.read_bytes() == content

    @pytest.mark.parametrize(
        "script",
        [
            "CREATE TABLE theirs (x)",
            "PRAGMA application_id=77; CREATE TABLE t (x); DROP TABLE t",
            "PRAGMA user_version=3",
        ],
    )
    def test_a_database_of_another_program_is_rejected_by_name_and_unchanged(self, path: Path, script: str) -> None:
        theirs = sqlite3.connect(path)
        theirs.executescript(script)
        theirs.close()
        content = path.read_bytes()
        for call in every_first_call(path):
            with pytest.raises(FormatError, match=r"content\.db is a SQLite database of another program"):
                call()
        assert path.read_bytes() == content
        assert [entry.name for entry in path.parent.iterdir()] == ["content.db"]

    @pytest.mark.parametrize("before", range(12))
    def test_a_file_that_another_process_creates_meanwhile_is_accepted(
        self, path: Path, monkeypatch: pytest.MonkeyPatch, before: int
    ) -> None:
        statements: list[str] = []
        created: list[int] = []
        connect = sqlite3.connect

        class Interleaved(sqlite3.Connection):
            """A connection between whose statements another one creates the file, as soon as no lock prevents it."""

            def execute(self, statement: str, *parameters: Any) -> sqlite3.Cursor:
                if not created and len(statements) >= before:
                    with (
                        contextlib.closing(connect(path, timeout=0, isolation_level=None)) as other,
                        contextlib.suppress(sqlite3.OperationalError),
                    ):
                        other.execute("BEGIN IMMEDIATE")
                        other.execute(f"PRAGMA application_id={database_file.APPLICATION_ID}")
                        other.execute(f"PRAGMA user_version={database_file.FORMAT}")
                        other.execute(database_file.CATALOG)
                        other.execute("COMMIT")
                        created.append(len(statements))
                statements.append(statement)
                return super().execute(statement, *parameters)

        monkeypatch.setattr(sqlite3, "connect", partial(connect, factory=Interleaved))
        store = SqliteStore(str(path))
        store.create_tables(TABLES)
        store.write("one", [flag(b"r")])
        store.close()

    def test_a_newer_format_is_rejected_by_name_and_number(self, store: SqliteStore, path: Path) -> None:
        store.close()
        newer = sqlite3.connect(path)
        newer.execute(f"PRAGMA user_version={database_file.FORMAT + 1}")
        newer.close()
        for call in every_first_call(path):
            with pytest.raises(FormatError, match=rf"content\.db has file format {database_file.FORMAT + 1}"):
                call()

    def test_a_damaged_file_is_rejected_by_name(self, store: SqliteStore, path: Path) -> None:
        store.write("many", [Put(b"%d" % n, [NewCell(b"d", b"q", b"x" * 500, 1)]) for n in range(500)])
        store.close()
        content = bytearray(path.read_bytes())
        content[4096:] = os.urandom(len(content) - 4096)
        path.write_bytes(content)
        damaged = SqliteStore(str(path))
        with pytest.raises(FormatError, match=r"content\.db .*damaged"):
            damaged.scan("many", Scan(None, None, 1000))
        damaged.close()

    def test_a_file_with_a_damaged_header_is_rejected_by_name(self, store: SqliteStore, path: Path) -> None:
        store.close()
        content = bytearray(path.read_bytes())
        content[:16] = bytes(16)
        path.write_bytes(content)
        for call in every_first_call(path):
            with pytest.raises(FormatError, match=r"content\.db .*damaged"):
                call()

    def test_the_error_for_a_file_of_another_kind_first_says_to_check_the_url(self, path: Path) -> None:
        path.write_text("root:x:0:0:root:/root:/bin/sh\n" * 100)
        for call in every_first_call(path):
            advice = r"\(file is not a database\)\. Check the URL; if it names the right file, end all processes that use it, "
            with pytest.raises(FormatError, match=rf"content\.db is not a SQLite database or is damaged {advice}"):
                call()

    @pytest.mark.parametrize("versions", [(1, 2), (3, 2), (0, 2), (130, 2)])
    def test_damaged_versions_of_the_format_in_the_header_are_reported_at_once(
        self, store: SqliteStore, path: Path, versions: tuple[int, int]
    ) -> None:
        store.close()
        content = bytearray(path.read_bytes())
        content[18:20] = versions
        path.write_bytes(content)
        damaged = SqliteStore(str(path))
        with pytest.raises(
            FormatError, match=f"the bytes 18 and 19 of its header are {versions[0]} and {versions[1]}, "
        ):
            damaged.read("one", [Get(b"r")])
        damaged.close()
        assert path.read_bytes() == content

    def test_a_damaged_name_in_the_schema_is_reported_as_damage(self, store: SqliteStore, path: Path) -> None:
        store.close()
        content = bytearray(path.read_bytes())
        content[content.index(b"one_2_0")] ^= 0x80
        path.write_bytes(content)
        for call in every_first_call(path):
            with pytest.raises(
                FormatError, match=r"content\.db .*damaged \(malformed .*\\xefne_2_0.*restore it from a copy"
            ):
                call()

    @pytest.mark.parametrize(
        ("statement", "problem"),
        [
            ("UPDATE hbasemk_tables SET families = 'zz'", "cannot be read"),
            ("UPDATE hbasemk_tables SET families = x'ff'", "cannot be read"),
            ("UPDATE hbasemk_tables SET families = 64.5", "cannot be read"),
            ("UPDATE hbasemk_tables SET versions = 'many'", "cannot be read .*a number is a text"),
            ("UPDATE hbasemk_tables SET versions = 0", "cannot be read .*versions=0"),
            ("UPDATE hbasemk_tables SET name = CAST(x'6f6eff' AS TEXT) WHERE name = 'one'", "cannot be read"),
            ("UPDATE hbasemk_tables SET name = 'onf' WHERE name = 'one'", "does not name the table of 'one_2_0'"),
            ("UPDATE hbasemk_tables SET families = '64' WHERE name = 'many'", "does not name the table of 'many_1_1'"),
            ("UPDATE hbasemk_tables SET id = 7 WHERE name = 'one'", "does not name the table of 'one_2_0'"),
            ("DELETE FROM hbasemk_tables", "does not name the table of 'many_1_0'"),
            ("DROP TABLE hbasemk_tables", "is missing"),
        ],
    )
    def test_a_damaged_catalog_is_reported_as_damage_and_left_alone(
        self, store: SqliteStore, path: Path, statement: str, problem: str
    ) -> None:
        store.close()
        with contextlib.closing(sqlite3.connect(path)) as plain, plain:
            plain.execute(statement)
        content = path.read_bytes()
        for call in every_first_call(path):
            with pytest.raises(
                FormatError, match=rf"content\.db is damaged: .*hbasemk_tables, {problem}.*restore it from a copy"
            ):
                call()
        assert path.read_bytes() == content

    @pytest.mark.parametrize("action", ["create", "drop"])
    def test_a_process_that_dies_while_it_creates_or_drops_tables_leaves_no_part_of_them(
        self, path: Path, action: str
    ) -> None:
        script = f"""
from tests.support.sqlite import TABLES
store.create_tables(TABLES if "{action}" == "drop" else [])
begun = []
def stop(statement):
    if statement.startswith("{action.upper()} TABLE"):
        begun.append(statement)
        if len(begun) == 3:
            print("stopped", flush=True)
            os._exit(0)
store._connections._idle[0].sql.set_trace_callback(stop)
store.{action}_tables(TABLES)
"""
        assert run(script, path) == "stopped\n"
        store = SqliteStore(str(path))
        store.create_tables(TABLES)
        store.write("one", [flag(b"r")])
        store.close()

    def test_other_tables_in_the_file_are_no_damage(self, store: SqliteStore, path: Path) -> None:
        store.close()
        with contextlib.closing(sqlite3.connect(path)) as plain, plain:
            plain.execute("CREATE TABLE sales_2026_11 (row BLOB, amount INTEGER)")
            plain.execute("CREATE TABLE none_1 AS SELECT 1")
            plain.execute("ANALYZE")
        again = SqliteStore(str(path))
        again.create_tables(TABLES)
        again.write("one", [flag(b"r")])
        again.close()

    @pytest.mark.parametrize("column", [b"value", b"versions"])
    def test_a_damaged_name_of_a_column_is_reported_as_damage(
        self, store: SqliteStore, path: Path, column: bytes
    ) -> None:
        store.close()
        path.write_bytes(path.read_bytes().replace(b" " + column + b" ", b" " + column[:-1] + b"x "))
        damaged = SqliteStore(str(path))
        with pytest.raises(FormatError, match=r"content\.db .*damaged .no such column"):
            damaged.read("one", [Get(b"r", families=(b"d",))])
        damaged.close()

    def test_a_qualifier_of_a_wrong_type_in_its_old_place_is_reported_as_damage(
        self, store: SqliteStore, path: Path
    ) -> None:
        store.write("one", [Put(b"row", [NewCell(b"d", name, b"1", 1) for name in (b"a", b"eightlet", b"z")])])
        store.close()
        content = path.read_bytes()
        # The types of a key, 12 + 2 * length for a blob: the second one becomes that of an integer of 8 bytes.
        header = content.index(b"roweightlet") - 5
        assert content[header + 2] == 12 + 2 * 8
        path.write_bytes(content[: header + 2] + b"\x06" + content[header + 3 :])
        damaged = SqliteStore(str(path))
        for call in (
            lambda: damaged.scan("one", Scan(None, None, 10)),
            lambda: damaged.read("one", [Get(b"row", families=(b"d",))]),
        ):
            with pytest.raises(FormatError, match="a qualifier must be of SQL type blob, got integer"):
                call()
        damaged.close()

    def test_a_missing_part_of_a_table_is_reported_as_damage(self, store: SqliteStore, path: Path) -> None:
        store.close()
        plain = sqlite3.connect(path)
        for (name,) in plain.execute("SELECT name FROM sqlite_master WHERE name LIKE 'one%'").fetchall():
            plain.execute(f'DROP TABLE "{name}"')
        plain.close()
        damaged = SqliteStore(str(path))
        for call in (lambda: damaged.read("one", [Get(b"r")]), lambda: damaged.write("one", [flag(b"r")])):
            with pytest.raises(FormatError, match=r"content\.db is damaged.*'one'"):
                call()
        damaged.close()

    @pytest.mark.parametrize("table", ["one", "many"])
    def test_a_transaction_names_the_table_that_lacks_a_part(self, store: SqliteStore, path: Path, table: str) -> None:
        with contextlib.closing(sqlite3.connect(path)) as plain:
            (name,) = plain.execute("SELECT name FROM sqlite_master WHERE name LIKE 'one%'").fetchone()
            plain.execute(f'DROP TABLE "{name}"')
        decision = Decision("one", FLAG, None, flag(b"r"))
        with pytest.raises(FormatError, match="a part of table 'one' is missing"):
            store.write_if(table, [], [], lambda _: True, decision)

    @pytest.mark.parametrize("table", ["one_2_0", "many_1_0", "many_1_1"])
    @pytest.mark.parametrize(
        ("change", "problem"),
        [
            ("value = 5", "a value must be of SQL type blob, got integer"),
            ("value = 'abc'", "a value must be of SQL type blob, got text"),
            ("value = 5.5", "a value must be of SQL type blob, got real"),
            ("ts = 'x'", "a timestamp must be of SQL type integer, got text"),
            ("ts = 5.5", "a timestamp must be of SQL type integer, got real"),
            ("ts = x'00'", "a timestamp must be of SQL type integer, got blob"),
            ("row = 5", "a row key must be of SQL type blob, got integer"),
            ("row = 'r'", "a row key must be of SQL type blob, got text"),
            ("qualifier = 5", "a qualifier must be of SQL type blob, got integer"),
            ("qualifier = 'q'", "a qualifier must be of SQL type blob, got text"),
        ],
    )
    def test_a_cell_of_a_wrong_type_is_reported_as_damage(
        self, store: SqliteStore, path: Path, table: str, change: str, problem: str
    ) -> None:
        name = table.split("_")[0]
        family = b"c" if table == "many_1_0" else b"d"
        store.write(
            name,
            [Put(b"row%d" % n, [NewCell(family, b"q", b"1", 1), NewCell(family, b"r", b"1", 1)]) for n in range(70)],
        )
        store.close()
        with contextlib.closing(sqlite3.connect(path)) as plain, plain:
            plain.execute(f"UPDATE {table} SET {change} WHERE row = ? AND qualifier = ?", (b"row5", b"q"))
        everything = [Get(b"row%d" % n, families=(family,)) for n in range(70)]
        columns = [get._replace(families=None, columns=((family, b"q"), (family, b"r"))) for get in everything]
        damaged = SqliteStore(str(path))
        reads = {
            "verify": lambda: damaged.verify(TABLES),
            "scan": lambda: damaged.scan(name, Scan(None, None, 1000)),
            "scan backwards": lambda: damaged.scan(name, Scan(None, None, 1000, reverse=True)),
            "row": lambda: damaged.read(name, everything[5:6]),
            "versions": lambda: damaged.read(name, [everything[5]._replace(versions=2)]),
            "page": lambda: damaged.read(name, [Get(b"row5", page=Page(family, None, 10))]),
            "rows": lambda: damaged.read(name, everything),
            "column": lambda: damaged.read(name, [Get(b"row5", columns=((family, b"q"),))]),
            "columns": lambda: damaged.read(name, columns),
            "one column": lambda: damaged.read(name, [get._replace(columns=((family, b"q"),)) for get in columns]),
        }
        found = {"verify", "scan"} if "row key" in problem else {"scan", "row", "versions", "page", "rows"}
        if "a value" in problem:
            found |= {"scan backwards", "column", "columns", "one column"}
        for kind, call in reads.items():
            with contextlib.ExitStack() as stack:
                if kind in found:
                    where = f"table '{name}', row .*restore it from a copy"
                    stack.enter_context(
                        pytest.raises(FormatError, match=rf"content\.db is damaged: {problem} .{where}")
                    )
                else:
                    # No read by key, or by a column, finds a cell with another key.
                    stack.enter_context(contextlib.suppress(FormatError))
                call()
        damaged.close()

    def test_a_missing_folder_is_named(self, tmp_path: Path) -> None:
        store = SqliteStore(str(tmp_path / "nowhere" / "content.db"))
        with pytest.raises(StoreUnusableError, match=r"nowhere.content\.db"):
            store.create_tables(TABLES)
        store.close()

    @pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs /proc")
    def test_a_folder_that_can_have_no_file_is_not_called_full(self) -> None:
        store = SqliteStore("/proc/content.db")
        with pytest.raises(
            StoreUnusableError, match=r"/proc/content\.db cannot be opened .*check that its folder exists"
        ):
            store.create_tables(TABLES)
        store.close()

    def test_a_folder_in_the_files_place_is_named(self, tmp_path: Path) -> None:
        store = SqliteStore(str(tmp_path))
        with pytest.raises(StoreUnusableError, match=tmp_path.name):
            store.create_tables(TABLES)
        store.close()


def test_the_error_of_a_damaged_file_says_how_to_restore_it_although_a_killed_process_left_a_log(
    store: SqliteStore, path: Path
) -> None:
    beside = [path.with_name(f"content.db{suffix}") for suffix in ("-wal", "-shm")]
    store.close()
    backup = path.with_name("backup.db")
    shutil.copy(path, backup)
    run('store.write("one", [flag(b"in the log")]); os._exit(0)', path)
    assert all(file.exists() for file in beside)
    path.write_bytes(b"damaged " * 1000)
    damaged = SqliteStore(str(path))
    with pytest.raises(FormatError, match="move it and its -wal and -shm away, and then restore it from a copy"):
        damaged.read("one", [Get(b"r")])
    damaged.close()
    for file in (path, *beside):
        file.unlink(missing_ok=True)
    shutil.copy(backup, path)
    restored = SqliteStore(str(path))
    assert restored.scan("one", Scan(None, None, 10)) == []
    restored.close()

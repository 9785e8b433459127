"""The command that imports JSON."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from hbasemk import connect
from tests.support.full_disk import largest_file
from tests.support.json_exports import stored, tree, url_of
from tests.support.repositories import Checked


def hbasemk(*arguments: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, "-m", "hbasemk", *arguments], capture_output=True, check=False, **options)


def test_the_command_moves_a_repository_to_a_later_epoch(tmp_path: Path, checked: Checked) -> None:
    old, new = checked(url_of(tmp_path / "old.db")), checked(url_of(tmp_path / "new.db"))
    with connect(old, poll_interval=0) as repository:
        repository.run(tree)
        repository.run(lambda tx: [tx.unset("/types", "blob"), tx.unset("/types", "list")])
    assert hbasemk("--url", new, "init", "--epoch", "2026-01-01").returncode == 0
    whole = hbasemk("--url", old, "export", "-f", "json", "/").stdout

    ran = hbasemk("--url", new, "--output", "json", "import", "-f", "json", "-", input=whole)

    assert (ran.returncode, ran.stderr) == (0, b"")
    result = json.loads(ran.stdout)
    assert (result["imported_to"], result["differences"], result["missing_blobs"]) == ("/", 0, 0)
    assert result["nodes"] == result["nodes_added"] + 1 == len(stored(new))
    assert stored(new) == stored(old)
    assert hbasemk("--url", new, "export", "-f", "json", "/").stdout == whole


def test_the_command_lists_missing_blobs_and_accepts_them_later(tmp_path: Path, checked: Checked) -> None:
    old, new = checked(url_of(tmp_path / "old.db")), checked(url_of(tmp_path / "new.db"))
    with connect(old, poll_interval=0) as repository:
        ref = repository.blobs.write(io.BytesIO(b"content"))
        repository.run(lambda tx: tx.add("/a", {"x": ref}))
    (tmp_path / "tree.json").write_bytes(hbasemk("--url", old, "export", "-f", "json", "/").stdout)

    import_ = ("--url", new, "import", "--format", "json", str(tmp_path / "tree.json"))
    ran = hbasemk(*import_)
    assert (ran.returncode, ran.stderr) == (1, f"hbasemk: missing blob: {ref.id}\n".encode())

    content = hbasemk("--url", old, "blob", "get", ref.id).stdout
    assert hbasemk("--url", new, "blob", "put", input=content).stdout.decode().strip() == ref.id
    assert hbasemk(*import_).returncode == 0
    assert hbasemk("--url", new, "check", "--blobs").returncode == 0


def test_the_command_copies_missing_blobs_from_another_repository(tmp_path: Path, checked: Checked) -> None:
    old, new = checked(url_of(tmp_path / "old.db")), checked(url_of(tmp_path / "new.db"))
    with connect(old, poll_interval=0) as repository:
        refs = [repository.blobs.write(bytes([number])) for number in range(30)]
        repository.run(lambda tx: [tx.add(f"/{ref.id}", {"x": ref}) for ref in refs])
    file = str(tmp_path / "tree.json")
    assert hbasemk("--url", old, "export", "-f", "json", "/", file).returncode == 0

    ran = hbasemk("--url", new, "--output", "json", "import", "-f", "json", file, "--blobs-from", old)

    assert (ran.returncode, ran.stderr) == (0, b"")
    result = json.loads(ran.stdout)
    assert (result["blobs_copied"], result["missing_blobs"], result["differences"]) == (30, 0, 0)
    assert hbasemk("--url", new, "check", "--blobs").returncode == 0
    ran = hbasemk("--url", new, "import", str(tmp_path), "--blobs-from", old)
    assert (ran.returncode, b"--blobs-from is for --format json only" in ran.stderr) == (2, True)


def test_the_command_without_space_for_a_blob_prints_what_it_has_committed(tmp_path: Path, checked: Checked) -> None:
    old, new = checked(url_of(tmp_path / "old.db")), checked(url_of(tmp_path / "new.db"))
    with connect(old, poll_interval=0) as repository:
        ref = repository.blobs.write(bytes(9 * 1024 * 1024))
        repository.run(lambda tx: [tx.add("/a"), tx.add("/b", {"x": ref})])
    file = tmp_path / "tree.json"
    file.write_bytes(hbasemk("--url", old, "export", "-f", "json", "/").stdout)
    assert hbasemk("--url", new, "init").returncode == 0

    with largest_file(4_000_000):
        # The process inherits the limit.
        ran = hbasemk("--url", new, "import", "-f", "json", "-b", "1", str(file), "--blobs-from", old)

    lines = ran.stderr.decode().splitlines()
    assert ran.returncode == 1
    assert len(lines) == 2, lines
    assert lines[0].startswith("hbasemk: imported and kept: 2 of 3 nodes, the last one /a; 1 added and 0 changed in 1 ")
    assert "(TMPDIR): File too large" in lines[1]


def test_the_command_ends_with_1_if_the_tree_has_more_nodes_than_the_file(tmp_path: Path, checked: Checked) -> None:
    url = checked(url_of(tmp_path / "new.db"))
    with connect(url, poll_interval=0) as repository:
        repository.run(lambda tx: [tx.add("/t", {"n": 1}), tx.add("/t/c"), tx.add("/t/c/d"), tx.add("/u")])
    file = str(tmp_path / "t.json")
    assert hbasemk("--url", url, "export", "-f", "json", "/t", file).returncode == 0
    import_ = ("--url", url, "--output", "json", "import", "-f", "json", file, "--at", "/t")
    assert hbasemk("--url", url, "commit", '+"/t/extra":{} +"/t/c/d/more":{"z":1}').returncode == 0

    ran = hbasemk(*import_)

    assert (ran.returncode, json.loads(ran.stdout)["differences"]) == (1, 2)
    assert sorted(line.split(": ")[:3] for line in ran.stderr.decode().splitlines()) == [
        ["hbasemk", "differs", "/t/c/d/more"],
        ["hbasemk", "differs", "/t/extra"],
    ]
    assert hbasemk(*import_, "--no-verify").returncode == 0
    for path in ("/t/extra", "/t/c/d/more"):
        assert hbasemk("--url", url, "rm", path).returncode == 0
    assert hbasemk(*import_).returncode == 0


def test_the_command_reports_its_progress(tmp_path: Path, checked: Checked) -> None:
    url = checked(url_of(tmp_path / "new.db"))
    with connect(url, poll_interval=0) as repository:
        repository.run(lambda tx: tx.add("/c", {"by": "hand"}))
    text = b'{"children": {"a": {}, "b": {}, "c": {"properties": {"n": 1}}, "d": {}}}'

    ran = hbasemk("--url", url, "import", "-f", "json", "-b", "1", "-", input=text)

    assert ran.returncode == 1
    lines = ran.stderr.decode().splitlines()
    assert "3 of 5 nodes, the last one /b;" in lines[0]
    assert lines[1].startswith("hbasemk: /c already exists")
    assert len(lines) == 2
    assert set(stored(url)) == {"/", "/a", "/b", "/c"}


def test_the_command_rejects_wrong_usage(tmp_path: Path, file: Path) -> None:
    url = url_of(tmp_path / "new.db")
    (tmp_path / "broken.json").write_bytes(b"{")
    (tmp_path / "cut.json").write_bytes(file.read_bytes().rstrip()[:-1])
    for arguments in (
        (str(file),),
        ("-",),
        ("-f", "json", str(tmp_path)),
        ("-f", "json", "--workers", "2", str(file)),
        ("-f", "json", "--exclude", "x", str(file)),
        ("-f", "json", "--inline-limit", "5", str(file)),
        ("-f", "json", "--contents", "none", str(file)),
        ("-f", "json", str(tmp_path / "broken.json")),
        ("-f", "json", str(tmp_path / "cut.json")),
        ("-f", "json", "--at", "relative", str(file)),
        ("-f", "json", str(tmp_path / "none.json")),
    ):
        ran = hbasemk("--url", url, "import", *arguments, stdin=subprocess.DEVNULL)
        assert (ran.returncode, ran.stdout) == (2, b""), arguments
        assert b"Traceback" not in ran.stderr
    assert not (tmp_path / "new.db").exists()

"""`docker/hbase/build.sh`: when it builds an image, and when it makes the base image.

Docker, debootstrap and apt-get are scripts here, which record their arguments.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "docker" / "hbase" / "build.sh"
DEFAULT = "debian:bookworm-slim"


class Programs:
    """Programs of the script: an engine has the images in ``images``, and pulls none."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.temporary = folder / "temporary"
        self.temporary.mkdir()
        self.images = [DEFAULT]
        self.put("docker", "")
        self.put("apt-get", "")
        self.put("debootstrap", 'mkdir -p "$3/var/cache/apt/archives"')
        self.put("id", "echo 0")

    def put(self, name: str, body: str) -> None:
        """Put a program in front of another one of this name."""
        (self.folder / name).write_text(
            f'#!/bin/sh\nprintf "%s\\n" "$(printf "\'%s\' " {name} "$@")" >>{shlex.quote(str(self.folder / "calls"))}\n{body}\n'
        )
        (self.folder / name).chmod(0o755)

    def engine(self, body: str = "") -> None:
        """Let the engine know the images; ``body`` are more cases of its command."""
        known = "|".join(shlex.quote(name) for name in self.images) or "''"
        self.put(
            "docker",
            f'case "$1" in\n{body}\nimage) case "$3" in {known}) ;; *) exit 1 ;; esac ;;\npull) exit 1 ;;\nesac',
        )

    def environment(self, **more: str) -> dict[str, str]:
        """Return the variables of the script."""
        kept = {name: value for name, value in os.environ.items() if name != "BASE_IMAGE"}
        return kept | {"PATH": f"{self.folder}:{os.environ['PATH']}", "TMPDIR": str(self.temporary)} | more

    def run(self, script: Path = SCRIPT, **more: str) -> subprocess.CompletedProcess[str]:
        """Run the script in a process group of its own."""
        return subprocess.run(
            ["sh", str(script)],
            env=self.environment(**more),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            start_new_session=True,
        )

    def calls(self, *names: str) -> list[list[str]]:
        """Return the calls of these programs."""
        calls = self.folder / "calls"
        lines = calls.read_text().splitlines() if calls.exists() else []
        return [call for call in map(shlex.split, lines) if call[0] in names]


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    made = Programs(tmp_path)
    made.engine()
    return made


def test_the_image_is_built_from_a_base_image_that_is_there(programs: Programs) -> None:
    done = programs.run()
    assert done.returncode == 0, done.stderr
    (build,) = [call for call in programs.calls("docker") if call[1] == "build"]
    assert f"BASE_IMAGE={DEFAULT}" in build
    assert build[build.index("-t") + 1] == done.stdout.strip()
    assert list(programs.temporary.iterdir()) == []


def test_without_an_engine_nothing_is_installed(programs: Programs) -> None:
    programs.put("docker", "exit 1")
    done = programs.run()
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "build.sh: no Docker engine answers; start one\n"
    assert programs.calls("apt-get", "debootstrap") == []


def test_a_base_image_that_cannot_be_pulled_is_made(programs: Programs) -> None:
    programs.images = []
    programs.engine()
    done = programs.run()
    assert done.returncode == 0, done.stderr
    assert [call[1] for call in programs.calls("debootstrap")] == ["--variant=minbase"]
    assert [call[-1] for call in programs.calls("docker") if call[1] == "import"] == [DEFAULT]


def test_a_user_who_cannot_make_the_base_image_gets_advice(programs: Programs) -> None:
    programs.images = []
    programs.engine()
    programs.put("id", "echo 1000")
    done = programs.run()
    assert (done.returncode, programs.calls("apt-get", "debootstrap")) == (1, [])
    assert "run this script as root, or set BASE_IMAGE to a Debian bookworm image that is there" in done.stderr


@pytest.mark.parametrize(
    ("command", "kill", "code"),
    [("pull", "kill -INT 0", 130), ("build", "kill -INT 0", 130), ("build", 'kill -TERM "$PPID"', 143)],
)
def test_a_signal_ends_the_script(programs: Programs, command: str, kill: str, code: int) -> None:
    programs.images = [DEFAULT] if command == "build" else []
    programs.engine(f"{command}) {kill}; exit 1 ;;")
    done = programs.run()
    assert (done.returncode, done.stdout) == (code, "")
    assert programs.calls("debootstrap") == []
    assert "failed" not in done.stderr
    assert list(programs.temporary.iterdir()) == []


def test_the_base_image_is_a_part_of_the_tag(programs: Programs) -> None:
    default = programs.run().stdout
    assert programs.run(BASE_IMAGE=DEFAULT).stdout == default
    programs.images += [default.strip(), "mine:1"]
    programs.engine()
    assert programs.run().stdout == default
    done = programs.run(BASE_IMAGE="mine:1")
    assert done.returncode == 0, done.stderr
    assert done.stdout != default
    builds = [call for call in programs.calls("docker") if call[1] == "build"]
    assert "BASE_IMAGE=mine:1" in builds[-1]


def test_no_base_image_is_made_under_another_name(programs: Programs) -> None:
    done = programs.run(BASE_IMAGE="debian:bookworm-slin")
    assert (done.returncode, programs.calls("debootstrap", "apt-get")) == (1, [])
    assert "debian:bookworm-slin can be neither found nor pulled; check BASE_IMAGE, or unset it" in done.stderr


def test_a_part_of_the_base_image_is_not_imported(programs: Programs) -> None:
    programs.images = []
    programs.engine()
    programs.put("tar", "exit 2")
    done = programs.run()
    assert (done.returncode, done.stdout) == (2, "")
    assert [call for call in programs.calls("docker") if call[1] == "import"] == []


def test_authorities_in_folders_are_trusted_while_building(programs: Programs) -> None:
    authorities = programs.folder / "authorities"
    (authorities / "folder").mkdir(parents=True)
    (authorities / "one.crt").write_text("one")
    (authorities / "folder" / "two.crt").write_text("two")
    script = programs.folder / "copy" / "build.sh"
    shutil.copytree(SCRIPT.parent, script.parent)
    script.write_text(SCRIPT.read_text().replace("/usr/local/share/ca-certificates", str(authorities)))
    programs.engine(f'build) for context; do :; done; cp -R "$context/ca-certificates" {programs.folder}/seen ;;')
    assert programs.run(script).returncode == 0
    assert (programs.folder / "seen" / "one.crt").read_text() == "one"
    assert (programs.folder / "seen" / "folder" / "two.crt").read_text() == "two"

"""The conductor of workers starts with an empty directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from hbasemk.testing.history.processes import Conductor


def test_a_directory_with_another_history_is_rejected_before_anything_is_created(tmp_path: Path) -> None:
    (tmp_path / "w0.history").touch()
    with pytest.raises(ValueError, match="directory must have no files of another history"):
        Conductor(f"sqlite:///{tmp_path / 'content.db'}", tmp_path, 1).run(0)
    assert [file.name for file in tmp_path.iterdir()] == ["w0.history"]

"""Which files are the user's."""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path

import pytest

from outpace.seams.where import is_user_file


def test_what_torch_compile_writes_is_not_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generated = tmp_path / "cache" / "ab" / "cab.py"
    is_user_file.cache_clear()
    assert is_user_file(str(generated))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    is_user_file.cache_clear()
    assert not is_user_file(str(generated))
    assert is_user_file(str(tmp_path / "train.py"))
    assert not is_user_file("/tmp/torchinductor_me/ab/cab.py")
    assert not is_user_file(os.path.join(sysconfig.get_paths()["stdlib"], "json", "decoder.py"))
    is_user_file.cache_clear()

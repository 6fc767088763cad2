"""A session's folder: nothing of others is taken for ours."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

import pytest

from outpace.adapters.folder import claimed, reserved
from outpace.errors import SessionError
from tests.conftest import outpace


def test_a_new_an_empty_and_an_earlier_sessions_folder(tmp_path: Path) -> None:
    new = tmp_path / "deep" / "new"
    assert claimed(new) == new
    assert new.is_dir()
    assert claimed(new) == new
    (new / "spec-run.json").write_text('{"mode": "run", "entry": "outpace.tune.apply:begin"}')
    (new / "session.json").touch()
    assert claimed(new) == new


def test_an_earlier_session_whose_disk_was_full(tmp_path: Path) -> None:
    (tmp_path / "spec-run.json").touch()
    assert claimed(tmp_path) == tmp_path


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("spec-model.json", '{"layers": 3}'),
        ("spec-v2.json", ""),
        ("spec-run.json", '{"mode": "fast"}'),
        ("spec-train.json", '{"mode": "train", "layers": 3}'),
        ("spec-train.json", "[1, 2]"),
        ("spec-run.json", "no JSON"),
    ],
)
def test_a_spec_of_others_makes_no_session(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(SessionError, match="holds files, and none of a session"):
        claimed(tmp_path)


def test_a_folder_of_others_is_left_as_it_is(tmp_path: Path) -> None:
    precious = tmp_path / "results" / "scratch" / "notes.txt"
    precious.parent.mkdir(parents=True)
    precious.write_text("mine")
    (tmp_path / "results" / "progress.json").write_text("mine")
    (tmp_path / "train.py").write_text("print('hello')")
    for words in (["diagnose"], ["run", "--no-recipe"]):
        done = outpace(*words, "--session", "results", "train.py", cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, "")
        assert "holds files, and none of a session" in done.stderr
    assert precious.read_text() == "mine"
    assert (tmp_path / "results" / "progress.json").read_text() == "mine"


@pytest.mark.parametrize("words", [["diagnose"], ["run", "--no-recipe"]])
def test_a_folder_that_cannot_be_made(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "train.py").write_text("print('hello')")
    with pytest.raises(SessionError, match="cannot be made"):
        claimed(tmp_path / "file" / "session")
    done = outpace(*words, "--session", "file/session", "train.py", cwd=tmp_path)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_two_at_once_have_a_folder_each(tmp_path: Path) -> None:
    folder = tmp_path / "last-run"
    with reserved(folder, exactly=False) as first, reserved(folder, exactly=False) as second:
        assert (first, second) == (folder, tmp_path / "last-run-2")
        with (
            pytest.raises(SessionError, match="another run is using"),
            reserved(folder, exactly=True),
        ):
            pass
    with reserved(folder, exactly=True) as again:
        assert again == folder


def test_one_that_only_looks_whether_it_is_in_use_takes_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = claimed(tmp_path / "last-run")
    looking = os.open(folder, os.O_RDONLY)
    fcntl.flock(looking, fcntl.LOCK_SH)
    monkeypatch.setattr(time, "sleep", lambda _: fcntl.flock(looking, fcntl.LOCK_UN))
    try:
        with reserved(folder, exactly=True) as own:
            assert own == folder
    finally:
        os.close(looking)


def test_two_diagnoses_do_not_share_a_folder(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('hello')")
    with reserved(tmp_path / "mine", exactly=True):
        done = outpace("diagnose", "--session", "mine", "train.py", cwd=tmp_path)
    assert done.returncode == 2
    assert "another run is using the session folder" in done.stderr


def test_a_run_beside_another_says_where_its_notes_are(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('hello')")
    with reserved(tmp_path / ".outpace" / "last-run", exactly=True):
        done = outpace("run", "--no-recipe", "train.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "hello\n")
    assert "another run is using .outpace/last-run" in done.stderr
    assert (tmp_path / ".outpace" / "last-run-2" / "spec-run.json").exists()
    done = outpace("run", "--no-recipe", "train.py", cwd=tmp_path)
    assert "another run" not in done.stderr

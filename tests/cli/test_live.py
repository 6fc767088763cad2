"""A session is looked at while it runs."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from outpace.adapters.folder import reserved
from outpace.cli.live import News, _lines, _phases, _screen, begun, changes, news
from outpace.records.files import write_json
from tests.report.report_sessions import images_tuned

LOOK = [sys.executable, "-m", "outpace", "live"]


def tell(folder: Path, when: float, **told: Any) -> None:
    """A process of the session writes how far it is."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "progress.json"
    path.write_text(json.dumps({"done": 0, "total": 1, "note": "", **told}))
    os.utime(path, (when, when))


def test_the_newest_of_several_processes_and_sessions(tmp_path: Path) -> None:
    sessions = tmp_path / ".outpace"
    tell(sessions / "old", 100, phase="trials")
    tell(sessions / "new" / "trials", 300, phase="trials")
    tell(sessions / "new", 200, phase="experiments")
    found = news(sessions, now=310)
    assert found is not None
    assert (found.session, found.told["phase"]) == (sessions / "new", "trials")
    assert found.age_s == pytest.approx(10)
    named = news(sessions / "old", now=310)
    assert named is not None
    assert named.told["phase"] == "trials"


def test_a_session_of_before_in_the_same_folder_is_not_the_end(tmp_path: Path) -> None:
    write_json(tmp_path / "session.json", images_tuned())
    os.utime(tmp_path / "session.json", (100, 100))
    tell(tmp_path, 200, phase="experiments")
    found = news(tmp_path)
    assert found is not None
    assert not found.over
    os.utime(tmp_path / "session.json", (201, 201))
    found = news(tmp_path)
    assert found is not None
    assert found.over


def test_a_run_is_over_when_its_process_has_written_its_status(tmp_path: Path) -> None:
    run = {"steps": 3, "of": 9, "loss": 0.5, "elapsed_s": 1, "left_s": 2, "finish_s": None}
    tell(tmp_path, 200, landing=False, **run)
    (tmp_path / "status.json").write_text("{}")
    os.utime(tmp_path / "status.json", (100, 100))
    found = news(tmp_path)
    assert found is not None
    assert not found.over
    os.utime(tmp_path / "status.json", (300, 300))
    assert next(changes(tmp_path)).over


def test_what_is_told_is_shown_until_the_session_is_over(tmp_path: Path) -> None:
    gains = {"batch_double": [0.5, 0.45, 0.55]}
    tell(tmp_path, time.time(), phase="watching", done=1, total=4)
    child = subprocess.Popen(
        [*LOOK, "--json", str(tmp_path)], stdout=subprocess.PIPE, text=True, env={**os.environ}
    )
    assert child.stdout is not None
    first = json.loads(child.stdout.readline())
    assert (first["phase"], first["session"]) == ("watching", str(tmp_path))
    tell(tmp_path, time.time(), phase="experiments", gains=gains, loss=float("nan"))
    second = json.loads(child.stdout.readline(), parse_constant=pytest.fail)
    assert (second["gains"], second["loss"]) == (gains, None)
    write_json(tmp_path / "session.json", images_tuned())
    rest, _ = child.communicate(timeout=30)
    assert (rest, child.returncode) == ("", 0)


def test_the_session_is_told_when_it_is_over(tmp_path: Path) -> None:
    tell(tmp_path, 100, phase="experiments", done=3, total=4, note="compute, round 2")
    write_json(tmp_path / "session.json", images_tuned())
    done = subprocess.run([*LOOK, str(tmp_path)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    assert done.stdout.startswith("experiments  75 %  compute, round 2\n")
    assert "What would be gained" in done.stdout


def test_a_plan_of_memory_is_over_when_it_has_its_sizes(tmp_path: Path) -> None:
    """It writes no session."""
    tell(tmp_path, 100, phase="a step's memory", done=0, total=1)
    (tmp_path / "sizes.json").write_text("{}")
    done = subprocess.run([*LOOK, str(tmp_path)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    assert done.stdout.endswith(f"{tmp_path}: measured; its own terminal has the answer\n")


def test_nothing_to_look_at(tmp_path: Path) -> None:
    done = subprocess.run(LOOK, capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert "nothing has run in .outpace" in done.stderr


def test_a_session_that_has_told_nothing_yet_is_waited_for(tmp_path: Path) -> None:
    session = tmp_path / ".outpace" / "new"
    with reserved(session, exactly=True):
        child = subprocess.Popen(
            LOOK, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert child.stderr is not None
        assert "a session has begun" in child.stderr.readline()
        tell(session, time.time(), phase="experiments")
        assert child.stdout is not None
        assert child.stdout.readline().startswith("experiments")
        write_json(session / "session.json", images_tuned())
    child.communicate(timeout=60)
    assert child.returncode == 0


def test_a_session_that_has_begun_is_waited_for_though_another_is_over(tmp_path: Path) -> None:
    sessions = tmp_path / ".outpace"
    old, new = sessions / "old", sessions / "new"
    tell(old, time.time() - 60, phase="trials")
    write_json(old / "session.json", images_tuned())
    (sessions / "latest").symlink_to("old")
    found = news(sessions)
    assert found is not None
    assert found.over
    with reserved(new, exactly=True):
        assert news(sessions) is None
        assert begun(sessions)
        assert news(old) is not None, "one that was asked for by its name"
        tell(new, time.time(), phase="experiments")
        now = news(sessions)
        assert now is not None
        assert now.session == new


def test_a_session_that_ends_before_it_tells_anything(tmp_path: Path) -> None:
    with reserved(tmp_path / "new", exactly=True):
        child = subprocess.Popen([*LOOK, "new"], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
        assert child.stderr is not None
        assert "a session has begun" in child.stderr.readline()
    _, said = child.communicate(timeout=60)
    assert child.returncode == 2
    assert "ended before it told anything" in said


def test_a_session_whose_process_was_killed_is_not_waited_for(tmp_path: Path) -> None:
    tell(tmp_path, time.time() - 60, phase="experiments", done=1, total=4)
    done = subprocess.run([*LOOK, str(tmp_path)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    assert done.stdout.endswith("its process is gone, and did not say how it ended\n")
    with reserved(tmp_path / "busy", exactly=True):
        tell(tmp_path / "busy", time.time() - 60, phase="experiments")
        told = changes(tmp_path / "busy")
        assert not any(next(told).gone for _ in range(2))


def test_what_is_not_ours_is_no_news(tmp_path: Path) -> None:
    for text in ("[]", "3", "{}", '{"steps": "many"}', '{"phase": "p", "done": "x", "total": 2}'):
        (tmp_path / "progress.json").write_text(text)
        assert news(tmp_path) is None


def test_of_two_sessions_at_once_one_is_followed(tmp_path: Path) -> None:
    sessions = tmp_path / ".outpace"
    tell(sessions / "one", time.time(), phase="trials")
    told = changes(sessions)
    assert next(told).session == sessions / "one"
    tell(sessions / "two", time.time() + 1, phase="trials")
    assert next(told).session == sessions / "one"
    tell(sessions / "one", time.time() - 60, phase="trials")
    assert next(told).session == sessions / "one", "silent"
    assert next(told).session == sessions / "two"


def test_a_curve_is_of_one_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = list[list[float]]()

    def picture(_: str, __: object, losses: list[float], ___: float) -> str:
        drawn.append(losses)
        return ""

    monkeypatch.setattr("outpace.report.live.picture", picture)
    told = {"of": 9, "elapsed_s": 1.0, "left_s": 2.0, "finish_s": None, "landing": False}
    with _screen() as show:
        for session, steps, loss in (("one", 1, 0.5), ("one", 2, 0.4), ("two", 1, 3.0)):
            seen = {**told, "steps": steps, "loss": loss}
            show(News(tmp_path / session, seen, age_s=0.0, over=False))
    assert drawn == [[0.5], [0.5, 0.4], [3.0]]


def test_stdout_that_is_not_utf8(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tell(tmp_path, 100, phase="training", note="step 3 · loss 1")
    found = news(tmp_path)
    assert found is not None
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    for way in (_phases, _lines):
        with way() as show:
            show(found)
    said = raw.getvalue().splitlines()
    assert said[0] == b"training  0 %  step 3 . loss 1"
    assert json.loads(said[1])["note"] == "step 3 · loss 1"
    assert json.loads(said[1])["schema"] == 1

"""A training under a recipe that a person may have written, and watched by somebody who may go away."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from outpace.api.running import _checked, _too_late, run
from outpace.errors import DeadlineError
from outpace.measure.machine import describe
from outpace.plan.countdown import Countdown, since_boot
from outpace.records.recipe import Applied, Recipe
from outpace.records.recipe_file import write_recipe
from outpace.records.target import Target
from outpace.tune.files import PROGRESS, read

HERE = describe()
RECIPE = Recipe(
    schema=1,
    target="train.py",
    outpace="0",
    python="3.11",
    torch=HERE.torch,
    machine=f"{HERE.cpu}, {HERE.cores} cores",
    fingerprint=HERE.fingerprint,
)


def warned(tmp_path: Path, capfd: pytest.CaptureFixture[str], **changed: str) -> str:
    path = tmp_path / "outpace.toml"
    write_recipe(path, msgspec.structs.replace(RECIPE, **changed))
    _checked(path, Target("script", "train.py", (), str(tmp_path)))
    return capfd.readouterr().err


def test_what_is_another_here_is_told_as_such(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert warned(tmp_path, capfd) == ""
    assert "on another machine (abacus; here: " in warned(
        tmp_path, capfd, fingerprint="x", machine="abacus"
    )
    assert "with torch 1.0 (here: " in warned(tmp_path, capfd, fingerprint="x", torch="1.0")
    assert "with another GPU, or other memory" in warned(tmp_path, capfd, fingerprint="x")


def test_a_launcher_is_not_what_was_measured(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    launched = "torchrun --nproc-per-node 2"
    assert warned(tmp_path, capfd, target=f"{launched} train.py") == ""
    assert "proven with other.py" in warned(tmp_path, capfd, target=f"{launched} other.py")
    path, words = tmp_path / "outpace.toml", tuple(f"{launched} train.py".split())
    write_recipe(path, msgspec.structs.replace(RECIPE, target=f"{launched} other.py"))
    _checked(path, Target("command", words[0], words[1:], str(tmp_path)))
    assert "proven with other.py" in capfd.readouterr().err


def test_a_quote_that_was_left_open(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert warned(tmp_path, capfd, target="train.py --name it's") == ""
    assert "proven with other.py" in warned(tmp_path, capfd, target="other.py --name it's")


def test_variables_of_remedies_that_were_written_by_hand(tmp_path: Path) -> None:
    remedies = (Applied("allocator", "exact", {"malloc": "keep"}),)
    by_hand = msgspec.structs.replace(RECIPE, environment={"MINE": "1"}, remedies=remedies)
    write_recipe(tmp_path / "outpace.toml", by_hand)
    target = Target("script", "train.py", (), str(tmp_path))
    found = _checked(tmp_path / "outpace.toml", target).environment
    assert found.pop("MINE") == "1"
    assert found


SCRIPT = """
    import time
    import torch
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for step in range(75):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).square().mean().backward()
        optimizer.step()
        time.sleep(0.02)
    print("trained")
    """


@pytest.mark.parametrize(
    ("deadline", "code"), [pytest.param("10m", 0, marks=pytest.mark.slow), ("1s", 3)]
)
def test_a_training_goes_on_where_nobody_reads_its_progress(
    script: Callable[..., Path], deadline: str, code: int
) -> None:
    path = script(SCRIPT)
    command = [sys.executable, "-m", "outpace", "run", "--no-recipe", "--deadline", deadline, path]
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        command, cwd=path.parent, stdout=subprocess.PIPE, stderr=writer, text=True, check=False
    )
    os.close(writer)
    assert (done.returncode, done.stdout) == (code, "trained\n")


def test_a_process_on_another_machine_counts_by_the_calendar(
    script: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As under srun: its clock, which counts from its own start, says nothing of the parent's."""
    path = script(SCRIPT.replace("75", "20"))
    monkeypatch.chdir(path.parent)
    monkeypatch.setattr("outpace.api.running.boot_id", lambda: "of another machine")
    long_ago = Countdown(-1e7, seconds=3600.0, now=lambda: -1e7 + 5.0)
    session = path.parent / "session"
    target = Target("script", str(path), (), str(path.parent))
    assert run(target, recipe=None, session=session, deadline=long_ago) == 0
    told = read(session / PROGRESS)
    assert told
    assert 5.0 <= told["elapsed_s"] < 3600.0


@pytest.mark.parametrize(
    ("late", "reserved_s", "said"),
    [
        (4.25, 0.0, "the deadline was missed by 4.2s"),
        (0.02, 0.0, "the deadline was missed by 0.1s"),
        (120.0, 7200.0, "it ended 2m into what is reserved"),
        (7260.0, 7200.0, "the deadline was missed by 1m; the 2h that were reserved are over too"),
    ],
)
def test_what_is_reserved_is_told_from_the_deadline(
    late: float, reserved_s: float, said: str
) -> None:
    error = _too_late(late, reserved_s, "linear", {"landing": True, "steps": 100})
    assert (error.message, error.exit_code) == (said, 3)
    assert "earlier --deadline" in (error.hint or "")
    assert "--reserve" not in (error.hint or "")
    by_itself = _too_late(late, reserved_s, "linear", {"landing": False, "steps": 100})
    assert "after the last step" not in (by_itself.hint or "")
    hardly_begun = _too_late(late, reserved_s, "linear", {"landing": False, "steps": 1})
    assert "earlier" not in (hardly_begun.hint or "")
    assert "its start, a step and its end" in (hardly_begun.hint or "")


def test_an_end_within_what_is_reserved_is_late(
    script: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = script("print('over')")
    monkeypatch.chdir(path.parent)
    past = Countdown(since_boot() - 10.0, seconds=1.0)
    target = Target("script", str(path), (), str(path.parent))
    with pytest.raises(DeadlineError, match="into what is reserved"):
        run(target, recipe=None, session=path.parent / "s", deadline=past, reserved_s=3600.0)


def test_a_script_with_an_exit_code_of_its_own_that_is_late_is_told(
    script: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    path = script("raise SystemExit(7)")
    monkeypatch.chdir(path.parent)
    past = Countdown(since_boot() - 10.0, seconds=1.0)
    target = Target("script", str(path), (), str(path.parent))
    assert run(target, recipe=None, session=path.parent / "s", deadline=past) == 7
    assert "warning: the deadline was missed by" in capfd.readouterr().err

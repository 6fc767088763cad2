"""A process that observes its target, and how that ended."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from outpace.seams.resting import rest
from outpace.tune.observed import Observed
from tests.conftest import evidence_of, outpace, with_entry

TRAINING = """
    import sys
    import torch
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for step in range(20):
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
        if step == {at}:
            raise ValueError("broken")
    """


@pytest.mark.parametrize(
    ("at", "finished"), [(12, False), pytest.param(-1, True, marks=pytest.mark.slow)]
)
def test_a_training_that_broke_off_was_not_seen_to_its_end(
    at: int, finished: bool, script: Callable[[str], Path], tmp_path: Path
) -> None:
    code, text = with_entry(script(TRAINING.format(at=at)), tmp_path / "session")
    assert (code == 0) == finished, text
    evidence = evidence_of(tmp_path / "session")
    assert evidence.run.finished == finished
    assert evidence.run.total_steps == 20


def test_one_that_is_judged_was_seen_to_its_end(
    script: Callable[[str], Path], tmp_path: Path
) -> None:
    path = script(TRAINING.format(at=-1) + "\n    assert model.bias.item() > 9")
    code, text = with_entry(path, tmp_path / "session")
    assert (code, "AssertionError" in text) == (1, True)
    assert evidence_of(tmp_path / "session").run.finished


JUDGED = """
    import sys
    import torch
    torch.manual_seed(0)

    class Model(torch.nn.Linear):
        changed = False

    def train(steps):
        model = Model(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        for step in range(steps):
            optimizer.zero_grad(set_to_none=False)
            if step and getattr(model.weight, "grad") is None:
                model.changed = True  # an experiment, on whatever machine
            model(torch.randn(8, 4)).square().mean().backward()
            optimizer.step()
            HERE
        return model

    def main():
        model = train(int(sys.argv[1]))
        JUDGE
        return 3

    if __name__ == "__main__":
        sys.exit(main())
    """


@pytest.mark.parametrize(
    ("judge", "code"),
    [
        ("assert model.bias.item() > 9", 1),
        pytest.param("sys.exit(5)", 5, marks=pytest.mark.slow),
        pytest.param("pass", 3, marks=pytest.mark.slow),
    ],
)
def test_how_a_script_judges_what_experiments_made_of_its_training_is_told(
    judge: str, code: int, script: Callable[[str], Path], tmp_path: Path
) -> None:
    here = "if model.changed: break"
    path = script(JUDGED.replace("HERE", here).replace("JUDGE", judge))
    done = outpace("diagnose", "--json", "--time", "4s", str(path), "1000000", cwd=tmp_path)
    found = json.loads(done.stdout)
    assert (found["outcome"], done.returncode) == ("done", 0), done.stderr
    said = f"the target ended with exit code {code} after experiments had changed its training"
    assert [said in note for note in found["notes"]].count(True) == 1
    assert "run again without" not in done.stderr


@pytest.mark.parametrize(
    ("here", "judge", "steps", "code"),
    [
        ("pass", "assert model.bias.item() > 9", "3", 1),
        pytest.param("pass", "pass", "3", 3, marks=pytest.mark.slow),
        pytest.param(
            *("if step == 20: raise ValueError", "pass", "1000000", 1), marks=pytest.mark.slow
        ),
        pytest.param("if step == 20: sys.exit(7)", "pass", "1000000", 7, marks=pytest.mark.slow),
    ],
)
def test_one_that_fails_by_itself_has_failed(
    here: str, judge: str, steps: str, code: int, script: Callable[[str], Path], tmp_path: Path
) -> None:
    """Without experiments, or in the midst of its training."""
    path = script(JUDGED.replace("HERE", here).replace("JUDGE", judge))
    done = outpace("diagnose", "--json", "--time", "4s", str(path), steps, cwd=tmp_path)
    found = json.loads(done.stdout)
    assert (found["outcome"], done.returncode) == ("failed", code), done.stderr
    assert "had changed its training" not in " ".join(found["notes"])


@pytest.mark.slow
def test_an_arm_that_a_training_breaks_off_in_is_left_out(
    script: Callable[[str], Path], tmp_path: Path
) -> None:
    path = script(JUDGED.replace("HERE", "assert not model.changed").replace("JUDGE", "pass"))
    done = outpace("diagnose", "--json", "--time", "4s", str(path), "1000000", cwd=tmp_path)
    found = json.loads(done.stdout)
    assert (found["outcome"], done.returncode) == ("done", 0), done.stderr
    assert "set_to_none: the process ended with exit code 1 in this arm" in found["notes"]


def test_workers_that_rest_when_the_script_ends_are_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of an arm that was at work rest once the training is as it was: python would wait for them."""
    child = subprocess.Popen(["sleep", "60"])
    try:
        observed: Any = Observed.__new__(Observed)
        observed.ended = observed.stopped = False
        observed.pid = os.getpid()
        observed.last_lines = SimpleNamespace(within=lambda outermost: False)
        observed.watcher = SimpleNamespace(course=SimpleNamespace(outermost=None))
        observed.host = SimpleNamespace(steps=3)
        monkeypatch.setattr(Observed, "_write_down", lambda self: rest([child.pid]))
        observed.finish()
        while (status := psutil.Process(child.pid).status()) == psutil.STATUS_RUNNING:
            pass  # as it wakes
        assert status == psutil.STATUS_SLEEPING
    finally:
        child.kill()
        child.wait()

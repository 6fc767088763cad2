"""Trainings that are killed, or go on later: no bit is lost."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from outpace.errors import DataError
from outpace.serve.loader import Loader
from outpace.train.run import Run
from outpace.train.strategies import Constant, EarlyStopping, Ema, OneCycle, Plateau
from tests.conftest import ROOT
from tests.train.toys import Slow, Time, fit, model, points, ready, same

STEPS = 15


def command(folder: Path, epochs: int, kind: str) -> list[str]:
    return [sys.executable, "-m", "tests.train.kill", str(folder), str(epochs), kind]


def start(folder: Path, epochs: int, kind: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command(folder, epochs, kind), cwd=ROOT, stdout=subprocess.PIPE, text=True
    )


def undisturbed(folder: Path, epochs: int, kind: str) -> str:
    done = subprocess.run(
        command(folder, epochs, kind), cwd=ROOT, capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()[-1]


def killed_at(child: subprocess.Popen[str], step: int, later_s: float) -> None:
    """``kill -9`` a little after it has told of a step, unless it ends before."""
    assert child.stdout is not None
    for line in child.stdout:
        if line.startswith("weights"):
            break
        if int(line) >= step:
            time.sleep(later_s)
            os.kill(child.pid, signal.SIGKILL)
            break
    child.wait()


@pytest.mark.parametrize("kind", ["loader", "dataloader"])
def test_killed_in_the_middle_it_ends_with_the_same_bits(tmp_path: Path, kind: str) -> None:
    child = start(tmp_path / "killed", 3, kind)
    killed_at(child, 20, 0.003)
    assert child.returncode == -signal.SIGKILL
    assert undisturbed(tmp_path / "killed", 3, kind) == undisturbed(tmp_path / "whole", 3, kind)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", ["loader", "dataloader"])
def test_killed_fifty_times_it_ends_with_the_same_bits(tmp_path: Path, kind: str) -> None:
    chance, epochs, kills = random.Random(0), 30, 0
    while kills < 25:
        child = start(tmp_path / f"killed-{kills}", epochs, kind)
        killed_at(child, chance.randrange(0, epochs * STEPS - 20), chance.random() * 0.02)
        assert child.returncode == -signal.SIGKILL
        kills += 1
        # And once more, on its way from there.
        child = start(tmp_path / f"killed-{kills - 1}", epochs, kind)
        killed_at(child, chance.randrange(0, epochs * STEPS), chance.random() * 0.02)
    whole = undisturbed(tmp_path / "whole", epochs, kind)
    for number in range(kills):
        assert undisturbed(tmp_path / f"killed-{number}", epochs, kind) == whole


# --- in one process --------------------------------------------------------------------------


class Stop:
    """Raises in the middle of a step, as a crash would."""

    def __init__(self, at: int) -> None:
        self.at = at

    def gradients(self, run: Run) -> None:
        if run.step == self.at:
            assert run.checkpoints is not None
            run.checkpoints.wait()
            raise KeyboardInterrupt


@pytest.mark.parametrize("at", [1, 7, 9, 10, 11, 25, 39])
@pytest.mark.parametrize("way", ["batches", "Loader", "DataLoader"])
def test_it_goes_on_from_any_step(tmp_path: Path, at: int, way: str) -> None:
    def go(folder: Path, **given: Any) -> Any:
        torch.manual_seed(0)
        data = TensorDataset(*points())
        train = {
            "batches": ready,
            "Loader": lambda: Loader(data, 24, executor="none"),
            "DataLoader": lambda: DataLoader(data, 24, shuffle=True),
        }[way]()
        return fit(
            model=model(dropout=0.3),
            train=train,
            strategies=[OneCycle(rate=0.03), Ema(0.9, every=2)],
            checkpoint=folder,
            every=0,
            **given,
        )

    whole = go(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        go(tmp_path / "cut", callbacks=[Stop(at)])
    again = go(tmp_path / "cut")
    assert same(dict(again.weights), dict(whole.weights))
    rows = [[(r.step, r.train_loss, r.metric, r.rate) for r in x.history] for x in (again, whole)]
    assert rows[0] == rows[1]


def test_what_has_ended_gives_the_same_result_again(tmp_path: Path) -> None:
    for given in (
        {"epochs": 3},
        {"steps": 17},
        {"target": 0.7, "epochs": 50},
        {"strategies": [Constant(rate=0.0), EarlyStopping()], "epochs": 50},
    ):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        one, two = (fit(checkpoint=folder, **given) for _ in range(2))
        assert (two.stopped, two.steps, two.metric) == (one.stopped, one.steps, one.metric)
        assert len(two.history) == len(one.history)


def test_more_epochs_go_on_where_it_ended(tmp_path: Path) -> None:
    fit(checkpoint=tmp_path, epochs=2, strategies=[Constant(rate=0.02)])
    longer = fit(checkpoint=tmp_path, epochs=4, strategies=[Constant(rate=0.02)])
    whole = fit(epochs=4, strategies=[Constant(rate=0.02)])
    assert longer.steps == 40
    assert same(dict(longer.weights), dict(whole.weights))


def test_another_batch_size_loses_and_repeats_no_sample(tmp_path: Path) -> None:
    x, y = points(96)
    data = TensorDataset(torch.arange(96), y)
    seen: list[int] = []

    class Seeing:
        first = 0

        def begin(self, run: Run) -> None:
            Seeing.first = run.step

        def batch(self, run: Run, batch: Any) -> Any:
            seen.extend(batch[0].tolist())
            return x[batch[0]], batch[1]

    def go(size: int, *callbacks: Any) -> Any:
        return fit(
            train=Loader(data, size, executor="none"),
            checkpoint=tmp_path,
            every=0,
            valid=None,
            metric=None,
            epochs=2,
            callbacks=[Seeing(), *callbacks],
        )

    with pytest.raises(KeyboardInterrupt):
        go(16, Stop(3))
    before = seen.copy()
    seen.clear()
    result = go(8)
    first = Seeing.first  # the step of the last checkpoint that was written
    assert first in (1, 2, 3)
    seen = before[: 16 * first] + seen
    assert sorted(seen[:96]) == sorted(seen[96:]) == list(range(96))
    assert result.steps == first + (96 - 16 * first) // 8 + 12
    assert result.history[-1].rate == pytest.approx(0.0)


def test_the_time_that_is_used_goes_on(tmp_path: Path) -> None:
    time = Time()

    def go(**given: Any) -> Any:
        slow = Slow(ready(), time, 1.0)
        return fit(train=slow, budget=60.0, now=time, checkpoint=tmp_path, every="5s", **given)

    with pytest.raises(KeyboardInterrupt):
        go(callbacks=[Stop(32)])
    time.s += 10_000.0
    begun = time.s
    result = go()
    assert result.stopped == "budget"
    assert 20.0 <= time.s - begun <= 50.0  # what came after the last checkpoint is lost


def test_a_plateau_goes_on(tmp_path: Path) -> None:
    def go(folder: Path, **given: Any) -> Any:
        strategies = [Plateau(rate=0.5, drop=0.1)]
        return fit(checkpoint=folder, every=0, epochs=40, strategies=strategies, **given)

    whole = go(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        go(tmp_path / "cut", callbacks=[Stop(305)])
    again = go(tmp_path / "cut")
    assert any("plateau" in note for note in whole.notes)
    assert again.notes == whole.notes
    assert same(dict(again.weights), dict(whole.weights))


def test_a_checkpoint_of_another_model_is_told(tmp_path: Path) -> None:
    fit(checkpoint=tmp_path)
    with pytest.raises(DataError, match="of another training"):
        fit(checkpoint=tmp_path, model=torch.nn.Linear(8, 3))

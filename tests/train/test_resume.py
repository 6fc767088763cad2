"""Trainings that are killed, or go on later: no bit is lost."""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
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
from tests.train.toys import Slow, Stop, Time, fit, made, model, points, ready, same, suited

STEPS = 15


class Children:
    """Trainings in forks of one process (tests/train/kill.py)."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.train.kill"],
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def train(
        self, folder: Path, epochs: int, kind: str, *, kill: int | None = None, later_s: float = 0.0
    ) -> str | None:
        """The digest of a training; None where it was killed, so long after it told of a step."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{folder} {epochs} {kind}\n")
        self.process.stdin.flush()
        pid, digest, reached = 0, None, False
        for line in self.process.stdout:
            word, value = line.split()
            if word == "pid":
                pid = int(value)
            elif word == "digest":
                digest = value
            elif word == "ended":
                assert int(value) == (0 if digest else -signal.SIGKILL)
                return digest
            reached = reached or (word == "step" and kill is not None and int(value) >= kill)
            if reached and pid:
                time.sleep(later_s)
                os.kill(pid, signal.SIGKILL)
                reached, kill = False, None
        raise AssertionError("the process that forks has ended")


@pytest.fixture(scope="module")
def children() -> Iterator[Children]:
    made = Children()
    yield made
    assert made.process.stdin is not None
    made.process.stdin.close()
    made.process.wait(30)


KINDS = ["loader", "dataloader"]


@pytest.mark.parametrize("kind", KINDS)
def test_killed_in_the_middle_it_ends_with_the_same_bits(
    tmp_path: Path, children: Children, kind: str
) -> None:
    whole = children.train(tmp_path / "whole", 3, kind)
    assert children.train(tmp_path / "killed", 3, kind, kill=20, later_s=0.003) is None
    assert whole is not None
    assert children.train(tmp_path / "killed", 3, kind) == whole


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", KINDS)
def test_killed_fifty_times_it_ends_with_the_same_bits(
    tmp_path: Path, children: Children, kind: str
) -> None:
    chance, epochs, kills = random.Random(kind), 20, 0
    whole = children.train(tmp_path / "whole", epochs, kind)
    assert whole is not None
    for number in range(10):
        folder, step, digest = tmp_path / f"killed-{number}", 0, None
        for _ in range(3):
            step = chance.randrange(step, epochs * STEPS - 20)
            later_s = chance.random() * 0.02
            digest = children.train(folder, epochs, kind, kill=step, later_s=later_s)
            kills += digest is None
        assert (digest or children.train(folder, epochs, kind)) == whole
    assert kills >= 25


# --- in one process --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("way", "at"),
    [
        *itertools.product(("batches", "Loader", "DataLoader"), (1, 7, 9, 10, 11, 25, 39)),
        ("persistent workers", 25),
    ],
)
def test_it_goes_on_from_any_step(tmp_path: Path, way: str, at: int) -> None:
    def go(folder: Path, **given: Any) -> Any:
        torch.manual_seed(0)
        data = TensorDataset(*points())
        train = {
            "batches": ready,
            "Loader": lambda: Loader(data, 24, executor="none"),
            "DataLoader": lambda: DataLoader(data, 24, shuffle=True),
            "persistent workers": lambda: DataLoader(
                data, 24, shuffle=True, num_workers=1, persistent_workers=True
            ),
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


@pytest.mark.parametrize("at", [3, 11, 17])
@pytest.mark.parametrize(
    "name",
    [
        "accumulation",
        "batch_size",
        "class_prior",
        "class_weights",
        "dropout_off",
        "focal",
        "loss_sampling",
        "lsuv",
        "muon",
        "progressive_resizing",
        "pruning",
        "quantization_aware",
        "repeat_factor",
        "schedule_free",
        "sequence_length",
        "sgd",
        "subset",
        "task_curriculum",
        "transfer",
    ],
)
def test_a_strategy_goes_on(tmp_path: Path, name: str, at: int) -> None:
    def go(folder: Path, **given: Any) -> Any:
        course = [] if name == "schedule_free" else [OneCycle(rate=0.03)]
        strategies = [made(name), *course]
        return fit(**suited(name), strategies=strategies, checkpoint=folder, every=0, **given)

    whole = go(tmp_path / "whole", epochs=3)
    with pytest.raises(KeyboardInterrupt):
        go(tmp_path / "cut", epochs=3, callbacks=[Stop(at)])
    again = go(tmp_path / "cut", epochs=3)
    assert same(dict(again.weights), dict(whole.weights))
    assert again.notes == whole.notes
    rows = [[(r.step, r.train_loss, r.metric, r.rate) for r in x.history] for x in (again, whole)]
    assert rows[0] == rows[1]


def test_a_checkpoint_of_another_model_is_told(tmp_path: Path) -> None:
    fit(checkpoint=tmp_path)
    with pytest.raises(DataError, match="of another training"):
        fit(checkpoint=tmp_path, model=torch.nn.Linear(8, 3))

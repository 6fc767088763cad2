"""Scripts that train more than once: one training is measured, and told as that."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from outpace.records.evidence import Evidence
from outpace.records.files import read_json, write_json
from outpace.records.run import Run
from outpace.tune.files import CONTESTS, EVIDENCE, LOSSES, STATUS, read, write
from outpace.tune.measuring import measure
from tests.conftest import evidence_of, outpace, with_entry
from tests.remedies.some_evidence import IMAGES

TWICE = """
    import sys, time
    import torch
    from torch.utils.data import DataLoader, Dataset

    first, second = map(int, sys.argv[1:])

    class Rows(Dataset):
        def __init__(self, wait):
            self.wait = wait
        def __len__(self):
            return 64
        def __getitem__(self, index):
            time.sleep(self.wait)
            return torch.full((16,), index / 64)

    torch.manual_seed(0)
    encoder, head = torch.nn.Linear(16, 8), torch.nn.Linear(8, 1)

    def pretrain(steps):
        optimizer = torch.optim.SGD(encoder.parameters(), 1e-6)
        for step in range(steps):
            (encoder(torch.ones(256, 16)).square().mean() + 100).backward()
            optimizer.step()
            optimizer.zero_grad()
            time.sleep(0.01)

    def finetune(epochs):
        optimizer = torch.optim.SGD(head.parameters(), 1e-6)
        for epoch in range(epochs):
            for x in DataLoader(Rows(0.001), batch_size=16, shuffle=True):
                with torch.no_grad():
                    x = encoder(x)
                head(x).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()

    pretrain(first)
    finetune(second)
    """


@pytest.mark.slow
def test_the_longer_one_of_two_is_measured(script: Callable[..., Path], tmp_path: Path) -> None:
    path = script(TWICE)
    words = ("--json", "--quiet", "--time", "6", "--session", str(tmp_path / "s"), str(path))
    done = outpace("diagnose", *words, "40", "100000", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["bound"], told["cause"]) == ("io", "storage")
    run = evidence_of(tmp_path / "s").run
    assert run.from_step == 40
    assert run.before_s > 0.4
    assert any("before step 40, of another training" in note for note in told["notes"])


THRICE = """
    import torch

    def first(model, optimizer, steps):
        for step in range(steps):
            model(torch.ones(64, 64)).mean().backward()
            optimizer.step()

    def second(model, optimizer, steps):
        for step in range(steps):
            model(torch.ones(64, 64)).mean().backward()
            optimizer.step()

    def third(model, optimizer, steps):
        for step in range(steps):
            model(torch.ones(64, 64)).mean().backward()
            optimizer.step()

    models = [torch.nn.Linear(64, 64) for _ in range(3)]
    optimizers = [torch.optim.SGD(model.parameters(), 1e-6) for model in models]
    """


def test_a_third_one_is_counted_from_the_scripts_begin(
    script: Callable[..., Path], tmp_path: Path
) -> None:
    path = script(
        THRICE
        + """
    for train, model, optimizer, steps in zip(
        (first, second, third), models, optimizers, (30, 40, 10_000_000)
    ):
        train(model, optimizer, steps)
    """
    )
    words = ("--json", "--quiet", "--steps", "60", "--session", str(tmp_path / "s"), str(path))
    done = outpace("diagnose", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    run = evidence_of(tmp_path / "s").run
    assert run.from_step == 70
    assert run.before_s > 0
    notes = json.loads(done.stdout)["notes"]
    assert any("before step 70, of another training" in note for note in notes)


@pytest.mark.slow
def test_trials_of_those_that_take_turns_are_not_cut_short(
    script: Callable[..., Path], tmp_path: Path
) -> None:
    path = script(
        THRICE
        + """
    for turn in range(10_000_000):
        first(models[0], optimizers[0], 12)
        second(models[1], optimizers[1], 12)
    """
    )
    words = ("--json", "--quiet", "--time", "90", "--session", str(tmp_path / "s"), str(path))
    done = outpace("tune", *words, "--recipe", str(tmp_path / "fast.toml"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert evidence_of(tmp_path / "s").run.mixes
    assert read(tmp_path / "s" / "trials" / STATUS)["another"] is None
    assert read(tmp_path / "s" / "trials" / STATUS)["stopped"]


@pytest.mark.slow
def test_a_training_that_is_named(script: Callable[..., Path], tmp_path: Path) -> None:
    """Though the one before it takes longer than the experiments."""
    path = script(TWICE)
    words = ("--json", "--quiet", "--time", "4", "--session", str(tmp_path / "s"))
    done = outpace("diagnose", *words, "--from", "500", str(path), "500", "100000", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["bound"] == "io"


def test_a_training_that_is_named_by_its_function(
    script: Callable[..., Path], tmp_path: Path
) -> None:
    """As the note on it says, where the first one takes longer than the experiments."""
    path = script(TWICE)
    words = ("--json", "--quiet", "--steps", "20", "--session", str(tmp_path / "s"))
    done = outpace("diagnose", *words, str(path), "2000", "100000", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (note,) = [note for note in json.loads(done.stdout)["notes"] if "--from finetune" in note]
    assert note.startswith("finetune (train.py:")
    assert evidence_of(tmp_path / "s").input.kind != "loader"
    words = (*words, "--from", "finetune", str(path), "30", "100000")
    done = outpace("diagnose", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    evidence = evidence_of(tmp_path / "s")
    assert (evidence.run.from_step, evidence.input.kind) == (30, "loader")


def test_a_function_that_does_not_train(script: Callable[..., Path], tmp_path: Path) -> None:
    words = ("--json", "--quiet", "--from", "fit", "--session", str(tmp_path / "s"))
    done = outpace("diagnose", *words, str(script(TWICE)), "5", "1", cwd=tmp_path)
    told = json.loads(done.stdout)
    assert told["outcome"] == "no training"
    said = "no optimizer of torch made a step within fit; they made some within pretrain, finetune"
    assert said in told["notes"]


def test_a_step_that_is_never_reached(script: Callable[..., Path], tmp_path: Path) -> None:
    path = script(TWICE)
    words = ("--json", "--quiet", "--time", "4", "--session", str(tmp_path / "s"))
    done = outpace("diagnose", *words, "--from", "500", str(path), "5", "1", cwd=tmp_path)
    told = json.loads(done.stdout)
    assert told["outcome"] == "no training"
    assert "the script's optimizers made 9 steps in all" in told["notes"]


def test_losses_and_times_are_of_that_training(script: Callable[..., Path], tmp_path: Path) -> None:
    """The recipe is at work before it too; so many steps are its own."""
    path, folder = script(TWICE), tmp_path / "s"
    code, printed = with_entry(
        path,
        folder,
        "outpace.tune.apply:begin",
        ("30", "10"),
        remedies=[],
        losses=True,
        stop_after=10,
        from_step=30,
    )
    assert code == 0, printed
    noted = read(folder / LOSSES)
    assert len(noted["values"]) == 10
    assert max(noted["values"]) < 100, "which the other one adds"


class Script:
    """Its trainings, by name, each of so many steps, which take a second each."""

    def __init__(self, folder: Path, **trainings: int) -> None:
        self.folder, self.trainings = folder, trainings
        self.begun: list[int] = []
        """the step that each run was watched from"""

    def launch(
        self, entry: str, spec: Mapping[str, Any], folder: Path, env: Mapping[str, str]
    ) -> int:
        """A run of it; each compares for at most five steps."""
        start = spec.get("from_step", 0)
        self.begun.append(-1 if spec.get("mixes") else start)
        begins = [0, *itertools.accumulate(self.trainings.values())]
        names, number = list(self.trainings), begins.index(start)
        steps = self.trainings[names[number]]
        before = read(folder / CONTESTS, {}).get("rounds", 0) if spec["again"] else 0
        rounds, long, last = min(before + steps, 100), steps >= 100, number == len(names) - 1
        run = Run(wall_s=float(steps), finished=last and not long, from_step=start)
        arm = msgspec.structs.replace(IMAGES.arms[0], rounds=rounds)
        write_json(folder / EVIDENCE, msgspec.structs.replace(IMAGES, run=run, arms=(arm,)))
        write(folder / CONTESTS, {"rounds": rounds, "complete": rounds == 100})
        another = None
        if not (last or long):
            here, following = (name.strip("_") for name in names[number : number + 2])
            another = {"after": begins[number + 1], "where": following, "before": here}
        write(folder / STATUS, {"another": another})
        return 0


def measured(folder: Path, **trainings: int) -> tuple[Script, Evidence, list[str]]:
    one = Script(folder, **trainings)
    found = measure(one.launch, {"time_s": 1000.0}, folder)
    assert found.evidence is not None
    assert read_json(folder / EVIDENCE, Evidence) == found.evidence
    return one, found.evidence, found.notes


def test_one_that_is_long_enough_is_measured_alone(tmp_path: Path) -> None:
    one, _, notes = measured(tmp_path, teacher=200, student=50)
    assert (one.begun, notes) == ([0], [])


def test_the_second_where_the_first_is_short(tmp_path: Path) -> None:
    one, evidence, notes = measured(tmp_path, teacher=20, student=200)
    assert (one.begun, evidence.run.from_step) == ([0, 20], 20)
    assert "before step 20" in notes[0]


def test_the_first_again_where_the_second_is_shorter(tmp_path: Path) -> None:
    """Until all is compared, with what was by then."""
    one, evidence, notes = measured(tmp_path, teacher=60, probe=7)
    assert (one.begun, evidence.run.from_step) == ([0, 60, 0], 0)
    assert notes == [
        "another training follows, at probe, of which nothing is told: --from 60 measures it"
    ]


def test_those_that_take_turns_are_one(tmp_path: Path) -> None:
    one, _, _ = measured(tmp_path, one=3, other=4, one_=3, other_=4)
    assert one.begun[:3] == [0, 3, -1]


def test_long_ones_that_come_back(tmp_path: Path) -> None:
    one, evidence, _ = measured(tmp_path, pretrain=30, finetune=50, pretrain_=30, finetune_=50)
    assert (one.begun, evidence.run.from_step) == ([0, 30, 30], 30)


def test_ctrl_c_leaves_what_is_known(tmp_path: Path) -> None:
    one = Script(tmp_path, teacher=20, student=200)

    def launch(entry: str, spec: Any, folder: Path, env: Any) -> int:
        if one.begun:
            raise KeyboardInterrupt
        return one.launch(entry, spec, folder, env)

    found = measure(launch, {"time_s": 1000.0}, tmp_path)
    assert found.exit_code == 130
    assert found.evidence is not None


@pytest.mark.slow
def test_a_recipe_for_the_longer_one(script: Callable[..., Path], tmp_path: Path) -> None:
    path = script(TWICE)
    done = outpace(
        *("tune", "--json", "--quiet", "--time", "60", "--session", str(tmp_path / "s")),
        *(str(path), "40", "100000"),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert any(t["accepted"] for t in told["trials"])
    assert told["proof"]["proven"]

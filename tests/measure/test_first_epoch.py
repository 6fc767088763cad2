"""A data set that keeps its samples: the first epoch does not stand for those after it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.conftest import evidence_of, with_entry

from outpace.measure.first_epoch import first_epoch, kept, parted, sooner
from outpace.plan.epochs import notes
from outpace.plan.forecast import finish
from outpace.seams.host import Step

MS = 10**6
KEEPS = """
    import time
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Kept(Dataset):
        def __init__(self):
            self.kept = {}
        def __len__(self):
            return 64
        def __getitem__(self, index):
            if index not in self.kept or not KEEPS:
                time.sleep(SECONDS)
                self.kept[index] = torch.ones(2)
            return self.kept[index]

    loader, judging = DataLoader(Kept(), batch_size=4), DataLoader(Kept(), batch_size=4)
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(200):
        model.train()
        for x in loader:
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            for x in judging:
                model(x)
"""


def step(wall: float, *, made: float, index: int = 5) -> Step:
    phases = {"input": round(made * MS), "forward": round((wall - made) * MS)}
    return Step(index, round(wall * MS), round(wall * MS), phases, 1, 8, clean=True)


def test_samples_are_kept_where_they_are_there_much_sooner_and_that_matters() -> None:
    assert kept(0.3, 0.001, 0.4)
    assert not kept(0.3, 0.15, 0.4)  # as of what lies in the processor's caches
    assert not kept(0.003, 0.0001, 0.4)


def test_steps_with_batches_that_are_there_sooner() -> None:
    (found,) = sooner([step(10.0, made=6.0)], 0.005)
    assert (found.wall, found.phases["input"]) == (5 * MS, 1 * MS)
    assert found.phases["forward"] == 4 * MS
    (none_left,) = sooner([step(10.0, made=6.0)], 1.0)
    assert (none_left.wall, none_left.phases["input"]) == (4 * MS, 0)


def test_what_the_first_epoch_takes_longer_comes_once() -> None:
    found = first_epoch([step(10.0, made=6.0)], [step(4.5, made=0.5)], 100)
    assert found is not None
    assert found.seconds(100) == found.seconds(10_000) == pytest.approx(100 * 5.5e-3)
    long = first_epoch([step(10.0, made=6.0)], [step(4.5, made=0.5)], 1000)
    assert long is not None
    assert long.seconds(100) == pytest.approx(100 * 5.5e-3)  # the training ends within that epoch
    assert first_epoch([step(4.6, made=0.6)], [step(4.5, made=0.5)], 100) is None
    assert first_epoch([], [step(4.5, made=0.5)], 100) is None


def test_the_epochs_of_a_whole_run_are_told_apart_where_samples_are_kept() -> None:
    made = [step(10.0, made=6.0, index=i) for i in range(8)]
    there = [step(4.5, made=0.5, index=i) for i in range(8, 16)]
    assert parted(made + there, 8) == (made, there)
    assert parted(made + there, None) == ([], made + there)
    assert parted(made + made, 8) == ([], made + made)


@pytest.mark.parametrize(
    ("keeps", "seconds"),
    [
        pytest.param(True, 0.02, id="seen"),
        pytest.param(True, 0.2, id="predicted", marks=pytest.mark.slow),
        pytest.param(False, 0.02, id="made anew", marks=pytest.mark.slow),
    ],
)
def test_the_whole_run_is_reckoned_by_later_epochs(
    keeps: bool, seconds: float, script: Callable[[str], Path], tmp_path: Path
) -> None:
    """200 epochs of 64 samples, and as many to judge by: made anew each time they take 512 s, or 5120 s."""
    path = script(KEEPS.replace("not KEEPS", f"not {keeps}").replace("SECONDS", str(seconds)))
    code, text = with_entry(
        path, tmp_path / "session", "outpace.tune.experiment:begin", time_s=12.0
    )
    assert code == 0, text
    evidence = evidence_of(tmp_path / "session")
    found, anew = finish(evidence), 200 * 2 * 64 * seconds
    if not keeps:
        assert found.estimate > 0.8 * anew
        return
    assert 64 * seconds < found.estimate < 0.25 * anew
    assert any("are made in the first epoch and kept" in note for note in notes(evidence, 3200))

"""Two processes try what "auto" thinks of together: as one would with their batches, and in its time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.train.launching import launch

TEXT = """
import json, sys
import torch
from torch import distributed
from torch.nn import functional as F
from torch.utils.data import TensorDataset
from outpace.serve.loader import Loader
from outpace.train import choose, ranks
from outpace.train.candidates import Candidate
from outpace.train.facts import Facts
from outpace.train.strategies import lr_finder
from outpace.train.rate import Found
from outpace.train.trainer import Trainer
from tests.train.toys import Time, model, points

folder, given = sys.argv[1], json.loads(sys.argv[2])
torch.set_num_threads(1)
world, time = ranks.met(torch.device("cpu")), Time()
rank = ranks.number()
# What each finds alone is another rate on each, of which the middle is taken.
found = 3e-4 * (10.0 ** (2 * rank - 1) if world > 1 else 1.0)
lr_finder.suggestion = lambda *_, **__: Found(found, found, found)
# So is what each sees of its data.
choose.facts_of = lambda *_: Facts(dropout=float(rank))
speaks = lambda facts: None if facts.dropout else "planted"
choose.CANDIDATES = (Candidate("lsuv", speaks, begins=True),)
def loss(outputs, targets):
    time.s += (1.0 if torch.is_grad_enabled() else 1 / 3) * (1 + 4 * rank)
    return F.cross_entropy(outputs, targets)
class Begun:
    def begin(self, run):
        self.told, self.passed = run.clock.read(), time.s - 100.0
begun = Begun()
result = Trainer(
    model(),
    loss=loss, device="cpu", callbacks=[begun], now=time, strategies="auto",
    train=Loader(TensorDataset(*points()), 24 // world, executor="none"),
    valid=Loader(TensorDataset(*points(120, 1)), 24 // world, executor="none", shuffle=False),
    epochs=given.get("epochs"), budget=given.get("budget"),
).fit(quiet=True)
weights = {k: v.double().sum().item() for k, v in result.weights.items()}
told = {**result.told(), "weights": weights, "told": begun.told, "passed": begun.passed}
open(f"{folder}/{rank}.json", "w").write(json.dumps(told))
if distributed.is_initialized():
    distributed.destroy_process_group()
"""


def trained(torchrun: list[str], folder: Path, world: int, **given: Any) -> list[dict[str, Any]]:
    folder.mkdir(parents=True)
    (folder / "train.py").write_text(TEXT)
    launch(torchrun, world, folder / "train.py", folder, json.dumps(given))
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(world)]


@pytest.mark.slow
def test_ranks_choose_what_one_process_does_with_their_batches(
    tmp_path: Path, torchrun: list[str]
) -> None:
    one, other = trained(torchrun, tmp_path / "two", 2, epochs=300)
    (alone,) = trained(torchrun, tmp_path / "one", 1, epochs=300)
    for part in ("weights", "notes", "tried"):
        assert one[part] == other[part]
    assert any(each["verdict"] == "better" for each in one["tried"])
    for mine, its in zip(one["tried"], alone["tried"], strict=True):
        for part in ("what", "against", "verdict", "seeds", "steps", "why"):
            assert mine[part] == its[part]
        # lsuv looks at one batch, of which a rank has but half.
        exactly = mine["what"] != "lsuv"
        assert mine["cost"] == pytest.approx(its["cost"], rel=1e-3 if exactly else 0.1)
    assert any(each["what"] == "lsuv" for each in one["tried"])


@pytest.mark.slow
def test_trials_are_paid_once_by_the_first_rank_s_clock(
    tmp_path: Path, torchrun: list[str]
) -> None:
    one, other = trained(torchrun, tmp_path / "budget", 2, budget=4000)
    for part in ("weights", "notes", "tried", "steps", "told"):
        assert one[part] == other[part]
    assert one["tried"]
    assert one["told"] == pytest.approx(one["passed"])
    assert 0.03 * 4000 < one["told"] < 0.16 * 4000
    assert 0.98 * 4000 < one["seconds"] <= 4000

"""Weights that the loss does not reach: ranks train all the same, and looking for them leaves no trace."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from outpace.measure.generators import random_states
from outpace.serve.loader import Loader
from outpace.train.data import Batches
from outpace.train.objective import Objective
from outpace.train.unreached import of_batch
from tests.train.launching import launch
from tests.train.toys import model, points, ready, same

CPU = torch.device("cpu")


class Spare(nn.Module):
    """Two layers that no output comes of, one of which is frozen, and a buffer that is made anew."""

    count: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.inner = model(dropout=0.2, norm=True)
        self.spare = nn.Linear(8, 3)
        self.frozen = nn.Linear(8, 3).requires_grad_(False)
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count = self.count + 1
        found: torch.Tensor = self.inner(x)
        return found


def test_they_are_named() -> None:
    net = Spare()
    train = Batches(ready(), CPU)
    assert of_batch(net, Objective(F.cross_entropy), train) == ["spare.weight", "spare.bias"]
    assert of_batch(model(), Objective(F.cross_entropy), train) == []

    def closes(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(outputs, targets) + net.spare.weight.square().sum()

    assert of_batch(net, Objective(closes), train) == ["spare.bias"]


@pytest.mark.parametrize("way", ["batches", "Loader", "DataLoader"])
def test_looking_leaves_all_as_it_was(way: str) -> None:
    data = TensorDataset(*points())
    source = {
        "batches": ready(),
        "Loader": Loader(data, 24, executor="none"),
        "DataLoader": DataLoader(data, 24, shuffle=True),
    }[way]
    net, train = Spare(), Batches(source, CPU)
    net.inner[0].weight.grad = torch.ones(16, 8)
    told: list[Any] = []
    net.inner[0].weight.register_post_accumulate_grad_hook(told.append)

    def state() -> Any:
        return copy.deepcopy(
            {
                "model": dict(net.state_dict()),
                "random": random_states(),
                "data": {k: v for k, v in train.state_dict().items() if k != "again"},
                "training": [m.training for m in net.modules()],
                "gradients": [p.grad is None for p in net.parameters()],
            }
        )

    before = state()
    assert len(of_batch(net, Objective(F.cross_entropy), train)) == 2
    assert same(state(), before)
    assert not told


TEXT = """
import json, sys
import torch
from torch import distributed
from torch.nn import functional as F
from torch.utils.data import TensorDataset
from outpace.serve.loader import Loader
from outpace.train.strategies import BatchSize, OneCycle
from outpace.train.trainer import Trainer
from tests.train.test_unreached import Spare
from tests.train.toys import model, points

folder, given = sys.argv[1], json.loads(sys.argv[2])
torch.set_num_threads(1)
ways = {"auto": "auto", "twin": [BatchSize(), OneCycle(rate=0.03)], "plain": [OneCycle(rate=0.03)]}
result = Trainer(
    Spare() if given["spare"] else model(),
    loss=F.cross_entropy, device="cpu", strategies=ways[given["way"]], epochs=given["epochs"],
    train=Loader(TensorDataset(*points(given["samples"])), 12, executor="none"),
).fit(quiet=True)
rank = distributed.get_rank()
weights = {k: v.double().sum().item() for k, v in result.weights.items() if "running" not in k}
open(f"{folder}/{rank}.json", "w").write(json.dumps({**result.told(), "weights": weights}))
distributed.destroy_process_group()
"""


def trained(torchrun: list[str], folder: Path, **given: Any) -> list[dict[str, Any]]:
    folder.mkdir(parents=True)
    (folder / "train.py").write_text(TEXT)
    given = {"spare": True, "epochs": 3, "samples": 240, **given}
    launch(torchrun, 2, folder / "train.py", folder, json.dumps(given))
    return [json.loads(path.read_text()) for path in sorted(folder.glob("?.json"))]


@pytest.mark.slow
@pytest.mark.parametrize(
    "given",
    [
        {"way": "plain"},
        {"way": "twin", "samples": 4800},
        {"way": "auto", "epochs": 300},
    ],
    ids=["plain", "twin", "auto"],
)
def test_ranks_train_all_the_same(
    given: dict[str, Any], tmp_path: Path, torchrun: list[str]
) -> None:
    one, two = trained(torchrun, tmp_path / "two", **given)
    assert one["weights"] == two["weights"]
    assert one["notes"] == two["notes"]
    said = "\n".join(one["notes"])
    assert "spare.bias, spare.weight: the loss of the first batch gives them no gradient" in said
    assert "nothing more is tried" not in said
    assert bool(one["tried"]) == (given["way"] == "auto")


@pytest.mark.slow
def test_where_all_are_reached_nothing_is_looked_for(tmp_path: Path, torchrun: list[str]) -> None:
    one, _ = trained(torchrun, tmp_path / "two", way="plain", spare=False)
    assert not any("no gradient" in note for note in one["notes"])

"""Two processes that have a part of the weights each end as two that have all of them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from outpace.errors import UsageError
from outpace.train.sharding import Shards, units
from outpace.train.strategies import STRATEGIES, Accumulation, BatchWarmup
from outpace.train.strategies.base import check
from tests.conftest import ROOT
from tests.train.launching import launch
from tests.train.sharded import wide
from tests.train.toys import fit, model, same

Told = dict[str, dict[str, Any]]
ALIKE = (
    "plain",
    "ema",
    "schedule_free",
    "pruning",
    "transfer",
    "lsuv",
    "class_prior",
    "together",
    "spoilt",
)
"""end as without shards, but for rounding"""
COARSE = {"muon": 1e-2, "task_curriculum": 1e-4}
"""by how much others may differ: Muon multiplies in bf16"""
EXACT = ("ema", "schedule_free", "pruning", "muon", "spoilt")
"""go on in the middle of an epoch as if they had not been interrupted"""


def launched(
    torchrun: list[str], folder: Path, cases: dict[str, dict[str, Any]], world: int = 2
) -> Told:
    """What each case ended with on the first rank; the second ends with the same weights."""
    launch(torchrun, world, ROOT / "tests/train/sharded.py", folder, json.dumps(cases))
    told = [
        {name: json.loads((folder / f"{name}-{rank}.json").read_text()) for name in cases}
        for rank in range(world)
    ]
    for name in cases:
        for part in ("weights", "notes", "norms"):
            assert told[0][name].get(part) == told[-1][name].get(part), (name, part)
    return told[0]


def apart(one: dict[str, Any], other: dict[str, Any]) -> float:
    """The largest difference between weights."""
    return max(
        float((torch.tensor(values) - torch.tensor(other["weights"][name])).abs().max())
        for name, values in one["weights"].items()
    )


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Callable[[list[str]], Told]:
    """All trainings of two ranks, made once."""
    found: Told = {}

    def make(torchrun: list[str]) -> Told:
        if not found:
            cases: dict[str, dict[str, Any]] = {}
            for name in (*ALIKE, *COARSE):
                given = {"name": name, "epochs": 8 if name == "spoilt" else 4}
                cases[f"{name}.ddp"] = {**given, "shard": False}
                cases[name] = {**given, "shard": True}
            for name in EXACT:
                cut = {**cases[name], "checkpoint": name}
                cases[f"{name}.cut"] = {**cut, "stop": 27}
                cases[f"{name}.again"] = cut
            batches = {"norm": True, "uneven": True}
            cases["norm.ddp"] = {"shard": False, **batches}
            cases["norm"] = {"shard": True, **batches}
            cases["rate"] = {"shard": True, "name": "lr_finder", "epochs": 40}
            cases["refused"] = {"shard": True, "name": "batch_size"}
            found.update(launched(torchrun, tmp_path_factory.mktemp("told"), cases))
        return found

    return make


@pytest.mark.slow
def test_shards_end_as_whole_weights_do(
    torchrun: list[str], told: Callable[[list[str]], Told]
) -> None:
    found = told(torchrun)
    for name in (*ALIKE, *COARSE, "norm"):
        one, other = found[name], found[f"{name}.ddp"]
        assert apart(one, other) < COARSE.get(name, 1e-5), name
        assert one["metric"] == pytest.approx(other["metric"], abs=1e-5)
        rel = 1e-2 if name in COARSE else 1e-4
        assert one["norms"] == pytest.approx(other["norms"], rel=rel, nan_ok=True)
        assert one["held"] < 0.51 * other["held"]
    assert "step 64" in found["spoilt"]["notes"][-1]
    assert found["pruning"]["notes"] == found["pruning.ddp"]["notes"]


@pytest.mark.slow
def test_shards_go_on_in_the_middle_of_an_epoch_exactly(
    torchrun: list[str], told: Callable[[list[str]], Told]
) -> None:
    found = told(torchrun)
    for name in EXACT:
        cut, again, whole = found[f"{name}.cut"], found[f"{name}.again"], found[name]
        assert cut["stopped"] == "by hand"
        assert 0 < len(again["norms"]) < len(whole["norms"]), "it did not go on"
        assert same(again["norms"], whole["norms"][-len(again["norms"]) :])
        assert apart(again, whole) == 0.0, name


@pytest.mark.slow
def test_ranks_in_step_find_one_rate_and_what_needs_whole_weights_is_refused(
    torchrun: list[str], told: Callable[[list[str]], Told]
) -> None:
    found = told(torchrun)
    note = next(note for note in found["rate"]["notes"] if note.startswith("lr_finder"))
    assert "rate 0.00" in note
    assert found["rate"]["metric"] > 0.9
    assert "batch_size does not go with shard=True: it tries" in found["refused"]["refused"]


@pytest.mark.slow
def test_shards_go_on_with_other_ranks_and_without_shards(
    tmp_path: Path, torchrun: list[str]
) -> None:
    given: dict[str, Any] = {"shard": True, "name": "ema"}
    two = launched(
        torchrun,
        tmp_path,
        {
            "two": given,
            "two.cut": {**given, "checkpoint": "from-two", "stop": 17},
            "ddp.cut": {**given, "shard": False, "checkpoint": "from-ddp", "stop": 17},
            "ddp.on": {**given, "checkpoint": "from-ddp"},
        },
    )
    state = torch.load(tmp_path / "from-two" / max(os.listdir(tmp_path / "from-two")))
    shapes = {name: weight.shape for name, weight in wide().state_dict().items()}
    assert {name: weight.shape for name, weight in state["model"].items()} == shapes
    assert all(type(weight) is torch.Tensor for weight in state["model"].values())
    one = launched(
        torchrun,
        tmp_path,
        {
            "one.on": {**given, "checkpoint": "from-two"},
            "one.cut": {**given, "checkpoint": "from-one", "stop": 17},
        },
        world=1,
    )
    more = launched(torchrun, tmp_path, {"two.on": {**given, "checkpoint": "from-one"}})
    for again in (two["ddp.on"], one["one.on"], more["two.on"]):
        assert 20 < len(again["norms"]) < 40
        assert apart(again, two["two"]) < 1e-5
    seen = sorted(sample for step, *some in one["one.on"]["seen"] if step >= 20 for sample in some)
    assert seen == sorted([*range(240)] * 2)


def test_layers_of_lists_are_gathered_alone_where_they_are_large_and_share_nothing() -> None:
    found = wide()
    assert units(found) == [found[2]]
    assert units(model()) == []
    tied = nn.ModuleDict({"in": nn.Linear(400, 400), "out": nn.Linear(400, 400)})
    tied["out"].weight = tied["in"].weight
    assert units(tied) == []


@pytest.mark.parametrize(
    "strategy",
    [
        STRATEGIES["batch_size"](),
        STRATEGIES["quantization_aware"](),
        Accumulation(),
        BatchWarmup("noise"),
    ],
)
def test_what_needs_whole_weights_is_refused_with_a_reason(strategy: Any) -> None:
    check([strategy], validation=True, end=True)
    with pytest.raises(UsageError, match="does not go with shard=True: "):
        check([strategy], validation=True, end=True, sharded=True)
    check([Accumulation(4), BatchWarmup("clock")], validation=True, end=True, sharded=True)


def test_one_process_shards_nothing() -> None:
    assert same(fit(shard=True).weights, fit().weights)


def test_numbers_of_numpy_are_gathered_as_numbers() -> None:
    """torch reads none of numpy's back from a file."""
    array = np.ones(3)
    found = Shards.__new__(Shards).gathered({"decay": np.float64(0.1), "array": array})
    assert type(found["decay"]) is float
    assert found["array"] is not array

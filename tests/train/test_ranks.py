"""Two processes that train together."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import pytest

from tests.train.launching import launch

TEXT = """
import json, sys
import torch
from torch import distributed
from torch.nn import functional as F
from torch.utils.data import TensorDataset
from outpace.serve.loader import Loader
from outpace.train import ranks
from outpace.train.strategies import (
    Accumulation, BatchSize, BatchWarmup, ClassPrior, ClassWeights, Divergence, LossSampling, LrFinder,
    Lsuv, Muon, OneCycle, RepeatFactor, TaskCurriculum, Transfer,
)
from outpace.train.trainer import Trainer
from tests.train.toys import accuracy, deep, model, points, size_loss

folder, given = sys.argv[1], json.loads(sys.argv[2])
torch.set_num_threads(1)
if ranks.met(torch.device("cpu")) == 1:
    distributed.init_process_group("gloo")
class Stop:
    def begin(self, run):
        self.began = run.step
    def batch(self, run, batch):
        with open(f"{folder}/seen-{run.world}-{distributed.get_rank()}.txt", "a") as file:
            print(run.step, *run.train.source.indices.tolist(), file=file)
    def step_end(self, run):
        if run.step == given.get("wish") and distributed.get_rank() == 1:
            run.stop("enough")
        if run.step == given.get("stop"):
            run.checkpoints and run.checkpoints.wait()
            distributed.barrier()  # one that is gone has the other abort
            distributed.destroy_process_group()
            raise SystemExit(0)
rate = [LrFinder(), OneCycle()] if "rate" in given else [OneCycle(rate=0.03)]
other = {name: weight for name, weight in model(seed=5).state_dict().items() if name[0] == "0"}
more = {
    "first": [RepeatFactor(0.5), Lsuv(), ClassPrior()],
    "transfer": [Transfer(other)],
    "batch": [BatchSize(), Accumulation()],
    "together": [Accumulation(given.get("together"))],
    "sampling": [LossSampling(), Muon()],
    "weights": [ClassWeights()],
    "clock": [BatchWarmup("clock")],
    "noise": [BatchWarmup("noise")],
    "tasks": [TaskCurriculum()],
}
more = more.get(given.get("more"), [])
both = {"class": F.cross_entropy, "size": size_loss}
result = Trainer(
    deep() if given.get("more") == "sampling" else model(),
    loss=both if given.get("more") == "tasks" else F.cross_entropy,
    metric=accuracy, device="cpu", callbacks=[stop := Stop()],
    train=Loader(TensorDataset(*points(given.get("samples", 240))), given.get("size", 12), executor="none"),
    valid=Loader(TensorDataset(*points(120, 1)), 12, executor="none", shuffle=False),
    strategies=[Divergence(), *rate, *more], checkpoint=folder + "/checkpoints", every=0,
    epochs=given.get("epochs"), budget=given.get("budget"),
).fit(quiet=True)
rank = distributed.get_rank()
weights = {k: v.double().sum().item() for k, v in result.weights.items()}
told = {**result.told(), "weights": weights, "began": stop.began}
open(f"{folder}/{rank}.json", "w").write(json.dumps(told))
distributed.destroy_process_group()
"""


def together(
    torchrun: list[str], folder: Path, world: int = 2, **given: object
) -> list[dict[str, object]]:
    folder.mkdir(exist_ok=True)
    script = folder / "train.py"
    script.write_text(textwrap.dedent(TEXT))
    launch(torchrun, world, script, folder, json.dumps(given))
    return [json.loads(p.read_text()) for p in sorted(folder.glob("*.json"))]


@pytest.mark.slow
def test_ranks_agree_and_go_on(tmp_path: Path, torchrun: list[str]) -> None:
    one, two = together(torchrun, tmp_path / "whole", epochs=6)
    assert one["weights"] == two["weights"]
    assert one["steps"] == 60
    assert isinstance(one["metric"], float)
    assert one["metric"] > 0.8
    together(torchrun, tmp_path / "cut", epochs=6, stop=37)
    again, _ = together(torchrun, tmp_path / "cut", epochs=6)
    assert again["weights"] == one["weights"]
    assert again["began"] in range(1, 38)


def seen(folder: Path, world: int) -> list[tuple[int, list[int]]]:
    """Steps done before, and samples of a batch, in the order in which ranks have drawn them."""
    rows = []
    for path in folder.glob(f"seen-{world}-*.txt"):
        for line in path.read_text().splitlines():
            step, *samples = map(int, line.split())
            rows.append((step, samples))
    return sorted(rows)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "after", "stop"), [((2, 12), (1, 10), 4), ((1, 10), (2, 14), 7)]
)
def test_as_other_ranks_it_goes_on_and_no_sample_is_lost_or_repeated(
    tmp_path: Path,
    torchrun: list[str],
    before: tuple[int, int],
    after: tuple[int, int],
    stop: int,
) -> None:
    for (world, size), given in ((before, {"stop": stop}), (after, {})):
        told = together(torchrun, tmp_path, world, epochs=2, size=size, **given)
    later = seen(tmp_path, after[0])
    first = later[0][0]
    assert 1 <= first < stop
    drawn = [row for row in seen(tmp_path, before[0]) if row[0] < first] + later
    samples = [sample for _, batch in drawn for sample in batch]
    assert sorted(samples[:240]) == sorted(samples[240:]) == list(range(240))
    assert told[0]["epochs"] == 2


@pytest.mark.slow
def test_ranks_end_at_the_same_step(tmp_path: Path, torchrun: list[str]) -> None:
    one, two = together(torchrun, tmp_path / "budget", budget=3.0)
    assert one["stopped"] == two["stopped"] == "budget"
    assert one["steps"] == two["steps"]
    assert one["weights"] == two["weights"]


@pytest.mark.slow
def test_where_one_rank_is_to_end_all_do(tmp_path: Path, torchrun: list[str]) -> None:
    one, two = together(torchrun, tmp_path / "wish", epochs=3, wish=7)
    assert (one["stopped"], two["stopped"]) == ("another rank", "enough")
    assert one["steps"] == two["steps"] == 8
    assert one["weights"] == two["weights"]


@pytest.mark.slow
def test_ranks_find_one_rate(tmp_path: Path, torchrun: list[str]) -> None:
    one, two = together(torchrun, tmp_path / "rate", epochs=40, rate="found")
    assert one["weights"] == two["weights"]
    assert "lr_finder: rate" in str(one["notes"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "epochs", "stop"),
    [
        ("first", 3, 7),
        ("transfer", 3, 7),
        ("sampling", 4, 27),
        ("weights", 3, 7),
        ("tasks", 15, 27),
    ],
)
def test_ranks_begin_alike_and_go_on(
    tmp_path: Path, torchrun: list[str], more: str, epochs: int, stop: int
) -> None:
    one, two = together(torchrun, tmp_path / "whole", epochs=epochs, more=more)
    assert one["weights"] == two["weights"]
    assert one["notes"] == two["notes"]
    assert isinstance(one["metric"], float)
    assert one["metric"] > 0.5
    together(torchrun, tmp_path / "cut", epochs=epochs, stop=stop, more=more)
    again, _ = together(torchrun, tmp_path / "cut", epochs=epochs, more=more)
    assert again["weights"] == one["weights"]
    assert again["began"] in range(1, stop + 1)


@pytest.mark.slow
@pytest.mark.parametrize(("by", "stop"), [("clock", 75), ("noise", 67)])
def test_ranks_double_their_batches_at_the_same_step(
    tmp_path: Path, torchrun: list[str], by: str, stop: int
) -> None:
    one, two = together(torchrun, tmp_path / "whole", epochs=3, more=by)
    assert one["weights"] == two["weights"]
    assert one["notes"] == two["notes"]
    assert "batch_warmup: 3 samples from step" in str(one["notes"])
    rows = seen(tmp_path / "whole", 2)
    assert {len(batch) for _, batch in rows} >= {1, 3}
    samples = [sample for _, batch in rows for sample in batch]
    for epoch in range(3):
        assert sorted(samples[240 * epoch : 240 * (epoch + 1)]) == list(range(240))
    together(torchrun, tmp_path / "cut", epochs=3, more=by, stop=stop)
    again, _ = together(torchrun, tmp_path / "cut", epochs=3, more=by)
    assert (again["weights"], again["notes"]) == (one["weights"], one["notes"])
    assert again["began"] in range(1, stop + 1)


@pytest.mark.slow
def test_ranks_find_one_size_and_go_on_with_it(tmp_path: Path, torchrun: list[str]) -> None:
    given = {"epochs": 2, "more": "batch", "samples": 4800, "size": 8}
    one, two = together(torchrun, tmp_path / "whole", **given)
    assert one["weights"] == two["weights"]
    assert one["notes"] == two["notes"]
    assert isinstance(one["notes"], list)
    said = next(note for note in one["notes"] if "batch_size" in note)
    assert "a step takes" in said
    together(torchrun, tmp_path / "cut", **given, stop=7)
    again, other = together(torchrun, tmp_path / "cut", **given)
    assert again["weights"] == other["weights"]
    assert again["steps"] == other["steps"]
    assert again["began"] in range(1, 8)


@pytest.mark.slow
def test_ranks_exchange_what_was_added_up(tmp_path: Path, torchrun: list[str]) -> None:
    """As much as from one batch of all."""
    one, two = together(torchrun, tmp_path / "parts", epochs=3, more="together", together=3, size=4)
    whole, _ = together(torchrun, tmp_path / "whole", epochs=3, size=12)
    assert one["weights"] == two["weights"]
    assert one["steps"] == whole["steps"] == 30
    assert one["weights"] == pytest.approx(whole["weights"], rel=1e-4, abs=1e-4)

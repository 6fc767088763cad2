"""What each of two processes has for itself, its voice, device and random numbers, and what they share."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from outpace.errors import UsageError
from outpace.serve.loader import Loader
from outpace.train import ranks
from outpace.train.data import Batches
from outpace.train.seeds import best_of
from tests.train.launching import launch
from tests.train.toys import points, ready, trainer

TEXT = """
import json, os, sys
import torch
from torch import distributed
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
from outpace.train.strategies import OneCycle
from outpace.train.trainer import Trainer
from tests.train.toys import model, points

folder, given = sys.argv[1], json.loads(sys.argv[2])
rank = int(os.environ["RANK"])
torch.set_num_threads(1)
sys.stderr = open(f"{folder}/said-{rank}.txt", "w")
net = model()
torch.manual_seed(rank)
class Stop:
    def step_end(self, run):
        if run.step == given.get("stop"):
            run.checkpoints.wait()
            distributed.barrier()  # one that is gone has the other abort
            distributed.destroy_process_group()
            raise SystemExit(0)
result = Trainer(
    net, loss=F.cross_entropy, device="cpu", callbacks=[Stop()], seed=None,
    train=DataLoader(TensorDataset(*points()), 24, shuffle=True),
    valid=DataLoader(TensorDataset(*points(120, 1)), 24),
    strategies=[OneCycle(rate=0.03)], checkpoint=folder + "/checkpoints", every=0, epochs=2,
).fit()
losses = [row.train_loss for row in result.history]
weights = {k: v.double().sum().item() for k, v in result.weights.items()}
open(f"{folder}/{rank}.json", "w").write(json.dumps({"losses": losses, "weights": weights}))
distributed.destroy_process_group()
"""


def together(torchrun: list[str], folder: Path, **given: object) -> list[Any]:
    """What both ended with; each draws its batches by its own generators."""
    folder.mkdir(exist_ok=True)
    script = folder / "train.py"
    script.write_text(TEXT)
    launch(torchrun, 2, script, folder, json.dumps(given))
    return [json.loads(path.read_text()) for path in sorted(folder.glob("?.json"))]


@pytest.mark.slow
@pytest.mark.parametrize("stop", [4, 14])
def test_each_goes_on_with_its_own_batches_and_one_speaks(
    tmp_path: Path, torchrun: list[str], stop: int
) -> None:
    whole = together(torchrun, tmp_path / "whole")
    assert "ended by epochs" in (tmp_path / "whole" / "said-0.txt").read_text()
    assert "outpace" not in (tmp_path / "whole" / "said-1.txt").read_text()
    together(torchrun, tmp_path / "cut", stop=stop)
    one, two = whole
    again, other = together(torchrun, tmp_path / "cut")
    assert again == one
    assert other["weights"] == two["weights"]
    assert one["weights"] == two["weights"]
    assert one["losses"] != two["losses"]


OWN = """
import json, os, sys
import torch
from torch import distributed, nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset
from outpace.errors import DataError
from outpace.serve.loader import Loader
from outpace.train.strategies import Lsuv, OneCycle
from outpace.train.trainer import Trainer
from tests.train.test_resume import Centred
from tests.train.toys import deep, points

folder, rank = sys.argv[1], int(os.environ["RANK"])
torch.set_num_threads(1)
told = {}
class First:
    def begin(self, run):
        told["weights"] = {k: v.double().sum().item() for k, v in run.module.state_dict().items()}
        told["drawn"] = torch.rand(3).tolist()

os.makedirs(f"{folder}/disk-{rank}")
os.chdir(f"{folder}/disk-{rank}")

def train():
    net, loss = deep(), Centred()
    with torch.no_grad():
        loss.scale += rank
    Trainer(
        net, loss=loss, device="cpu", callbacks=[First()],
        optimizer=torch.optim.AdamW([*net.parameters(), *loss.parameters()], 0.02),
        train=Loader(TensorDataset(*points()), 12, executor="none"),
        strategies=[Lsuv(), OneCycle()], epochs=2, checkpoint="checkpoints",
    ).fit(quiet=True)
    return loss

loss = train()
told["loss"] = {k: v.tolist() for k, v in loss.state_dict().items()}
try:
    train()
except DataError as error:
    told["said"] = str(error)
open(f"{folder}/{rank}.json", "w").write(json.dumps(told))
distributed.destroy_process_group()
"""


@pytest.mark.slow
def test_ranks_share_the_loss_and_the_checkpoint_and_draw_numbers_of_their_own(
    tmp_path: Path, torchrun: list[str]
) -> None:
    script = tmp_path / "train.py"
    script.write_text(OWN)
    launch(torchrun, 2, script, tmp_path)
    one, two = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1))
    assert one["loss"] == two["loss"]
    assert one["loss"]["scale"] != 1.0
    assert one["weights"] == two["weights"]
    assert one["drawn"] != two["drawn"]
    assert one["said"] == two["said"]
    assert "cannot be read by rank 1" in one["said"]


def test_a_loader_made_before_ranks_meet_has_its_part_of_each_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = TensorDataset(*points())
    own, given = Loader(data, 12), Loader(data, 12, rank=0, world=3)
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 1)
    trainer(train=own, valid=given).data()
    assert (own.rank, own.world, len(own)) == (1, 2, 10)
    assert (given.rank, given.world) == (0, 3)


@pytest.mark.parametrize(
    ("asked", "rank", "has"),
    [
        ("cuda", "2", "cuda:2"),
        ("cuda", None, "cuda"),
        ("cuda:1", "2", "cuda:1"),
        ("cpu", "2", "cpu"),
    ],
)
def test_a_rank_has_a_gpu_of_its_own_unless_one_is_named(
    monkeypatch: pytest.MonkeyPatch, asked: str, rank: str | None, has: str
) -> None:
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    if rank is not None:
        monkeypatch.setenv("LOCAL_RANK", rank)
    assert str(ranks.of_rank(torch.device(asked))) == has


def test_whether_ranks_share_the_samples_is_seen() -> None:
    data = TensorDataset(*points())
    sampler = DistributedSampler(data, num_replicas=2, rank=0)
    cpu = torch.device("cpu")
    assert Batches(DataLoader(data, 12, sampler=sampler), cpu).shared
    assert Batches(Loader(data, 12), cpu).shared
    assert not Batches(DataLoader(data, 12, shuffle=True), cpu).shared
    assert not Batches(ready(), cpu).shared


def test_several_seeds_are_for_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UsageError, match="a launcher has started several"):
        best_of(lambda seed: trainer(seed=seed), seeds=2)


OTHERS = """
import json, os, sys
import torch
from torch import distributed
from torch.nn import functional as F
from outpace.errors import UsageError
from outpace.train import ranks
from outpace.train.strategies import ClassPrior, Constant
from outpace.train.trainer import Trainer
from tests.train.toys import Stop, model, ready

folder, rank = sys.argv[1], int(os.environ["RANK"])
torch.set_num_threads(1)
ranks.met(torch.device("cpu"))
told = {}

class Stream:
    "Batches of this rank's, as many as it has: nobody is told how many."
    def __init__(self, count):
        self.count, self.at, self.first = count, 0, 0
    def __iter__(self):
        self.at, self.first = self.first, 0
        while self.at < self.count:
            self.at += 1
            yield ready()[self.at % 10]
    def state_dict(self):
        return {"at": self.at, "of": rank}
    def load_state_dict(self, state):
        told.setdefault("of", state["of"])
        self.first = state["at"]

class Late:
    "Has the first layer learn from the second epoch on."
    def epoch_begin(self, run):
        run.module[0].requires_grad_(run.epoch > 0)

class Plain:
    "The same, and nobody can go on with them."
    def __init__(self, count):
        self.batches = [ready()[i % 10] for i in range(count)]
    def __iter__(self):
        return iter(self.batches)

def train(source, *callbacks, epochs=3, before=(), **more):
    net = model()
    net[0].requires_grad_(False)
    return Trainer(
        net, loss=F.cross_entropy, device="cpu", callbacks=callbacks, seed=1, train=source,
        batch_size=None, optimizer=torch.optim.SGD(net.parameters(), 0.05), strategies=[*before, Constant()],
        epochs=epochs, **more,
    ).fit(quiet=True)

try:
    train(ready()[:6 + rank])
except UsageError as error:
    told["unequal"] = error.message
found = train(Stream(6 + rank), Late())
told["steps"] = found.steps
told["looked"] = train(Plain(6 + rank), before=[ClassPrior()]).steps
told["weights"] = {name: each.double().sum().item() for name, each in found.weights.items()}
try:
    train(Stream(6), Stop(4), checkpoint=folder + "/checkpoints", every=0, epochs=1)
except KeyboardInterrupt:
    distributed.barrier()
train(Stream(6), checkpoint=folder + "/checkpoints", every=0, epochs=1)
open(f"{folder}/{rank}.json", "w").write(json.dumps(told))
distributed.destroy_process_group()
os._exit(0)  # at a usual exit a thread of torch's may abort
"""


def test_ranks_step_together_whatever_each_has(tmp_path: Path, torchrun: list[str]) -> None:
    """Batches of other numbers, weights that are learnt later, and streams in places of their own."""
    script = tmp_path / "train.py"
    script.write_text(OTHERS)
    launch(torchrun, 2, script, tmp_path)
    one, two = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    assert one["unequal"] == two["unequal"]
    assert "have 6 and 7 of them an epoch" in one["unequal"]
    assert one["steps"] == two["steps"] == 18
    assert one["looked"] == two["looked"] == 18, (
        "what looks at batches before ends with the first rank"
    )
    assert one["weights"] == two["weights"]
    assert (one["of"], two["of"]) == (0, 1)


UNEVEN = """
import json, os, sys
import torch
from torch import distributed
from torch.nn import functional as F
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, get_worker_info
from outpace.serve.loader import Loader
from outpace.train.strategies import OneCycle
from outpace.train.trainer import Trainer
from tests.train.toys import model, points

folder, rank = sys.argv[1], int(os.environ["RANK"])
torch.set_num_threads(1)
told = {"ends": []}

class Stream(IterableDataset):
    def __len__(self):
        return 120

    def __iter__(self):
        worker = get_worker_info()
        x, y = points(120 + 48 * rank)
        for i in range(worker.id, len(x), worker.num_workers):
            yield x[i], y[i]

class Look:
    def begin(self, run):
        told["validation"] = run.clock.validation_steps

    def epoch_end(self, run):
        told["ends"].append([run.step, run.clock.steps, run.clock.used])

if sys.argv[2] == "stream":
    given = {"train": DataLoader(Stream(), 12, num_workers=2), "epochs": 4}
else:
    valid = DataLoader(TensorDataset(*points(60 - 24 * rank, 1)), 12)
    given = {"train": Loader(TensorDataset(*points()), 12, executor="none"), "valid": valid}
    given |= {"strategies": "auto"} if sys.argv[2] == "auto" else {}
    given |= {"budget": "8s" if sys.argv[2] == "auto" else "5s"}
result = Trainer(
    model(), loss=F.cross_entropy, device="cpu", callbacks=[Look()],
    **{"strategies": [OneCycle(rate=0.03)], **given},
).fit(quiet=True)
told["weights"] = {k: v.double().sum().item() for k, v in result.weights.items()}
open(f"{folder}/{rank}.json", "w").write(json.dumps(told))
distributed.destroy_process_group()
"""


@pytest.mark.slow
@pytest.mark.parametrize("which", ["stream", "budget", "auto"])
def test_ranks_of_unequal_lengths_go_by_one_clock(
    tmp_path: Path, torchrun: list[str], which: str
) -> None:
    script = tmp_path / "train.py"
    script.write_text(UNEVEN)
    launch(torchrun, 2, script, tmp_path, which)
    one, two = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1))
    assert one == two
    assert one["ends"]


WRITTEN = """
import json, os, sys, time
import torch
from torch import distributed
from torch.nn import functional as F
from torch.utils.data import TensorDataset
from outpace.serve.loader import Loader
from outpace.train import checkpoint, ranks
from outpace.train.strategies import Constant
from outpace.train.trainer import Trainer
from tests.train.toys import Stop, model, points

folder, rank = sys.argv[1], int(os.environ["RANK"])
torch.set_num_threads(1)
ranks.met(torch.device("cpu"))
told, losses, write = {}, {}, checkpoint.write

def slowly(path, content):
    time.sleep(0.05)
    write(path, content)

checkpoint.write = slowly

class Look:
    def step_end(self, run):
        losses[run.step] = list(run.losses.read())

class Begun:
    def begin(self, run):
        told["step"], told["before"] = run.step, losses[run.step]
        told["after"] = list(run.losses.recent)

    def end(self, run):
        told["write_s"] = run.clock.write_s

def train(*callbacks):
    Trainer(
        model(), loss=F.cross_entropy, device="cpu", callbacks=callbacks, strategies=[Constant(rate=0.01)],
        train=Loader(TensorDataset(*points()), 12, executor="none"), checkpoint=f"{folder}/checkpoints",
        every=0, epochs=2,
    ).fit(quiet=True)

try:
    train(Look(), Stop(8))
except KeyboardInterrupt:
    distributed.barrier()
train(Begun())
open(f"{folder}/{rank}.json", "w").write(json.dumps(told))
distributed.destroy_process_group()
os._exit(0)  # at a usual exit a thread of torch's may abort
"""


def test_ranks_know_what_the_first_one_writes_and_their_own_losses(
    tmp_path: Path, torchrun: list[str]
) -> None:
    script = tmp_path / "train.py"
    script.write_text(WRITTEN)
    launch(torchrun, 2, script, tmp_path)
    one, two = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    assert one["write_s"] == two["write_s"] >= 0.1  # a checkpoint and the best weights
    assert one["step"] == two["step"] > 0
    for each in (one, two):
        assert each["after"] == each["before"]
    assert one["after"] != two["after"]


class On:
    """A model whose weights are on these devices."""

    def __init__(self, *devices: str) -> None:
        self.devices = devices

    def parameters(self) -> Any:
        return [SimpleNamespace(device=torch.device(each)) for each in self.devices]


def test_a_model_that_was_moved_stays_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)

    def device(*held: str) -> torch.device:
        return ranks.device_of(None, On(*held))  # type: ignore[arg-type]

    assert device("cuda:1", "cuda:1") == torch.device("cuda:1")
    assert device("cpu", "mps:0") == torch.device("mps:0")
    assert device("cpu", "meta") == device() == torch.device("cpu")
    with pytest.raises(UsageError, match="on cuda:0 and cuda:1"):
        device("cuda:0", "cuda:1")
    monkeypatch.setenv("LOCAL_RANK", "0")
    assert device("cuda:1") == torch.device("cpu"), "a launcher deals them out"

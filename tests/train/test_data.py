"""Batches of a training: where it is in them, whatever their size and the number of ranks."""

from __future__ import annotations

import itertools
import time
from collections import UserDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    Sampler,
    TensorDataset,
    get_worker_info,
)

from outpace.serve.loader import Loader
from outpace.train.data import Batches
from outpace.train.objective import Objective
from outpace.train.run import Run
from outpace.train.strategies import LrFinder, OneCycle
from outpace.train.trainer import Trainer
from tests.train.toys import Stop, fit, goes_on_exactly, model, points

SAMPLES = 96


def ranks(size: int, world: int) -> list[Batches]:
    """The batches of each rank."""
    data = TensorDataset(torch.arange(SAMPLES))
    loaders = [Loader(data, size, executor="none", rank=i, world=world) for i in range(world)]
    return [Batches(loader, torch.device("cpu")) for loader in loaders]


@pytest.mark.parametrize(
    ("before", "after"),
    [((16, 1), (7, 1)), ((7, 1), (16, 1)), ((8, 2), (10, 1)), ((12, 1), (6, 4)), ((4, 4), (14, 2))],
)
def test_of_other_sizes_and_ranks_no_sample_is_lost_or_repeated(
    before: tuple[int, int], after: tuple[int, int]
) -> None:
    steps = -(-SAMPLES // (before[0] * before[1]))
    for made in range(1, steps + 1):
        seen: list[int] = []
        first, then = ranks(*before), ranks(*after)
        for batches in first:
            drawn = itertools.islice(batches.epoch(), made)
            seen += [number for (numbers,) in drawn for number in numbers.tolist()]
        for batches in then:
            batches.load_state_dict(first[0].state_dict())
            left, ends = batches.left or 0, list[bool]()
            for (numbers,) in batches.epoch():
                seen += numbers.tolist()
                ends.append(batches.at_end)
            assert ends == [place == left for place in range(1, left + 1)]
        assert sorted(seen) == list(range(SAMPLES))


@pytest.mark.parametrize("left_by", ["a look", "a training"])
def test_epochs_are_whole_whatever_was_drawn_before(left_by: str) -> None:
    loader = Loader(TensorDataset(*points()), 24, executor="none")
    if left_by == "a look":
        next(iter(loader))
    else:
        assert fit(train=loader, steps=25).steps == 25
    again = fit(train=loader, strategies=[LrFinder(), OneCycle()], epochs=40)
    assert any("lr_finder: rate" in note for note in again.notes)
    assert again.steps == 400
    assert again.history[-1].rate == pytest.approx(0.0)


class ByEpoch(Sampler[int]):
    """An order that depends on the epoch that it is told."""

    def __init__(self) -> None:
        self.told: list[int] = []

    def set_epoch(self, epoch: int) -> None:
        self.told.append(epoch)

    def __len__(self) -> int:
        return 6

    def __iter__(self) -> Iterator[int]:
        return iter([(place + self.told[-1]) % 6 for place in range(6)])


def test_samplers_are_told_the_epoch_wherever_they_are() -> None:
    data = TensorDataset(torch.arange(6))
    one, two = ByEpoch(), ByEpoch()
    for loader, sampler in (
        (DataLoader(data, 2, sampler=one), one),
        (DataLoader(data, batch_sampler=BatchSampler(two, 2, drop_last=False)), two),
    ):
        batches = Batches(loader, torch.device("cpu"))
        seen = [[int(batch[0][0]) for batch in batches.epoch()] for _ in range(3)]
        assert seen == [[0, 2, 4], [1, 3, 5], [2, 4, 0]]
        assert sampler.told == [0, 1, 2]


class Lasting:
    """Workers that last, of which it is not seen from outside whether they are there yet."""

    persistent_workers = True

    def __iter__(self) -> Iterator[int]:
        return iter(range(2))


def test_workers_that_last_draw_their_seed_once() -> None:
    batches = Batches(Lasting(), torch.device("cpu"))
    drew = []
    for _ in range(3):
        list(batches.epoch())
        drew.append(batches.state_dict()["drew"])
    assert drew == [True, False, False]


class Encoding(UserDict[str, torch.Tensor]):
    """As the tokenizers of transformers give: no dict, and it moves itself."""

    def to(self, device: torch.device) -> Encoding:
        self.data = {name: tensor.to(device) for name, tensor in self.data.items()}
        return self


def test_what_is_no_dict_goes_to_the_device_too() -> None:
    device = torch.device("meta")
    given = [({"x": torch.ones(2)}, [Encoding(y=torch.ones(2))], "text", 3)]
    ((first, (second,), *others),) = Batches(given, device).epoch()
    assert first["x"].device == second["y"].device == device
    assert others == ["text", 3]


def test_of_batches_that_are_no_dicts_the_samples_count() -> None:
    def loss(model: torch.nn.Module, batch: Any) -> torch.Tensor:
        return (model(batch["x"]) - batch["y"]).square().mean()

    x = torch.arange(10.0).view(-1, 1)
    parts = [Encoding(x=some, y=some) for some in x.split(9)]
    net = torch.nn.Linear(1, 1)
    torch.nn.init.zeros_(net.weight)
    torch.nn.init.zeros_(net.bias)
    judged = Objective(loss).judge(net, parts)
    assert judged.loss == pytest.approx(float(x.square().mean()))
    assert judged.samples == 10


@pytest.mark.parametrize(
    ("length", "kept"),
    [
        ({"epochs": 1}, False),
        ({"epochs": 50, "steps": 3}, True),
        pytest.param({"budget": 0.5}, False, marks=pytest.mark.slow),
    ],
)
def test_samples_are_kept_where_the_training_is_long_enough(
    length: dict[str, Any], kept: bool, tmp_path: Path
) -> None:
    """A sample takes 50 ms to make and far less to keep: that is repaid soon after the first epoch."""

    def prepare(sample: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        time.sleep(0.05)
        return sample

    data = TensorDataset(torch.randn(SAMPLES, 4), torch.zeros(SAMPLES, 1))
    with_shelf = Loader(data, 16, prepare=prepare, keep=tmp_path, executor="threads", workers=8)
    with_shelf._cores = 1  # by which an epoch takes 4.8 s
    trainer = Trainer(
        torch.nn.Linear(4, 1),
        loss=torch.nn.functional.mse_loss,
        train=with_shelf,
        strategies=[],
        **length,
    )
    trainer.fit(quiet=True)
    with_shelf.close()
    assert any(tmp_path.iterdir()) == kept
    assert any("not kept" in note for note in with_shelf.notes) == (not kept)


class Stream(IterableDataset[Any]):
    """Samples that workers share; each of them ends with a batch of its own."""

    def __init__(self, samples: int) -> None:
        self.x, self.y = points(samples)

    def __len__(self) -> int:
        return len(self.x)

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        assert info is not None
        for number in range(info.id, len(self), info.num_workers):
            yield self.x[number], self.y[number]


@pytest.mark.parametrize(
    ("samples", "drop_last", "told", "real"), [(130, False, 5, 6), (100, True, 3, 2)]
)
@pytest.mark.filterwarnings("ignore:Length of IterableDataset")
def test_epochs_end_where_their_data_do(
    tmp_path: Path, samples: int, drop_last: bool, told: int, real: int
) -> None:
    def go(folder: Path, **given: Any) -> Any:
        stream = DataLoader(Stream(samples), 32, num_workers=2, drop_last=drop_last)
        assert len(stream) == told
        return fit(train=stream, checkpoint=folder, every=0, **{"epochs": 3, **given})

    whole = go(tmp_path / "whole")
    assert (whole.stopped, whole.steps, whole.epochs) == ("epochs", 3 * real, 3)
    assert whole.history[-1].rate == pytest.approx(0.0, abs=1e-6)
    goes_on_exactly(go, tmp_path / "cut", 2 * real + 1, whole)
    assert go(tmp_path / "whole").steps == whole.steps
    one = go(tmp_path / "one", steps=told, epochs=1)
    assert (one.stopped, one.steps) == (("steps", told) if told < real else ("epochs", real))


class Endless(IterableDataset[Any]):
    """Does not tell how many samples it has."""

    def __init__(self) -> None:
        self.x, self.y = points()

    def __iter__(self) -> Iterator[Any]:
        return iter(zip(self.x, self.y, strict=True))


def test_the_rates_course_knows_of_epochs_once_one_is_over() -> None:
    """By its budget alone it had hardly begun when the epochs were over."""
    data = DataLoader(Endless(), 24)
    result = fit(train=data, strategies=[OneCycle(rate=0.01)], epochs=3, budget="1h")
    assert (result.stopped, result.steps) == ("epochs", 30)
    assert result.history[-1].rate == pytest.approx(0.0, abs=1e-6)
    assert max(row.rate for row in result.history) > 1e-4


def test_what_a_validation_is_worth_goes_by_samples() -> None:
    """Five batches of a thousand are not five steps of 32."""
    data = TensorDataset(*points(960))
    few, many = (Batches(DataLoader(data, size), torch.device("cpu")) for size in (480, 32))
    assert few.worth(many) == many.worth(many) == 30
    assert many.worth(few) == 2
    assert Batches([(1, 2)] * 7, torch.device("cpu")).worth(many) == 7


@pytest.mark.parametrize(
    ("ours", "device", "fresh"),
    [(True, "cuda", True), (False, "cuda", False), (True, "mps", False)],
)
def test_memory_of_the_users_own_is_copied_before_it_is_filled_again(
    ours: bool, device: str, fresh: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On MPS a copy may read what was freed meanwhile, too."""
    asked: list[bool] = []

    def noted(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        asked.append(kwargs["non_blocking"])
        return tensor

    monkeypatch.setattr(torch.Tensor, "to", noted)
    data = [torch.ones(2, 3)]
    source = DataLoader(TensorDataset(data[0]), 2) if ours else data
    list(Batches(source, torch.device(device)).epoch())
    assert set(asked) == {fresh}


class Sizes:
    """A callback: how many samples each step's batch has."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def batch(self, run: Run, batch: Any) -> None:
        self.seen.append(len(batch[0]))


@pytest.mark.parametrize(
    ("samples", "strategies", "firsts"),
    [
        (57, ["batch_warmup", "one_cycle"], [8] * 7),
        (57, ["one_cycle"], [57]),
        (65, ["one_cycle"], [64]),
        (66, ["batch_warmup", "one_cycle"], [8] * 8 + [2]),
    ],
)
def test_batch_norm_gets_no_single_sample_and_all_others(
    samples: int, strategies: list[str], firsts: list[int]
) -> None:
    sizes = Sizes()
    x, y = points(samples)
    given: dict[str, Any] = {"train": (x, y), "valid": (x, y), "batch_size": 64, "epochs": 20}
    fit(model=model(norm=True), strategies=strategies, callbacks=[sizes], **given)
    assert sizes.seen[: len(firsts)] == firsts
    assert 1 not in sizes.seen


def test_nor_where_it_goes_on_with_batches_of_another_size(tmp_path: Path) -> None:
    """Of 100 samples 64 are left after four batches of 9: with 21 in a batch one more than three of them."""

    def go(size: int, *callbacks: Any) -> Any:
        given: dict[str, Any] = {"train": points(100), "batch_size": size, "valid": None}
        given |= {"metric": None, "epochs": 2, "checkpoint": tmp_path, "every": 0}
        return fit(model=model(norm=True), callbacks=callbacks, **given)

    with pytest.raises(KeyboardInterrupt):
        go(9, Stop(4))
    sizes = Sizes()
    result = go(21, sizes)
    assert sizes.seen == [21, 21, 21, 21, 21, 21, 21, 16]
    assert (result.epochs, result.steps) == (2, 12)
    assert result.history[-1].rate == pytest.approx(0.0)

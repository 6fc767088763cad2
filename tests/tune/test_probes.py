"""Probes of one step look at what is there."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset, RandomSampler, Sampler, WeightedRandomSampler

from outpace.measure.flops import StepCount
from outpace.seams.host import Step
from outpace.serve.probe import Probe, has_own_sampler
from outpace.tune.assemble import assemble
from outpace.tune.probes import (
    MOST_KINDS,
    ModelCounter,
    Snapshot,
    denormals,
    longest,
    others_random,
    probe_again,
    seeks_anomalies,
)
from tests.remedies.trainings import hosted


def test_weights_without_numbers_have_no_denormal_ones() -> None:
    """The model of an ensemble under vmap lies on the meta device; its weights are given with each call."""
    real, bare = nn.Linear(4, 4), nn.Linear(4, 4, device="meta")
    with torch.no_grad():
        real.weight[0] = 1e-39

    def of(model: nn.Module) -> float:
        host: Any = SimpleNamespace(main_root=lambda: (model, None))
        return denormals(host)

    assert of(bare) == 0.0
    assert of(nn.Sequential(bare, real)) == 0.25


@pytest.mark.parametrize(("drawn_s", "sooner"), [(0.04, True), (0.001, False)])
def test_samples_that_a_training_makes_slowly_are_not_kept_for_that(
    drawn_s: float, sooner: bool
) -> None:
    """A batch of four takes 80 ms there and 4 ms here again: a sample that is drawn here first tells why."""
    steps = [Step(n, 10**8, 10**8, {"input": 8 * 10**7}, 1, 4, clean=True) for n in range(2, 9)]
    fetched = SimpleNamespace(batches=10, wall=8e8)
    found = SimpleNamespace(input={}, made_sooner_s=0.0)
    observed: Any = SimpleNamespace(
        watcher=SimpleNamespace(fetches=lambda number, workers: fetched, steps=steps),
        host=SimpleNamespace(batch_size=4),
        found=found,
    )
    record: Any = SimpleNamespace(number=0)
    probe_again(
        observed, record, Probe(samples=100, sample_bytes=8, drawn_s=drawn_s, again_s=0.001)
    )
    assert found.made_sooner_s == pytest.approx(0.076 if sooner else 0.0)
    assert ("again_s" in found.input) is sooner


class Own(torch.optim.Optimizer):
    """Row by row."""

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                for row in range(len(parameter)):
                    parameter[row] -= 0.1 * parameter.grad[row]


@pytest.mark.parametrize("own", [True, False])
def test_an_optimizer_that_the_script_wrote_is_seen_by_its_operators(own: bool) -> None:
    with hosted(switching=True) as host:
        model = nn.Linear(8, 32)
        made = Own(model.parameters(), {}) if own else torch.optim.SGD(model.parameters(), 0.1)

        def step() -> None:
            made.zero_grad()
            model(torch.ones(4, 8)).sum().backward()
            made.step()

        step()
        counter = ModelCounter(host)
        with counter:
            step()
        assert counter.failure is None
        found = counter.by_hand()
        assert (found is not None) == own
        if found is not None:
            assert found.in_step
            assert found.operators > 2 * 64
            assert found.function == "step"


def test_operators_are_told_with_what_they_took() -> None:
    with hosted(switching=True) as host:
        model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        optimizer = torch.optim.SGD(model.parameters(), 0.1)

        def step() -> None:
            optimizer.zero_grad()
            model(torch.ones(16, 64)).sum().backward()
            optimizer.step()

        step()
        counter = ModelCounter(host)
        with counter:
            step()
        found = longest(counter.count)
    assert sum(each.calls * each.flops for each in found) == counter.count.flops
    assert sum(each.calls for each in found) == counter.count.operations
    linear = next(each for each in found if each.name == "addmm")
    assert (linear.calls, linear.flops) == (2, 2 * 16 * 64 * 64)
    assert linear.moved_bytes == 4 * (16 * 64 + 64 * 64 + 64 + 16 * 64)
    relu = next(each for each in found if each.name.startswith("relu"))
    assert (relu.calls, relu.flops, relu.moved_bytes) == (2, 0, 4 * 2 * 16 * 64)
    assert [each.seconds for each in found] == sorted((e.seconds for e in found), reverse=True)
    assert all(each.seconds > 0 for each in found)


def test_the_shortest_operators_of_many_are_one() -> None:
    count = StepCount()
    for size in range(MOST_KINDS + 2):
        count.spent["mul", 0, size] = [1000.0 - size, 1000.0 - size]
    count.spent["mm", 6, 0] = [1e-3]
    found = longest(count)
    assert len(found) == MOST_KINDS + 1
    rest = found[-1]
    assert (rest.name, rest.calls) == ("others", 5)
    assert rest.seconds == pytest.approx(2 * 900 + 2 * 899 + 1e-3)
    assert rest.flops == pytest.approx(6 / 5)
    assert rest.moved_bytes == pytest.approx((2 * 100 + 2 * 101) / 5)


def test_what_anomaly_detection_finds_is_asked_for_where_it_is_on() -> None:
    with hosted(switching=True) as host:
        assert not seeks_anomalies(host)
        with torch.autograd.detect_anomaly():
            assert seeks_anomalies(host)


class Harder(Dataset[torch.Tensor]):
    """Its samples are as hard as the script says, and it counts them."""

    def __init__(self) -> None:
        self.level, self.drawn = 0.0, 0

    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> torch.Tensor:
        self.drawn += 1
        return torch.full((8,), index + self.level)


@pytest.mark.parametrize("changes", ["never", "each epoch", "each step"])
def test_a_data_set_that_the_script_changes_from_step_to_step_is_seen(changes: str) -> None:
    with hosted(switching=True) as host:
        data, model = Harder(), nn.Linear(8, 4)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        loader = DataLoader(data, batch_size=8, shuffle=True)
        snapshot = None
        for _epoch in range(3):
            data.level += changes == "each epoch"
            for batch in loader:
                optimizer.zero_grad()
                model(batch).sum().backward()
                optimizer.step()
                data.level += changes == "each step"
            snapshot = snapshot or Snapshot(host)
        assert snapshot is not None
        assert snapshot.made_by is not None
        assert snapshot.fed_back is (changes == "each step")
        snapshot.end()


class Normed(nn.Module):
    """A block that is computed again."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.block = nn.Sequential(nn.Linear(8, 8), norm, nn.ReLU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = checkpoint(self.block, x, use_reentrant=False)
        return out


@pytest.mark.parametrize(
    ("norm", "moves"), [(nn.BatchNorm1d(8), True), (nn.LayerNorm(8), False), (nn.Dropout(), False)]
)
def test_statistics_that_a_recomputation_moves_twice_are_seen(norm: nn.Module, moves: bool) -> None:
    with hosted(switching=True) as host:
        model = Normed(norm)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)

        def step() -> None:
            model(torch.randn(4, 8)).sum().backward()
            optimizer.step()

        step()
        counter = ModelCounter(host)
        with counter:
            step()
        assert counter.failure is None
        assert counter.recomputing_moves() is moves
        assert 0 < counter.recomputed_s < sum(sum(each) for each in counter.count.spent.values())


class Rotated(nn.Module):
    """Its tables come from NumPy."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.linear, self.table = nn.Linear(8, 8), torch.linspace(0, 1, 8).to(dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        turned = self.linear(x) * self.table  # here
        return turned @ turned.T


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_where_numbers_come_to_be_in_float64(dtype: torch.dtype) -> None:
    with hosted(switching=True) as host:
        model = Rotated(dtype)
        optimizer = torch.optim.Adam(model.parameters(), 0.1)

        def step() -> None:
            model(torch.randn(4, 8)).float().sum().backward()
            optimizer.step()

        step()
        counter = ModelCounter(host)
        with counter:
            step()
        assert counter.failure is None
        assert (counter.doubled.seconds > 0) == (dtype == torch.float64)
        where = counter.doubled.where
        assert (where is not None) == (dtype == torch.float64)
        if where is not None:
            assert counter.doubled.by == "Rotated.table"
            assert counter.doubled.spared() is not None
            line = int(where.rpartition(":")[2])
            assert "# here" in Path(__file__).read_text().splitlines()[line - 1]


class Numbers(Dataset[Any]):
    """``noise`` times random numbers beside them; without ``here`` they cannot be drawn in this process."""

    def __init__(self, noise: float = 0.0, *, here: bool = True) -> None:
        self.noise, self.here = noise, here

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Any:
        if not self.here:
            raise AttributeError("no file is open here")
        return index + self.noise * torch.rand(1) if self.noise else torch.tensor([float(index)])


class Endless:
    """Has no length, so that it cannot be tried."""

    def __getitem__(self, index: int) -> Any:
        return index + torch.rand(1)


@pytest.mark.parametrize(
    ("others", "random"),
    [
        ([], False),
        ([Numbers()], False),
        ([Numbers(), Numbers(0.1)], True),
        ([Numbers(here=False)], True),
        ([torch.utils.data.TensorDataset(torch.zeros(3))], False),
        ([[1, 2, 3]], False),
        ([Endless()], True),
    ],
)
def test_samples_of_other_loaders_may_be_drawn_by_chance(others: list[Any], random: bool) -> None:
    host = assemble()
    host.install()
    try:
        train = DataLoader(Numbers(0.1), batch_size=4)
        beside = [
            DataLoader(each, batch_size=4, sampler=None if hasattr(each, "__len__") else range(8))
            for each in others
        ]
        state = torch.get_rng_state()
        observed: Any = SimpleNamespace(host=host)
        assert others_random(observed, train) == random
        assert torch.equal(torch.get_rng_state(), state)
        assert len(beside) == len(others)
    finally:
        host.remove()


class Endless(Sampler[int]):
    def __iter__(self) -> Any:
        while True:
            yield from torch.randperm(12).tolist()


@pytest.mark.parametrize(
    ("how", "own"),
    [
        ({}, False),
        ({"shuffle": True}, False),
        ({"sampler": WeightedRandomSampler([1.0] * 12, 12)}, False),
        ({"sampler": RandomSampler(range(12), replacement=True)}, True),
        ({"sampler": Endless()}, True),
        ({"batch_sampler": [[0, 1], [2, 3]]}, True),
        ({"batch_size": None}, False),
    ],
)
def test_samplers_that_are_not_known(how: dict[str, Any], own: bool) -> None:
    given = how if "batch_sampler" in how else {"batch_size": 4, **how}
    assert has_own_sampler(DataLoader(Numbers(), **given)) == own

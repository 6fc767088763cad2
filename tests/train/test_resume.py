"""Trainings that are interrupted and go on later: no bit is lost."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

from outpace.errors import DataError
from outpace.serve.loader import Loader
from outpace.train import trainer
from outpace.train.checkpoint import copied
from outpace.train.run import Run
from outpace.train.strategies import Constant, Divergence, EarlyStopping, Ema, OneCycle, Plateau
from outpace.train.strategies.base import Course
from tests.train.toys import (
    Begun,
    Slow,
    Stop,
    Time,
    fit,
    goes_on_exactly,
    made,
    model,
    points,
    ready,
    same,
    suited,
)


class Stateful:
    """Goes on by its own state; as torchdata's DataLoader, each iterator draws a seed for workers."""

    def __init__(self, size: int) -> None:
        self.batches = ready(size=size)
        self.epoch = self.given = 0
        self.goes_on = False

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[Any]:
        torch.empty((), dtype=torch.int64).random_()
        if not self.goes_on:
            self.epoch, self.given = self.epoch + 1, 0
        self.goes_on = False
        return self._epoch()

    def _epoch(self) -> Iterator[Any]:
        chance = torch.Generator().manual_seed(self.epoch)
        for index in torch.randperm(len(self), generator=chance).tolist()[self.given :]:
            self.given += 1
            yield self.batches[index]

    def state_dict(self) -> dict[str, int]:
        return {"epoch": self.epoch, "given": self.given}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.epoch, self.given, self.goes_on = state["epoch"], state["given"], True


@pytest.mark.parametrize(
    ("way", "at"),
    [
        *itertools.product(
            ("batches", "Loader", "DataLoader", "own generator", "stateful"),
            (1, 7, 9, 10, 11, 25, 39),
        ),
        ("persistent workers", 25),
    ],
)
def test_it_goes_on_from_any_step(tmp_path: Path, way: str, at: int) -> None:
    def go(folder: Path, **given: Any) -> Any:
        torch.manual_seed(0)
        data = TensorDataset(*points())
        train = {
            "batches": ready,
            "stateful": lambda: Stateful(24),
            "Loader": lambda: Loader(data, 24, executor="none"),
            "DataLoader": lambda: DataLoader(data, 24, shuffle=True),
            "own generator": lambda: DataLoader(
                data, 24, shuffle=True, generator=torch.Generator().manual_seed(3)
            ),
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
    goes_on_exactly(go, tmp_path / "cut", at, whole)


def test_a_target_is_not_reached_by_having_reached_another(tmp_path: Path) -> None:
    one = fit(checkpoint=tmp_path, target=0.5, epochs=20)
    assert one.time_to_target_s is not None
    assert fit(checkpoint=tmp_path, target=0.5, epochs=20).time_to_target_s == one.time_to_target_s
    assert fit(checkpoint=tmp_path, target=2.0, epochs=20).time_to_target_s is None


def test_a_full_disk_costs_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, *_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(trainer, "write", full)
    result = fit(checkpoint=tmp_path, epochs=2)
    assert result.epochs == 2
    assert result.weights
    assert "the best weights are in the result only: [Errno 28]" in result.notes[-1]


def test_what_has_ended_gives_the_same_result_again(tmp_path: Path) -> None:
    for given in (
        {"epochs": 3},
        {"steps": 17},
        {"target": 0.7, "epochs": 50},
        {"strategies": [Constant(rate=0.0), EarlyStopping()], "epochs": 50},
    ):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        begun = Begun()
        one = fit(checkpoint=folder, **given)
        two = fit(checkpoint=folder, callbacks=[begun], **given)
        assert begun.step == one.steps
        assert (two.stopped, two.steps, two.metric) == (one.stopped, one.steps, one.metric)
        assert len(two.history) == len(one.history)


@pytest.mark.parametrize("at", [20, 40])
def test_an_epoch_is_ended_whose_last_step_was_saved(tmp_path: Path, at: int) -> None:
    class Fails(Stop):
        """At the validation after that step, whose checkpoint is there."""

        def validated(self, run: Run) -> None:
            assert run.checkpoints is not None
            run.checkpoints.wait()
            if run.step == at:
                raise KeyboardInterrupt

    def go(folder: Path, *callbacks: Any) -> Any:
        ends: list[int] = []

        def ended(run: Run) -> None:
            ends.append(run.epoch)

        result = fit(checkpoint=folder, every=0, callbacks=[ended, *callbacks])
        return ends, result

    ends, whole = go(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        go(tmp_path / "cut", Fails(-1))
    left, again = go(tmp_path / "cut")
    assert left == ends[at // 10 - 1 :]
    assert again.epochs == whole.epochs == 4
    rows = [[(row.epoch, row.step) for row in result.history] for result in (again, whole)]
    assert rows[0] == rows[1]
    assert same(dict(again.weights), dict(whole.weights))


def test_more_epochs_go_on_where_it_ended(tmp_path: Path) -> None:
    fit(checkpoint=tmp_path, epochs=2, strategies=[Constant(rate=0.02)])
    begun, strategies = Begun(), [Constant(rate=0.02)]
    longer = fit(checkpoint=tmp_path, epochs=4, strategies=strategies, callbacks=[begun])
    whole = fit(epochs=4, strategies=[Constant(rate=0.02)])
    assert (begun.step, longer.steps) == (20, 40)
    assert same(dict(longer.weights), dict(whole.weights))


def test_what_is_added_to_a_course_that_is_over_would_teach_nothing(tmp_path: Path) -> None:
    fit(checkpoint=tmp_path, epochs=2, strategies=[OneCycle(rate=0.02)])
    with pytest.raises(DataError, match="end of its rate's course"):
        fit(checkpoint=tmp_path, epochs=4, strategies=[OneCycle(rate=0.02)])
    assert fit(checkpoint=tmp_path, epochs=2, strategies=[OneCycle(rate=0.02)]).steps == 20


def test_the_last_steps_may_be_of_smaller_batches(tmp_path: Path) -> None:
    """They are more, and yet no more is asked for."""

    def go(size: int, *callbacks: Any) -> Any:
        data = {"train": points(), "valid": points(120, seed=1), "batch_size": size}
        return fit(checkpoint=tmp_path, every=0, callbacks=callbacks, **data)

    with pytest.raises(KeyboardInterrupt):
        go(24, Stop(39))
    begun = Begun()
    found = go(8, begun)
    assert 30 < begun.step <= 39
    assert (found.stopped, found.epochs) == ("epochs", 4)
    assert found.steps == begun.step + 3 * (40 - begun.step)


def test_a_course_sets_the_momentum_anew_where_the_optimizer_is_an_older_one() -> None:
    course = OneCycle(rate=0.03)
    course.cell = 7
    course.load_state_dict(course.state_dict())
    assert course.cell is None


def noisy(sample: Any, rng: np.random.Generator) -> Any:
    """Other noise in each epoch."""
    x, y = sample
    return x + torch.from_numpy(rng.normal(size=x.shape)).float(), y


@pytest.mark.parametrize("way", ["Loader", "own generator"])
def test_validations_go_on_in_their_own_data(tmp_path: Path, way: str) -> None:
    """Where each sees other numbers, or the samples in another order."""

    def go(folder: Path, **given: Any) -> Any:
        data = TensorDataset(*points(120, seed=1))
        own = torch.Generator().manual_seed(3)
        valid = {
            "Loader": lambda: Loader(data, 24, transform=noisy, executor="none"),
            "own generator": lambda: DataLoader(data, 24, shuffle=True, generator=own),
        }[way]()
        first = {"Loader": None, "own generator": lambda outputs, _: outputs[0].mean()}[way]
        metric = {"metric": first} if first is not None else {}
        return fit(valid=valid, checkpoint=folder, every=0, epochs=4, **metric, **given)

    goes_on_exactly(go, tmp_path / "cut", 25, go(tmp_path / "whole"))


@pytest.mark.parametrize("way", ["Loader", "DataLoader", "own generator", "batch sampler"])
@pytest.mark.parametrize(
    ("before", "after", "at"), [(16, 8, 3), (16, 7, 5), (7, 16, 9), (16, 7, 6), (16, 96, 8)]
)
def test_another_batch_size_loses_and_repeats_no_sample(
    tmp_path: Path, before: int, after: int, at: int, way: str
) -> None:
    x, y = points(96)
    data = TensorDataset(torch.arange(96), y)
    seen: list[int] = []

    class Seeing:
        def batch(self, run: Run, batch: Any) -> Any:
            if run.step < at or run.resumed:
                seen.extend(batch[0].tolist())
            return x[batch[0]], batch[1]

    def go(size: int, *callbacks: Any) -> Any:
        own = torch.Generator().manual_seed(3) if way == "own generator" else None
        loader: Any = Loader(data, size, executor="none")
        if way != "Loader":
            loader = DataLoader(data, size, shuffle=True, generator=own)
        if way == "batch sampler":
            drawn = BatchSampler(RandomSampler(data), size, drop_last=False)
            loader = DataLoader(data, batch_sampler=drawn)
        return fit(
            train=loader,
            checkpoint=tmp_path,
            every=0,
            valid=None,
            metric=None,
            epochs=3,
            callbacks=[Seeing(), *callbacks],
        )

    with pytest.raises(KeyboardInterrupt):
        go(before, Stop(at))
    drawn = len(seen)
    result = go(after)
    assert len(seen) == 3 * 96
    for epoch in range(3):
        assert sorted(seen[96 * epoch : 96 * (epoch + 1)]) == list(range(96))
    left = [96 - drawn % 96] + (2 - drawn // 96) * [96]
    assert result.steps == at + sum(-(-samples // after) for samples in left)
    assert result.epochs == 3
    assert result.history[-1].rate == pytest.approx(0.0)


@pytest.mark.parametrize(
    ("at", "first", "then"),
    [
        (9, {"kept": True}, {"kept": False}),
        (9, {"kept": False}, {"kept": True}),
        (9, {"kept": True}, {"kept": True, "size": 7}),
        (3, {"kept": True, "looked": True}, {"kept": True}),
        (3, {"kept": True}, {"kept": True, "looked": True}),
        (3, {"kept": True, "looked": True}, {"kept": False, "size": 7}),
    ],
)
def test_workers_that_last_or_no_longer_do_cost_no_sample(
    tmp_path: Path, at: int, first: dict[str, Any], then: dict[str, Any]
) -> None:
    """Those that last have drawn their seed in an epoch before, or where somebody has looked at the data."""
    x, y = points(96)
    seen: list[int] = []

    class Seeing:
        def batch(self, run: Run, batch: Any) -> Any:
            if run.step < at or run.resumed:
                seen.extend(batch[0].tolist())
            return x[batch[0]], batch[1]

    def go(*callbacks: Any, kept: bool, size: int = 16, looked: bool = False) -> None:
        loader = DataLoader(
            TensorDataset(torch.arange(96), y),
            size,
            shuffle=True,
            num_workers=int(kept),
            persistent_workers=kept,
        )
        if looked:
            next(iter(loader))
        own = {"train": loader, "valid": None, "metric": None, "epochs": 2}
        fit(**own, checkpoint=tmp_path, every=0, callbacks=[Seeing(), *callbacks])

    with pytest.raises(KeyboardInterrupt):
        go(Stop(at), **first)
    go(**then)
    assert sorted(seen[:96]) == sorted(seen[96:]) == list(range(96))


@pytest.mark.parametrize("workers", [0, 1])
def test_what_is_gone_on_with_inside_of_a_batch_can_be_so_again(
    tmp_path: Path, workers: int
) -> None:
    """Batches of 16, then of 10, then of 6; of the last ones too few are left for a batch."""
    seen: dict[int, list[int]] = {}

    class Seeing:
        def batch(self, run: Run, batch: Any) -> Any:
            seen[run.step] = batch[0].tolist()
            return torch.ones(len(batch[0]), 8), batch[1]

    for size, stop in ((16, 3), (10, 5), (6, None)):
        data = TensorDataset(torch.arange(100), points(100)[1])
        loader = DataLoader(
            data,
            size,
            shuffle=True,
            drop_last=True,
            num_workers=workers,
            generator=torch.Generator().manual_seed(7),
        )
        callbacks = [Seeing(), *([Stop(stop)] if stop else [])]
        given = {"train": loader, "valid": None, "metric": None, "epochs": 1}
        with nullcontext() if stop is None else pytest.raises(KeyboardInterrupt):
            fit(**given, checkpoint=tmp_path, every=0, callbacks=callbacks)
    assert [len(seen[step]) for step in sorted(seen)] == [16] * 3 + [10] * 2 + [6] * 5
    samples = [sample for step in sorted(seen) for sample in seen[step]]
    assert len(samples) == len(set(samples)) == 98


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
    again = goes_on_exactly(go, tmp_path / "cut", 305, whole)
    assert any("plateau" in note for note in whole.notes)
    assert again.notes == whole.notes


def test_early_stopping_counts_the_same_validations_again(tmp_path: Path) -> None:
    """The rate was lowered after its last look, which it notices at the next validation."""

    class Lowers:
        def validated(self, run: Run) -> None:
            if len(run.history) == 5:
                run.rates.rescale(0.5)

    def first(folder: Path, *callbacks: Any) -> int:
        strategy = EarlyStopping()
        fit(
            strategies=[strategy, Constant(rate=0.02)],
            callbacks=[Lowers(), *callbacks],
            checkpoint=folder,
            every=0,
            epochs=7,
        )
        return strategy.first

    whole = first(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        first(tmp_path / "cut", Stop(55))
    assert first(tmp_path / "cut") == whole == 6


@pytest.mark.parametrize(
    "at", [pytest.param(3, marks=pytest.mark.slow), 11, pytest.param(17, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize(
    "name",
    [
        "accumulation",
        "batch_size",
        "batch_warmup",
        "class_prior",
        "class_weights",
        "dropout_off",
        "focal",
        "kaiming",
        "loss_sampling",
        "lsuv",
        "muon",
        "progressive_resizing",
        "pruning",
        "quantization_aware",
        "repeat_factor",
        "restarts",
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
        own = made(name)
        strategies = [own] if isinstance(own, Course) else [own, OneCycle(rate=0.03)]
        given = {**suited(name), "epochs": 3, **given}
        return fit(strategies=strategies, checkpoint=folder, every=0, **given)

    whole = go(tmp_path / "whole")
    assert goes_on_exactly(go, tmp_path / "cut", at, whole).notes == whole.notes


class Centred(torch.nn.Module):
    """Learns a temperature, and keeps the mean of the outputs."""

    mean: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(()))
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        if torch.is_grad_enabled():
            self.mean.lerp_(outputs.detach().mean(0), 0.1)
        return torch.nn.functional.cross_entropy(self.scale * (outputs - self.mean), targets)


def test_a_loss_goes_on_that_learns_and_remembers(tmp_path: Path) -> None:
    losses: list[Centred] = []

    def go(folder: Path, **given: Any) -> Any:
        net, loss = model(), Centred()
        losses.append(loss)
        optimizer = torch.optim.AdamW([*net.parameters(), *loss.parameters()], 0.02)
        given = {"model": net, "loss": loss, "optimizer": optimizer, **given}
        return fit(checkpoint=folder, every=0, strategies=[OneCycle()], **given)

    whole = go(tmp_path / "whole")
    goes_on_exactly(go, tmp_path / "cut", 17, whole)
    assert same(dict(losses[-1].state_dict()), dict(losses[0].state_dict()))
    assert float(losses[0].scale.detach()) != 1.0


def test_a_weight_goes_on_that_the_optimizer_alone_has(tmp_path: Path) -> None:
    """A loss that is a function looks it up."""
    scales: list[torch.nn.Parameter] = []

    def go(folder: Path, **given: Any) -> Any:
        net, scale = model(), torch.nn.Parameter(torch.zeros(()))
        scales.append(scale)

        def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.cross_entropy(outputs * scale.exp(), targets)

        optimizer = torch.optim.AdamW([*net.parameters(), scale], 0.02)
        given = {"model": net, "loss": loss, "optimizer": optimizer, **given}
        return fit(checkpoint=folder, every=0, strategies=[OneCycle()], **given)

    whole = go(tmp_path / "whole")
    goes_on_exactly(go, tmp_path / "cut", 17, whole)
    assert scales[-1].item() == scales[0].item() != 0.0


class Regularised(torch.nn.Module):
    """Holds the model, of which it is to make the weights small."""

    def __init__(self, net: torch.nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        squares = sum(weight.square().sum() for weight in self.net.parameters())
        return torch.nn.functional.cross_entropy(outputs, targets) + 1e-4 * squares


def test_a_loss_that_holds_the_model_does_not_undo_its_averaging() -> None:
    net = model()
    result = fit(model=net, loss=Regularised(net), strategies=[OneCycle(rate=0.03), Ema(0.9)])
    assert same(dict(net.state_dict()), dict(result.weights))


def test_what_rates_were_tried_is_told_after_a_resume(tmp_path: Path) -> None:
    def go(**given: Any) -> Any:
        return fit(checkpoint=tmp_path, strategies="auto", epochs=40, **given)

    with pytest.raises(KeyboardInterrupt):
        go(callbacks=[Stop(200)], every=0)
    first = go()
    assert first.rates is not None
    assert go().rates == first.rates


def test_a_checkpoint_of_another_model_is_told(tmp_path: Path) -> None:
    fit(checkpoint=tmp_path)
    with pytest.raises(DataError, match="of another training"):
        fit(checkpoint=tmp_path, model=torch.nn.Linear(8, 3))


def test_a_checkpoint_of_another_optimizer_is_told(tmp_path: Path) -> None:
    fit(checkpoint=tmp_path, strategies=[OneCycle(rate=0.03)])
    with pytest.raises(
        DataError, match="of another training: its optimizer is AdamW, and this one's SGD"
    ):
        fit(checkpoint=tmp_path, strategies=[Constant(rate=0.03)], epochs=6)


def test_what_another_training_is_refused_by_stays_as_it_was(tmp_path: Path) -> None:
    def net(classes: int, seed: int) -> torch.nn.Module:
        torch.manual_seed(seed)
        return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Linear(16, classes))

    def go(own: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        fit(model=own, optimizer=optimizer, checkpoint=tmp_path, strategies=[])

    other = net(3, seed=0)
    go(other, torch.optim.SGD(other.parameters(), 0.1, momentum=0.9))
    own = net(5, seed=1)
    optimizer = torch.optim.SGD(own.parameters(), 0.2, momentum=0.9)
    own(points(8)[0]).sum().backward()
    optimizer.step()
    before = copied([own.state_dict(), optimizer.state_dict()])
    with pytest.raises(DataError, match="of another training"):
        go(own, optimizer)
    assert same(copied([own.state_dict(), optimizer.state_dict()]), before)


def test_what_is_refused_for_its_data_leaves_the_model_as_it_was(tmp_path: Path) -> None:
    def go(own: torch.nn.Module, samples: int) -> None:
        data = TensorDataset(*points(samples))
        fit(model=own, train=Loader(data, 24, executor="none"), checkpoint=tmp_path, epochs=1)

    go(model(), 240)
    own = model(seed=1)
    before = copied(own.state_dict())
    with pytest.raises(DataError, match="a loader with samples 240, this one has 120"):
        go(own, 120)
    assert same(copied(own.state_dict()), before)


def test_a_rate_that_a_callback_has_lowered_stays_so(tmp_path: Path) -> None:
    def lower(run: Run) -> None:
        if run.epoch == 2:
            for group in run.optimizer.param_groups:
                group["lr"] *= 0.1

    def go(folder: Path, callbacks: Any = ()) -> Any:
        net = model()
        return fit(
            model=net,
            optimizer=torch.optim.SGD(net.parameters(), 0.1, momentum=0.9),
            strategies=[],
            checkpoint=folder,
            every=0,
            callbacks=[lower, *callbacks],
        )

    whole = go(tmp_path / "whole")
    assert [row.rate for row in whole.history] == pytest.approx([0.1, 0.1, 0.01, 0.01])
    goes_on_exactly(go, tmp_path / "cut", 25, whole)


def test_validations_that_draw_from_the_same_generator_go_on_too(tmp_path: Path) -> None:
    def go(folder: Path, **given: Any) -> Any:
        chance, data = torch.Generator().manual_seed(0), TensorDataset(*points())
        return fit(
            train=DataLoader(data, 24, shuffle=True, generator=chance),
            valid=DataLoader(data, 60, generator=chance),
            validate_every=4,
            checkpoint=folder,
            every=0,
            **given,
        )

    goes_on_exactly(go, tmp_path / "cut", 6, go(tmp_path / "whole"))


class Growing(torch.nn.Module):
    """Its table is as long as the longest sequence so far."""

    table: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.register_buffer("table", torch.linspace(0, 1, 4))
        self.head = torch.nn.Linear(1, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        length = x.shape[1]
        if length > len(self.table):
            self.table = torch.linspace(0, 1, length)
        found: torch.Tensor = self.head((x + self.table[:length]).mean(1, keepdim=True))
        return found


def test_an_average_goes_back_to_before_its_buffers_grew() -> None:
    class Breaks:
        def batch(self, run: Run, batch: Any) -> Any:
            return batch if run.step < 40 else (torch.cat([batch[0]] * 2, 1), batch[1])

        def loss(self, run: Run, loss: torch.Tensor) -> torch.Tensor:
            return loss * math.nan if run.step == 60 else loss

    result = fit(
        model=Growing(),
        train=[(x[:, :4], y) for x, y in ready()],
        valid=[(x[:, :4], y) for x, y in ready()][:1],
        strategies=[Divergence(every=10_000), OneCycle(rate=0.03), Ema()],
        callbacks=[Breaks()],
        epochs=8,
    )
    assert any("back to the weights of step 0" in note for note in result.notes), result.notes


def test_buffers_that_grew_since_the_best_validation_cost_no_result(tmp_path: Path) -> None:
    class Longer:
        def batch(self, run: Run, batch: Any) -> Any:
            return batch if run.epoch == 0 else (torch.cat([batch[0]] * 2, 1), batch[1])

    def go(**given: Any) -> Any:
        values = itertools.count(-1, -1)
        short = [(x[:, :4], y) for x, y in ready()]
        return fit(
            train=short,
            valid=short[:1],
            metric=lambda outputs, targets: next(values),
            checkpoint=tmp_path,
            callbacks=[Longer()],
            **given,
        )

    net = Growing()
    result = go(model=net)
    assert result.best.epoch == 1
    assert len(net.table) == len(result.weights["table"]) == 4
    assert same(dict(go(model=Growing()).weights), dict(result.weights))
    large = Growing()
    large(torch.ones(1, 16))
    with pytest.raises(DataError, match="its table is smaller than this one's"):
        go(model=large)
    assert len(large.table) == 16

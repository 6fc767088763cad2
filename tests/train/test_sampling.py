"""Which samples an epoch is drawn from: loss_sampling, subset."""

from __future__ import annotations

from itertools import chain, pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset, TensorDataset

from outpace.errors import UsageError
from outpace.serve.loader import Loader
from outpace.train.checkpoint import copied
from outpace.train.run import Run
from outpace.train.strategies import Constant, LossSampling, OneCycle, Strategy, Subset
from outpace.train.strategies.loss_sampling import by_scores
from outpace.train.trainer import Trainer
from tests.train.test_curriculum import drawn, imbalanced
from tests.train.toys import (
    Begun,
    Stop,
    accuracy,
    fit,
    goes_on_exactly,
    own_loss,
    points,
    same,
    trainer,
)

# --- loss_sampling ---------------------------------------------------------------------------


def test_scores_become_times_an_epoch() -> None:
    scores = torch.tensor([0.0, 1.0, 2.0, 100.0, torch.nan, torch.inf] + [1.0] * 94)
    times = by_scores(scores.double(), 0.3, 4.0)
    assert float(times.sum()) == pytest.approx(100, abs=0.01)
    ratio = (times / times[0]).tolist()
    mean = float(scores[scores.isfinite()].mean())
    assert ratio[1] == pytest.approx((0.3 + 0.7 / mean) / 0.3)
    assert ratio[3] == pytest.approx((0.3 + 0.7 * 4.0) / 0.3)
    assert ratio[4] == ratio[5] == pytest.approx(1.0 / 0.3)
    below = by_scores(torch.tensor([-3.0, 1.0, 5.0]).double(), 0.3, 4.0)
    assert below.min() > 0  # a likelihood of counts may be a negative loss
    for nothing in (torch.full((10,), torch.nan), torch.zeros(10)):
        assert by_scores(nothing.double(), 0.3, 4.0).tolist() == pytest.approx([1.0] * 10, rel=1e-3)


@pytest.mark.parametrize(
    "loss",
    [
        nn.CrossEntropyLoss(weight=torch.tensor([1.0, 5.0, 0.2])),
        nn.CrossEntropyLoss(ignore_index=1),
    ],
)
def test_what_is_learnt_from_is_the_loss_that_was_given(loss: nn.Module) -> None:
    def first_epoch(*more: Strategy) -> Any:
        given = {"train": points(96), "valid": None, "metric": None, "batch_size": 24, "epochs": 1}
        return fit(**given, loss=loss, strategies=[OneCycle(rate=0.03), *more])

    with_it, without = first_epoch(LossSampling()), first_epoch()
    assert with_it.history[0].train_loss == pytest.approx(without.history[0].train_loss, rel=1e-4)


class Losses:
    """For each sample the loss that the strategy noted in the epoch at hand."""

    def __init__(self, strategy: LossSampling) -> None:
        self.strategy = strategy
        self.wanted: dict[int, float] = {}

    def batch(self, run: Run, batch: Any) -> None:
        with torch.no_grad():
            losses = F.cross_entropy(run.module(batch[0]), batch[1], reduction="none")
        for index, loss in zip(batch[0][:, 0].int().tolist(), losses.tolist(), strict=True):
            self.wanted[index] = loss

    def end(self, run: Run) -> None:
        state = self.strategy.state_dict()
        seen = torch.tensor(sorted(self.wanted))
        assert state["counts"].nonzero().flatten().tolist() == seen.tolist()
        wanted = [self.wanted[int(index)] for index in seen]
        assert state["sums"][seen].tolist() == pytest.approx(wanted, rel=1e-4)


def test_each_loss_is_noted_for_its_sample() -> None:
    strategy = LossSampling()
    y = imbalanced(100)[1]
    x = torch.randn(100, 8, generator=torch.Generator().manual_seed(0))
    x[:, 0] = torch.arange(100)
    train = Loader(TensorDataset(x, y), 8, executor="none")
    fit(
        train=train,
        strategies=[strategy, Constant(rate=0.01)],
        callbacks=[Losses(strategy)],
        steps=11,
    )


class Flat(nn.Module):
    """Tells each of eight symbols with 1/8, at each of 16 places: [N, 16] -> [N, 8, 16]."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.bias.view(1, 8, 1).expand(len(x), 8, 16)


@pytest.mark.parametrize("by", ["learnability", "loss"])
def test_targets_that_are_left_out_are_not_taken_for_learnt(by: Any) -> None:
    """Some samples have two targets, others sixteen, one none: all of them are told alike."""
    strategy = LossSampling(by)
    tokens = torch.randint(8, (100, 16), generator=torch.Generator().manual_seed(0))
    targets = tokens.clone()
    targets[:50, 2:] = targets[0] = -100
    fit(
        model=Flat(),
        train=Loader(TensorDataset(tokens, targets), 20, executor="none"),
        strategies=[strategy, Constant(rate=0.0)],
        epochs=2,
        valid=None,
        metric=None,
    )
    assert strategy.factors.tolist() == pytest.approx([1.0] * 100, rel=1e-3)


@pytest.mark.parametrize("at", [5, 15, 19, 25, 30, 38])
def test_it_goes_on_with_the_very_samples(tmp_path: Path, at: int) -> None:
    def go(folder: Path, **given: Any) -> Any:
        return fit(
            train=Loader(TensorDataset(*points(160)), 16, executor="none"),
            strategies=[LossSampling(), OneCycle(rate=0.03)],
            checkpoint=folder,
            every=0,
            **given,
        )

    goes_on_exactly(go, tmp_path / "cut", at, go(tmp_path / "whole"))


def mostly_easy(count: int, seed: int, noise: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Points that a line tells apart, and one in seven of which a corner does; some labels are wrong."""
    chance = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 10, generator=chance)
    hard = torch.rand(count, generator=chance) < 0.15
    x[:, 0] = torch.where(hard, 2.0, -2.0)
    easy = x[:, 1] > 0
    x[:, 1] += torch.where(easy, 1.0, -1.0) * ~hard
    y = torch.where(hard, (x[:, 2] > 0) ^ (x[:, 3] > 0), easy)
    return x, (y ^ (torch.rand(count, generator=chance) < noise)).long()


def of_the_hard(strategy: LossSampling | None, noise: float) -> float:
    """The mean over all validations of how many of the hard ones are told right."""
    x, y = mostly_easy(2000, 1, 0.0)
    torch.manual_seed(0)
    layers = [nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 2)]
    result = fit(
        model=nn.Sequential(*layers),
        train=Loader(TensorDataset(*mostly_easy(2000, 0, noise)), 50, executor="none"),
        valid=[(x[x[:, 0] > 0], y[x[:, 0] > 0])],
        metric=accuracy,
        optimizer=torch.optim.AdamW,
        epochs=8,
        strategies=[*([strategy] if strategy else []), Constant(rate=0.003)],
    )
    return sum(row.metric or 0.0 for row in result.history) / len(result.history)


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_what_is_not_learnt_yet_is_learnt_sooner(noise: float) -> None:
    assert of_the_hard(LossSampling(), noise) > of_the_hard(None, noise) + 0.02


def test_wrong_labels_come_the_most_by_loss_alone() -> None:
    wrong = mostly_easy(2000, 0, 0.1)[1] != mostly_easy(2000, 0, 0.0)[1]
    shares = []
    for by in ("learnability", "loss"):
        strategy = LossSampling(by)
        of_the_hard(strategy, 0.1)
        shares.append(float(strategy.factors[wrong].mean() / strategy.factors[~wrong].mean()))
    assert shares[1] > 1.5 * shares[0]


def test_what_can_be_learnt_is_told_without_the_weights_of_classes() -> None:
    told = {}
    weighted = nn.CrossEntropyLoss(torch.tensor([1.0, 5.0, 9.0]), label_smoothing=0.1)
    for by, loss in product(("learnability", "loss"), (weighted, F.cross_entropy)):
        strategy = LossSampling(by)
        data = Loader(TensorDataset(*points(160)), 16, executor="none")
        fit(loss=loss, train=data, strategies=[strategy, Constant(rate=0.0)], epochs=1)
        told[by, loss] = strategy.state_dict()["sums"]
    assert same(told["learnability", weighted], told["learnability", F.cross_entropy])
    assert not same(told["loss", weighted], told["loss", F.cross_entropy])


@pytest.mark.parametrize("strategy", [LossSampling(), Subset()], ids=["loss_sampling", "subset"])
def test_a_roll_back_leaves_the_epoch_at_hand_as_it_is(strategy: Strategy) -> None:
    class Back:
        def step_end(self, run: Run) -> None:
            loader = run.train.source
            assert isinstance(loader, Loader)
            if run.step == 5:
                self.state = copied(run.learned())
            if run.step == 25:
                before = loader.order.indices(2, 0, 160)
                run.load_learned(self.state)
                assert (loader.order.indices(2, 0, 160) == before).all()
                state = strategy.state_dict()
                again = type(strategy)()
                again.prepare(run)
                again.load_state_dict(state)
                assert (loader.order.indices(2, 0, 160) == before).all()

    fit(
        train=Loader(TensorDataset(*points(160)), 16, executor="none"),
        strategies=[strategy, OneCycle(rate=0.03)],
        callbacks=[Back()],
        steps=30,
    )


@pytest.mark.parametrize("kind", [LossSampling, Subset])
def test_the_same_trainer_goes_on_after_a_crash(tmp_path: Path, kind: type[Strategy]) -> None:
    def make(folder: Path, *callbacks: Any) -> Trainer:
        return trainer(
            train=Loader(TensorDataset(*points(160)), 16, executor="none"),
            strategies=[kind(), OneCycle(rate=0.03)],
            checkpoint=folder,
            every=0,
            callbacks=callbacks,
        )

    whole = make(tmp_path / "whole").fit(quiet=True)
    cut = make(tmp_path / "cut", Stop(25))
    with pytest.raises(KeyboardInterrupt):
        cut.fit(quiet=True)
    cut.callbacks = (begun := Begun(),)
    assert same(dict(cut.fit(quiet=True).weights), dict(whole.weights))
    assert begun.step == 25


# --- subset ----------------------------------------------------------------------------------


def test_it_begins_with_as_many_of_each_class_and_ends_with_all() -> None:
    y = torch.tensor([0] * 60 + [1] * 30 + [2] * 10)
    epochs = drawn(Subset(0.3, until=0.5), y=y, epochs=6)
    assert all(len(epoch) == 100 for epoch in epochs)
    parts = [set(epoch) for epoch in epochs]
    assert len(parts[0]) == 30
    assert np.bincount(y[sorted(parts[0])].numpy()).tolist() == [10, 10, 10]
    counts = [len(part) for part in parts]
    assert counts[:4] == [30, 53, 77, 100]
    assert all(less <= more for less, more in pairwise(parts))
    assert sorted(epochs[-1]) == list(range(100))
    assert drawn(Subset(0.3, until=0.5), y=y, epochs=6) == epochs


@pytest.mark.parametrize("at", [5, 12, 19])
@pytest.mark.parametrize("size", [5, 10])
def test_a_subset_goes_on_with_the_very_samples(tmp_path: Path, at: int, size: int) -> None:
    first: dict[str, int] = {}

    class First:
        def begin(self, run: Run) -> None:
            first.update(run.train.state_dict()["source"])

    whole = drawn(Subset())
    with pytest.raises(KeyboardInterrupt):
        drawn(Subset(), Stop(at), checkpoint=tmp_path, every=0)
    rest = drawn(Subset(), First(), checkpoint=tmp_path, every=0, size=size)
    before = 100 * first["epoch"] + first["consumed"]
    assert before > 0
    assert list(chain(*rest)) == list(chain(*whole))[before:]


class Dear(Dataset[Any]):
    """Samples that are made once and then kept; it counts how many were."""

    def __init__(self) -> None:
        self.x, self.y = points(1200)
        self.made: set[int] = set()

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> Any:
        self.made.add(index)
        return self.x[index], self.y[index]


def test_a_target_is_reached_after_fewer_samples_were_made() -> None:
    made = []
    for strategies in ([Subset()], []):
        data = Dear()
        result = fit(
            train=Loader(data, 24, executor="none"),
            valid=[points(600, seed=1)],
            target=0.93,
            validate_every=10,
            epochs=6,
            strategies=[*strategies, OneCycle(rate=0.03)],
        )
        assert result.stopped == "target"
        made.append(len(data.made))
    assert made[0] < 0.6 * made[1]


def test_rare_classes_are_learnt_early() -> None:
    """The recall of the worst class, on average over the first half of a training."""
    x, y = imbalanced(3000, seed=1)

    def worst(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        right = outputs.argmax(1) == targets
        return torch.stack([right[targets == c].float().mean() for c in range(3)]).min()

    recalls = []
    for strategies in ([Subset()], []):
        torch.manual_seed(0)
        rows = fit(
            model=nn.Linear(8, 3),
            train=Loader(TensorDataset(*imbalanced()), 30, executor="none"),
            valid=[(x, y)],
            metric=worst,
            validate_every=15,
            epochs=8,
            strategies=[*strategies, OneCycle(rate=0.05)],
        ).history[:8]
        recalls.append(sum(row.metric or 0.0 for row in rows) / len(rows))
    assert recalls[0] > recalls[1] + 0.08


@pytest.mark.parametrize(
    ("strategy", "given", "said"),
    [
        (LossSampling(), {}, "gives ready batches"),
        (Subset(), {}, "gives ready batches"),
        (
            Subset(labels=[0, 1]),
            {"train": points(24), "batch_size": 4},
            "not one class for each of 24 samples",
        ),
        (
            LossSampling("loss"),
            {"train": points(24), "batch_size": 4, "loss": own_loss},
            "loss_sampling needs the loss of each target",
        ),
        (
            LossSampling(),
            {"train": points(24), "batch_size": 4, "loss": F.mse_loss},
            "it is not known whether",
        ),
    ],
)
def test_they_tell_why_they_can_not(strategy: Strategy, given: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        fit(**{"strategies": [strategy], **given})


def test_classes_that_a_method_tells_are_not_seen() -> None:
    class Named(TensorDataset):
        def labels(self) -> list[int]:
            return []

    given: dict[str, Any] = {"valid": points(120, seed=1), "batch_size": 24}
    result = fit(train=Named(*points()), strategies=[Subset(), OneCycle(rate=0.03)], **given)
    assert any("(as many of each class)" in note for note in result.notes)  # its tensors tell

    class Hidden(Dataset[Any]):
        def __len__(self) -> int:
            return 240

        def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
            return tuple(each[index] for each in points())  # type: ignore[return-value]

        def labels(self) -> list[int]:
            return []

    result = fit(train=Hidden(), strategies=[Subset(), OneCycle(rate=0.03)], **given)
    assert any("(chance)" in note for note in result.notes)

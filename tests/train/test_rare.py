"""Losses of another weight for each target: class_weights, focal."""

from __future__ import annotations

import tracemalloc
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from outpace.errors import UsageError
from outpace.train.run import Run
from outpace.train.strategies import (
    Accumulation,
    ClassWeights,
    Constant,
    Focal,
    OneCycle,
    RepeatFactor,
    Strategy,
    class_weights,
)
from outpace.train.strategies.repeat_factor import pairs
from tests.train.test_curriculum import imbalanced, recalls
from tests.train.toys import fit, own_loss, ready

BINARY = F.binary_cross_entropy_with_logits


def learning(strategy: Strategy, **given: Any) -> Any:
    """What is learnt from, and the plain loss."""
    found: list[Any] = []

    class Begun:
        def begin(self, run: Run) -> None:
            found.extend([run.objective.learning, run.objective.loss])

    fit(
        **{
            "strategies": [strategy, Constant(rate=0.0)],
            "callbacks": [Begun()],
            "valid": None,
            "metric": None,
            "steps": 1,
            **given,
        }
    )
    return found


# --- class_weights ---------------------------------------------------------------------------


def test_rare_classes_are_recalled_more_often_in_as_many_steps() -> None:
    ours, plain = recalls(ClassWeights()), recalls()
    assert ours[1] > plain[1] + 0.05
    assert ours[2] > plain[2] + 0.1
    assert sum(ours) > sum(plain) + 0.1


def effective(n: torch.Tensor, beta: float) -> torch.Tensor:
    """Cui et al. 2019: 1 / E_n, E_n = (1 - beta^n) / (1 - beta)."""
    return (1 - beta) / (1 - beta**n)


@pytest.mark.parametrize("loss", [F.cross_entropy, nn.CrossEntropyLoss()], ids=["call", "module"])
def test_targets_are_weighted_by_the_effective_number(loss: Any) -> None:
    x, y = imbalanced(300)
    ours, plain = learning(ClassWeights(0.99), train=[(x, y)], loss=loss)
    n = torch.bincount(y, minlength=3) + 1.0
    weights = effective(n, 0.99)
    weights *= n.sum() / (n * weights).sum()
    outputs = torch.randn(300, 3, generator=torch.Generator().manual_seed(0))
    each = weights[y] * F.cross_entropy(outputs, y, reduction="none")
    assert float(ours(outputs, y)) == pytest.approx(float(each.mean()), rel=1e-5)
    assert plain is loss
    some = torch.where(torch.arange(300) % 2 == 0, y, -100)
    assert float(ours(outputs, some)) == pytest.approx(float(each[::2].mean()), rel=1e-5)


def test_what_the_loss_ignores_does_not_count() -> None:
    x, y = imbalanced(300)
    padded = torch.where(torch.arange(300) % 3 == 0, 1, y)
    loss = nn.CrossEntropyLoss(ignore_index=1)
    ours, _ = learning(ClassWeights(0.99), train=[(x, padded)], loss=loss)
    known = padded != 1
    n = torch.bincount(padded[known], minlength=3) + 1.0
    weights = effective(n, 0.99)
    weights *= n.sum() / (n * weights).sum()
    outputs = torch.randn(300, 3, generator=torch.Generator().manual_seed(0))
    each = weights[padded] * F.cross_entropy(outputs, padded, reduction="none")
    assert float(ours(outputs, padded)) == pytest.approx(float(each[known].mean()), rel=1e-5)


@pytest.mark.parametrize("counts", [None, [200, 60, 41]])
def test_what_is_ignored_may_be_no_class_at_all(counts: list[float] | None) -> None:
    """255 is the border in many data sets of segmentation."""
    x, y = imbalanced(300)
    loss = nn.CrossEntropyLoss(ignore_index=255)
    padded = torch.where(torch.arange(300) % 3 == 0, 255, y)
    ours, _ = learning(ClassWeights(0.99, counts=counts), train=[(x, padded)], loss=loss)
    plain = [(x, torch.where(padded == 255, -100, y))]
    other, _ = learning(ClassWeights(0.99, counts=counts), train=plain)
    outputs = torch.randn(300, 3, generator=torch.Generator().manual_seed(0))
    wanted = other(outputs, torch.where(padded == 255, -100, y))
    assert float(ours(outputs, padded)) == pytest.approx(float(wanted))


def test_classes_may_be_told_in_bytes() -> None:
    """Class 156 is none that is left out, though -100 is the same byte."""
    y = torch.where(imbalanced(300)[1] == 0, 156, 1)
    x = torch.randn(300, 8, generator=torch.Generator().manual_seed(0))
    ours, numbers = (
        learning(ClassWeights(0.99), model=nn.Linear(8, 157), train=[(x, each)])[0]
        for each in (y.byte(), y)
    )
    outputs = torch.randn(300, 157, generator=torch.Generator().manual_seed(0))
    assert float(ours(outputs, y.byte())) == pytest.approx(float(numbers(outputs, y)))


def test_ones_and_zeros_of_each_output_are_two_classes() -> None:
    chance = torch.Generator().manual_seed(0)
    y = (torch.rand(200, 3, generator=chance) < torch.tensor([0.5, 0.1, 0.02])).float()
    x = torch.randn(200, 8, generator=chance)
    train = [(x[:100], y[:100]), (x[100:], y[100:])]
    ours, _ = learning(ClassWeights(0.9), train=train, loss=BINARY)
    ones = y.sum(0) + 1
    zeros = 202 - ones
    high, low = effective(ones, 0.9), effective(zeros, 0.9)
    scale = 202 / (ones * high + zeros * low)
    outputs = torch.randn(200, 3, generator=chance)
    weights = torch.where(y == 1, high * scale, low * scale)
    wanted = (weights * BINARY(outputs, y, reduction="none")).mean()
    assert float(ours(outputs, y)) == pytest.approx(float(wanted), rel=1e-5)
    assert float((weights * y)[:, 2].sum()) > 1.5 * float(y[:, 2].sum())


@pytest.mark.parametrize("size", [3, 100])
def test_one_hot_targets_weigh_as_the_numbers_of_their_classes(size: int) -> None:
    x, y = imbalanced(300)
    hot = F.one_hot(y, 3).float()
    one, other = (list(zip(x.split(size), t.split(size), strict=True)) for t in (hot, y))
    strategy = ClassWeights(0.99)
    ours, _ = learning(strategy, train=one)
    numbers, _ = learning(ClassWeights(0.99), train=other)
    outputs = torch.randn(300, 3, generator=torch.Generator().manual_seed(0))
    for some in (slice(3), slice(300)):
        wanted = float(numbers(outputs[some], y[some]))
        assert float(ours(outputs[some], hot[some])) == pytest.approx(wanted, rel=1e-5)
    halves = 0.5 * (hot + hot.roll(1, 1))
    each = (halves @ strategy.weights) * F.cross_entropy(outputs, halves, reduction="none")
    assert float(ours(outputs, halves)) == pytest.approx(float(each.mean()), rel=1e-5)


def test_batches_that_make_a_step_together_are_an_epoch_all_the_same() -> None:
    x, y = imbalanced(1000)
    train = list(zip(x.split(10), y.split(10), strict=True))
    weights = []
    for position in (0, 1):
        strategy = ClassWeights()
        strategies: list[Strategy] = [strategy, Constant(rate=0.0)]
        strategies.insert(position, Accumulation(4))
        learning(strategy, strategies=strategies, train=train)
        weights.append(strategy.weights.tolist())
    assert weights[0] == pytest.approx(weights[1])


def test_an_epoch_is_told_from_its_first_batches() -> None:
    """Of 100 batches, 64 are looked at."""
    x, y = imbalanced(1000)
    train = list(zip(x.split(10), y.split(10), strict=True))
    ours, _ = learning(ClassWeights(0.999), train=train)
    n = (torch.bincount(y[:640], minlength=3) + 1.0) / 0.64
    given, _ = learning(ClassWeights(0.999, counts=n.tolist()), train=train)
    outputs = torch.randn(1000, 3, generator=torch.Generator().manual_seed(0))
    assert float(ours(outputs, y)) == pytest.approx(float(given(outputs, y)), rel=1e-5)


def test_validation_has_the_plain_loss() -> None:
    strategies: list[Strategy] = [ClassWeights(), Constant(rate=0.0)]
    losses = [
        fit(train=[imbalanced(100)], strategies=each, epochs=1).history[-1]
        for each in (strategies, strategies[1:])
    ]
    assert losses[0].valid_loss == losses[1].valid_loss
    assert losses[0].train_loss != losses[1].train_loss


def test_counts_that_do_not_fit_the_outputs_are_told() -> None:
    y = (torch.rand(60, 3, generator=torch.Generator().manual_seed(0)) < 0.3).float()
    ones = {"loss": BINARY, "train": [(torch.randn(60, 8), y)]}
    with pytest.raises(UsageError, match="classes that exclude each other"):
        learning(ClassWeights(counts=[30, 20, 10]), **ones)
    with pytest.raises(UsageError, match="of 2 classes, and the model tells 3"):
        learning(ClassWeights(counts=[30, 20]))


# --- focal -----------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", [BINARY, nn.BCEWithLogitsLoss(), partial(BINARY)])
def test_focal_is_the_papers_equation(loss: Any) -> None:
    chance = torch.Generator().manual_seed(0)
    outputs = torch.randn(50, 3, generator=chance)
    targets = (torch.rand(50, 3, generator=chance) < 0.5).float()
    ours, _ = learning(Focal(), train=[(torch.randn(50, 8), targets)], loss=loss)
    p = torch.where(targets == 1, outputs.sigmoid(), 1 - outputs.sigmoid())
    wanted = (-((1 - p) ** 2) * p.log()).mean()
    assert float(ours(outputs, targets)) == pytest.approx(float(wanted), rel=1e-5)


def test_focal_may_be_told_classes_in_bytes() -> None:
    """Class 156 is none that is left out, though -100 is the same byte."""
    y = torch.where(imbalanced(300)[1] == 0, 156, 1)
    x = torch.randn(300, 8, generator=torch.Generator().manual_seed(0))
    ours, _ = learning(Focal(), model=nn.Linear(8, 157), train=[(x, y)])
    outputs = torch.randn(300, 157, generator=torch.Generator().manual_seed(0))
    assert float(ours(outputs, y.byte())) == pytest.approx(float(ours(outputs, y)))


def test_focal_of_classes_is_the_papers_equation() -> None:
    chance = torch.Generator().manual_seed(0)
    outputs, targets = torch.randn(50, 3, generator=chance), torch.arange(50) % 3
    ours, _ = learning(Focal(1.0))
    p = outputs.softmax(1)[torch.arange(50), targets]
    assert float(ours(outputs, targets)) == pytest.approx(float(-((1 - p) * p.log()).mean()))
    zero, plain = learning(Focal(0.0))
    assert float(zero(outputs, targets)) == pytest.approx(float(plain(outputs, targets)))


@pytest.mark.parametrize("ignored", [-100, 1])
def test_what_the_loss_ignores_has_no_part_in_the_focused_mean(ignored: int) -> None:
    chance = torch.Generator().manual_seed(0)
    outputs, y = torch.randn(100, 3, generator=chance), torch.arange(100) % 3
    padded = torch.where(torch.arange(100) < 80, ignored, y)
    loss = nn.CrossEntropyLoss(ignore_index=ignored)
    zero, plain = learning(Focal(0.0), loss=loss)
    assert float(zero(outputs, padded)) == pytest.approx(float(plain(outputs, padded)))
    ours, _ = learning(Focal(), loss=loss)
    known = padded != ignored
    p = outputs.softmax(1)[known][torch.arange(int(known.sum())), y[known]]
    assert float(ours(outputs, padded)) == pytest.approx(float(-((1 - p) ** 2 * p.log()).mean()))


@pytest.mark.parametrize(
    ("loss", "more"),
    [
        (nn.CrossEntropyLoss, {"weight": torch.tensor([1.0, 5.0, 9.0])}),
        (nn.CrossEntropyLoss, {"label_smoothing": 0.2}),
        (F.cross_entropy, {"weight": torch.tensor([1.0, 5.0, 9.0]), "label_smoothing": 0.2}),
        (nn.BCEWithLogitsLoss, {"pos_weight": torch.tensor([1.0, 5.0, 9.0])}),
        (BINARY, {"weight": torch.tensor([2.0, 0.5, 9.0])}),
    ],
)
def test_focal_tells_p_without_what_weights_or_smooths_the_loss(
    loss: Any, more: dict[str, Any]
) -> None:
    chance = torch.Generator().manual_seed(0)
    outputs, targets = torch.randn(50, 3, generator=chance), torch.arange(50) % 3
    p = outputs.softmax(1)[torch.arange(50), targets]
    binary = loss in (BINARY, nn.BCEWithLogitsLoss)
    if binary:
        targets = F.one_hot(targets, 3).float()  # type: ignore[assignment]
        p = torch.where(targets == 1, outputs.sigmoid(), 1 - outputs.sigmoid())
    is_module = isinstance(loss, type)
    given = loss(**more) if is_module else partial(loss, **more)
    ours, _ = learning(Focal(), train=[(torch.randn(50, 8), targets)], loss=given)
    each = loss(**more, reduction="none") if is_module else partial(given, reduction="none")
    wanted = ((1 - p) ** 2 * each(outputs, targets)).mean()
    assert float(ours(outputs, targets)) == pytest.approx(float(wanted), rel=1e-5)


def rare_things(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Scenes of 40 places, at one in a hundred of which there is something."""
    chance = torch.Generator().manual_seed(seed)
    y = (torch.rand(count, 40, generator=chance) < 0.01).float()
    x = torch.randn(count, 40, 12, generator=chance)
    x[..., :3] += 1.2 * y.unsqueeze(2)
    return x, y


class Detector(nn.Module):
    """[N, 40, 12] -> [N, 40]"""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.layers(x)
        return found.squeeze(2)


def precision(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """On average, over what is there."""
    there = targets.flatten()[outputs.flatten().argsort(descending=True)]
    return (there * there.cumsum(0) / torch.arange(1, len(there) + 1)).sum() / there.sum()


def test_the_few_are_found_sooner_where_the_many_hardly_count() -> None:
    x, y = rare_things(400, 0)
    found = []
    for strategies in ([Focal()], []):
        result = fit(
            model=Detector(),
            train=list(zip(x.split(20), y.split(20), strict=True)),
            valid=[rare_things(400, 1)],
            loss=BINARY,
            metric=precision,
            epochs=2,
            strategies=[*strategies, OneCycle(rate=0.02)],
        )
        found.append(result.history[-1].metric or 0.0)
    assert found[0] > 1.3 * found[1]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"strategies": [ClassWeights(), RepeatFactor()]}, "does not go with repeat_factor"),
        ({"strategies": [ClassWeights(), Focal()]}, "both set the loss"),
        (
            {"strategies": ["class_weights"], "loss": own_loss},
            "class_weights needs the loss of each target",
        ),
        (
            {"strategies": ["class_weights"], "loss": nn.CrossEntropyLoss(reduction="sum")},
            "class_weights needs the loss of each target",
        ),
        (
            {
                "strategies": ["class_weights"],
                "loss": F.mse_loss,
                "train": [(x, x[:, :3]) for x, _ in ready()],
                "metric": None,
            },
            "targets are no classes of the 3 outputs",
        ),
        ({"strategies": ["focal"], "loss": F.mse_loss}, "it is not known whether"),
    ],
)
def test_they_tell_why_they_can_not(given: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        fit(**given)


@pytest.mark.parametrize("dtype", [torch.long, torch.bool, torch.uint8, torch.float32])
def test_a_label_each_is_told_without_an_object_each(dtype: torch.dtype) -> None:
    labels = (torch.arange(200_000) % 7 > 5).to(dtype)
    tracemalloc.start()
    try:
        samples, classes = pairs(labels)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 60 * len(labels)
    told = pairs(labels[:50].tolist())
    assert samples[:50].tolist() == told[0].tolist()
    assert classes[:50].tolist() == told[1].tolist()


def test_what_was_counted_is_not_counted_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: list[int] = []
    count = class_weights.first_targets

    def noted(run: Run, most: int) -> Any:
        counts.append(most)
        return count(run, most)

    monkeypatch.setattr(class_weights, "first_targets", noted)
    train = [imbalanced(100)] * 4

    def go(epochs: int, *strategies: Strategy) -> Any:
        course = Constant(rate=0.01)
        return fit(
            train=train, strategies=[*strategies, course], epochs=epochs, checkpoint=tmp_path
        )

    go(1)
    go(2, ClassWeights())
    assert len(counts) == 1  # it is not in the first checkpoint
    strategy = ClassWeights()
    go(3, strategy)
    assert len(counts) == 1
    assert strategy.weights.shape == (3,)

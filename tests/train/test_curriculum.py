"""What is learnt from, and when: repeat_factor, progressive_resizing, sequence_length."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset, Subset, TensorDataset

from outpace.errors import DataError, UsageError
from outpace.serve.loader import Loader
from outpace.train.data import Batches
from outpace.train.objective import Objective
from outpace.train.run import Run
from outpace.train.strategies import (
    Constant,
    OneCycle,
    ProgressiveResizing,
    RepeatFactor,
    SequenceLength,
    Strategy,
)
from outpace.train.strategies.progressive_resizing import resized
from tests.train.test_trials import at, trials
from tests.train.toys import (
    Reader,
    Slow,
    Stop,
    Time,
    convolutional,
    fit,
    images,
    points,
    token_loss,
    tokens,
)

# --- repeat_factor ---------------------------------------------------------------------------


def imbalanced(count: int = 900, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Three classes of 90, 7 and 3 percent that overlap."""
    chance = torch.Generator().manual_seed(seed)
    y = torch.multinomial(torch.tensor([0.9, 0.07, 0.03]), count, True, generator=chance)
    x = torch.randn(count, 8, generator=chance)
    x[torch.arange(count), y] += 1.5
    return x, y


def recalls(*strategies: Strategy) -> list[float]:
    """Of each class, after as many steps."""
    x, y = imbalanced(3000, seed=1)
    torch.manual_seed(0)
    net = nn.Linear(8, 3)
    fit(
        model=net,
        train=Loader(TensorDataset(*imbalanced()), 30, executor="none"),
        valid=None,
        metric=None,
        steps=200,
        strategies=[*strategies, OneCycle(rate=0.05)],
    )
    found = net(x).argmax(1)
    return [float((found[y == c] == c).float().mean()) for c in range(3)]


def test_rare_classes_are_recalled_more_often() -> None:
    ours, plain = recalls(RepeatFactor()), recalls()
    assert ours[1] > plain[1] + 0.05
    assert ours[2] > plain[2] + 0.1
    assert sum(ours) > sum(plain) + 0.1


class Seen:
    """The indices of each epoch."""

    def __init__(self) -> None:
        self.epochs: list[list[int]] = []

    def begin(self, run: Run) -> None:
        if run.train.under_way:
            self.epochs.append([])  # what is left of one

    def epoch_begin(self, run: Run) -> None:
        self.epochs.append([])

    def batch(self, run: Run, batch: Any) -> Any:
        self.epochs[-1] += batch[0][:, 0].int().tolist()


def drawn(
    strategy: Strategy, *callbacks: Any, y: torch.Tensor | None = None, size: int = 10, **given: Any
) -> list[list[int]]:
    """What each of three epochs is made of; samples are numbers."""
    seen = Seen()
    y = imbalanced(100)[1] if y is None else y
    x = torch.zeros(len(y), 8)
    x[:, 0] = torch.arange(len(y))
    given = {
        "train": Loader(TensorDataset(x, y), size, executor="none"),
        "valid": None,
        "metric": None,
        "epochs": 3,
        "strategies": [strategy, Constant(rate=0.0)],
        **given,
    }
    fit(callbacks=[seen, *callbacks], **given)
    return seen.epochs


def test_samples_come_as_often_as_the_formula_says() -> None:
    y = torch.tensor([0] * 90 + [1] * 8 + [2] * 2)
    epochs = drawn(RepeatFactor(0.3), y=y)
    times = [1.0] * 90 + [(0.3 / 0.08) ** 0.5] * 8 + [(0.3 / 0.02) ** 0.5] * 2
    for epoch in epochs:
        assert len(epoch) == int(sum(times)) + 1
        counts = np.bincount(epoch, minlength=100)
        assert (np.abs(counts - times) < 1.1).all()
        assert counts.min() == 1
    assert epochs[0] != epochs[1]
    assert drawn(RepeatFactor(0.3), y=y) == epochs


def test_a_sample_of_several_classes_comes_as_its_rarest() -> None:
    several: list[Any] = [[0], [0, 1], [0], [0]] * 25
    tensors = [torch.tensor(each) for each in several]
    lists = [list(each) for each in tensors]
    matrix = torch.tensor([[1, 0], [1, 1], [1, 0], [1, 0]] * 25)
    names = [["a"], ["a", "b"], ["a"], ["a"]] * 25
    ways = [
        drawn(RepeatFactor(1.0, labels=each)) for each in (several, matrix, names, tensors, lists)
    ]
    assert all(way == ways[0] for way in ways)
    counts = np.bincount(ways[0][0], minlength=100)
    assert (counts[1::4] == 2).all()  # the root of 1 / (1 / 4)
    assert (np.delete(counts, np.s_[1::4]) == 1).all()


def test_labels_may_be_bytes_or_tensors_of_one_number() -> None:
    y = imbalanced(100)[1]
    wanted = drawn(RepeatFactor(labels=y), y=y)
    for labels in ([b"%d.wav" % each for each in y.tolist()], list(y)):
        assert drawn(RepeatFactor(labels=labels), y=y) == wanted


class Named(Dataset[Any]):
    """Tells its classes as torchvision's data sets do."""

    def __init__(self) -> None:
        self.x, self.y = imbalanced(100)
        self.x = torch.arange(100.0).unsqueeze(1) * torch.ones(1, 8)
        self.targets = self.y.tolist()

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> Any:
        return self.x[index], self.y[index]


def test_labels_are_seen_from_the_data() -> None:
    wanted = drawn(RepeatFactor())
    named = Loader(Named(), 10, executor="none")
    assert drawn(RepeatFactor(), train=named) == wanted
    for whole in (Named(), TensorDataset(Named().x, Named().y)):
        part = Loader(Subset(whole, range(100)), 10, executor="none")
        assert drawn(RepeatFactor(), train=part) == wanted


@pytest.mark.parametrize("at", [1, 5, 12, 19])
@pytest.mark.parametrize("size", [5, 10])
def test_it_goes_on_with_the_very_samples(tmp_path: Path, at: int, size: int) -> None:
    """With another size of batches too, none of the epoch is lost or comes twice."""
    first: dict[str, int] = {}

    class First:
        def begin(self, run: Run) -> None:
            first.update(run.train.state_dict()["source"])

    whole = drawn(RepeatFactor())
    with pytest.raises(KeyboardInterrupt):
        drawn(RepeatFactor(), Stop(at), checkpoint=tmp_path, every=0)
    rest = drawn(RepeatFactor(), First(), checkpoint=tmp_path, every=0, size=size)
    before = first["epoch"] * len(whole[0]) + first["consumed"]
    assert before > 0
    assert list(chain(*rest)) == list(chain(*whole))[before:]


def test_a_checkpoint_of_other_repeats_is_refused(tmp_path: Path) -> None:
    drawn(RepeatFactor(), checkpoint=tmp_path)
    with pytest.raises(DataError, match="samples"):
        drawn(RepeatFactor(0.9), checkpoint=tmp_path)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"train": [(torch.zeros(4, 8), torch.zeros(4).long())]}, "gives ready batches"),
        ({"train": list(zip(*points(24), strict=True)), "batch_size": 4}, "from a list"),
        (
            {"train": points(24), "batch_size": 4, "strategies": [RepeatFactor(labels=[0, 1])]},
            "2 factors for 24 samples",
        ),
    ],
)
def test_repeat_factor_tells_why_it_can_not(given: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        fit(**{"strategies": [RepeatFactor()], **given})


# --- what grows with the clock ---------------------------------------------------------------


class Sizes:
    """The last dimension of each batch's inputs, and of its targets, as the model gets them."""

    def __init__(self) -> None:
        self.inputs: list[int] = []
        self.targets: list[int] = []
        self.elements = 0

    def batch(self, run: Run, batch: Any) -> None:
        self.inputs.append(batch[0].shape[-1])
        self.targets.append(batch[1].shape[-1])
        self.elements += batch[0].numel()


def sizes(strategy: Strategy, **given: Any) -> Sizes:
    seen = Sizes()
    fit(strategies=[strategy, OneCycle(rate=0.01)], callbacks=[seen], **given)
    return seen


def test_images_grow_and_end_whole() -> None:
    sides = sizes(ProgressiveResizing(), model=convolutional(), train=images(), valid=None,
                  metric=None, epochs=5).inputs  # fmt: skip
    assert len(sides) == 40
    assert sides == sorted(sides)
    assert set(sides) == {16, 24, 32}
    assert set(sides[28:]) == {32}  # from 70 % on
    assert sides[27] == 24


GROWING: list[tuple[Strategy, dict[str, Any], int]] = [
    (ProgressiveResizing(), {"model": convolutional()}, 32),
    (SequenceLength(), {"model": Reader(), "loss": token_loss}, 64),
]


@pytest.mark.parametrize(("strategy", "given", "whole"), GROWING)
def test_they_grow_with_the_time_of_a_budget(
    strategy: Strategy, given: dict[str, Any], whole: int
) -> None:
    time = Time()
    source = images() if whole == 32 else tokens()
    train = Slow(source, time, lambda: 0.5 if time.s < 150.0 else 1.0)
    seen = sizes(strategy, train=train, valid=None, metric=None, budget=100.0, now=time, **given)
    grown = seen.inputs.index(whole)
    assert seen.inputs == sorted(seen.inputs)
    assert set(seen.inputs[grown:]) == {whole}
    seconds = 0.5 * min(grown, 100) + max(0, grown - 100)
    assert seconds == pytest.approx(strategy.until * 100.0, abs=3.0)  # type: ignore[attr-defined]


def learnt(make: Callable[[], dict[str, Any]], *strategies: Strategy) -> tuple[float, int]:
    """The last validation, and how many pixels or tokens went through the model on the way there."""
    seen = Sizes()
    result = fit(
        strategies=[*strategies, OneCycle(rate=0.01)], callbacks=[seen], epochs=10, **make()
    )
    row = result.history[-1]
    value = row.metric if row.metric is not None else row.valid_loss
    assert value is not None
    return value, seen.elements


def test_images_are_learnt_as_well_from_two_thirds_of_the_pixels() -> None:
    def make() -> dict[str, Any]:
        return {"model": convolutional(), "train": images(), "valid": images(240, seed=1)}

    (ours, pixels), (plain, all_pixels) = learnt(make, ProgressiveResizing()), learnt(make)
    assert pixels < 0.67 * all_pixels
    assert ours > plain - 0.02
    assert plain > 0.9


def test_chains_are_learnt_as_well_from_fewer_tokens() -> None:
    def make() -> dict[str, Any]:
        return {
            "model": Reader(), "train": tokens(), "valid": tokens(seed=1),
            "loss": token_loss, "metric": None,
        }  # fmt: skip

    (ours, some), (plain, every) = learnt(make, SequenceLength(until=0.6)), learnt(make)
    assert some < 0.8 * every
    assert ours < 1.02 * plain


class Reached(Sizes):
    """How many pixels or tokens had gone through the model when a validation was first as good as that."""

    def __init__(self, target: float) -> None:
        super().__init__()
        self.target = target
        self.at: int | None = None

    def validated(self, run: Run) -> None:
        sign = 1.0 if run.objective.metric is not None else -1.0
        if self.at is None and sign * (run.value(run.history[-1]) or 0.0) >= sign * self.target:
            self.at = self.elements


def until(target: float, given: dict[str, Any], *strategies: Strategy) -> int:
    """Elements until the target is reached."""
    reached = Reached(target)
    course = [*strategies, OneCycle(rate=0.01)]
    fit(strategies=course, callbacks=[reached], epochs=10, validate_every=2, **given)
    assert reached.at is not None
    return reached.at


SEEDS = [*(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2)), 2]


@pytest.mark.parametrize("seed", SEEDS)
def test_images_reach_a_target_with_fewer_pixels(seed: int) -> None:
    def given() -> dict[str, Any]:
        return {
            "model": convolutional(seed), "train": images(seed=2 * seed),
            "valid": images(240, seed=2 * seed + 1), "seed": seed,
        }  # fmt: skip

    assert until(0.9, given(), ProgressiveResizing()) < 0.5 * until(0.9, given())


@pytest.mark.parametrize("seed", SEEDS)
def test_chains_reach_a_target_with_fewer_tokens(seed: int) -> None:
    def given() -> dict[str, Any]:
        return {
            "model": Reader(), "train": tokens(seed=2 * seed), "valid": tokens(seed=2 * seed + 1),
            "loss": token_loss, "metric": None, "seed": seed,
        }  # fmt: skip

    assert until(1.7, given(), SequenceLength()) < 0.7 * until(1.7, given())


def prompted(length: int = 40) -> list[Any]:
    """Chains of whose symbols none is to be told before the answer begins."""
    return [(x, torch.where(torch.arange(64) < length, -100, y)) for x, y in tokens(24)]


def places(side: float) -> list[Any]:
    """Images, each with a point of which the place is to be told, where their side is so long."""
    chance = torch.Generator().manual_seed(3)
    return [(x, side * torch.rand(len(y), 3, generator=chance)) for x, y in images(24)]


def test_a_batch_that_would_have_no_target_left_stays_whole() -> None:
    train = [*tokens(24), *prompted(20)]
    seen = sizes(SequenceLength(), model=Reader(), train=train, valid=None, metric=None,
                 loss=token_loss, epochs=10)  # fmt: skip
    assert seen.inputs[:8] == [8, 8, 64, 64, 24, 24, 32, 40]  # prompts have 20 of 64 symbols
    assert seen.targets == seen.inputs


def test_what_would_have_no_target_left_is_not_chosen() -> None:
    train = Batches(prompted(), torch.device("cpu"))
    given: dict[str, Any] = {"module": Reader(), "objective": Objective(token_loss)}
    found = trials(**given, train=train, valid=train, steps=10)
    (tried,) = found.contest(at(0.01), [(at(0.01, SequenceLength(), name="shorter"), "")])
    assert not tried.better
    assert "the loss of 8 of 64 tokens is nan" in tried.told()


def test_places_as_shares_of_the_side_go_with_smaller_images() -> None:
    given: dict[str, Any] = {"model": convolutional(), "valid": None, "metric": None, "epochs": 1}
    train = places(1.0)
    assert min(sizes(ProgressiveResizing(), train=train, loss=F.mse_loss, **given).inputs) == 16
    ages = [(x, 90.0 * y[:, :1]) for x, y in train]  # one number a sample is no place

    def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return F.mse_loss(outputs[:, :1], targets)

    assert min(sizes(ProgressiveResizing(), train=ages, loss=loss, **given).inputs) == 16


def test_sequences_grow_in_eights_and_end_whole() -> None:
    seen = sizes(SequenceLength(), model=Reader(), train=tokens(length=60), valid=None, metric=None,
                 loss=token_loss, epochs=10)  # fmt: skip
    assert seen.inputs == sorted(seen.inputs)
    assert seen.inputs[0] == 8
    assert set(seen.inputs[:24]) == {8, 16, 24, 32, 40, 48, 56}
    assert set(seen.inputs[24:]) == {60}  # from 30 % on
    assert seen.targets == seen.inputs


def test_what_is_as_large_as_the_images_goes_with_them() -> None:
    batch = {
        "image": torch.arange(64.0).reshape(1, 1, 8, 8),
        "mask": torch.arange(64).reshape(1, 8, 8),
        "depth": torch.ones(1, 8, 8),
        "name": "a",
        "label": torch.tensor([3]),
    }
    small = resized(batch, (8, 8), (4, 4))
    assert small["image"].shape == (1, 1, 4, 4)
    assert small["image"][0, 0, 0, 0] == pytest.approx((0 + 1 + 8 + 9) / 4)
    assert small["mask"].shape == (1, 4, 4)
    assert small["mask"].dtype == torch.int64
    assert set(small["mask"].flatten().tolist()) <= set(range(64))
    assert small["depth"].shape == (1, 4, 4)
    assert (small["name"], small["label"].tolist()) == ("a", [3])
    assert batch["image"].shape == (1, 1, 8, 8)


@pytest.mark.parametrize(
    ("strategy", "given", "said"),
    [
        (
            "progressive_resizing",
            {
                "model": nn.Sequential(nn.Flatten(), nn.Linear(1024, 3)),
                "train": images(24),
                "valid": None,
            },
            "images of 16 x 16 do not go through the model",
        ),
        ("progressive_resizing", {}, "batches hold no images"),
        ("sequence_length", {}, "batches hold no tokens"),
        (
            "sequence_length",
            {
                "model": nn.Sequential(nn.Embedding(8, 4), nn.Flatten(), nn.Linear(256, 8)),
                "train": [(x, y[:, 0]) for x, y in tokens(24)],
                "valid": None,
            },
            "8 of 64 tokens do not go through the model",
        ),
        (
            "sequence_length",
            {
                "model": Reader(),
                "train": prompted(),
                "valid": prompted(),
                "loss": token_loss,
                "metric": None,
            },
            "the loss of 8 of 64 tokens is nan",
        ),
        ("progressive_resizing", {"epochs": None, "target": 0.9}, "needs an end"),
        (
            "progressive_resizing",
            {"model": convolutional(), "train": places(32.0), "loss": F.mse_loss, "valid": None},
            "targets are numbers of up to 30.4, which may be in pixels",
        ),
    ],
)
def test_they_tell_why_they_can_not(strategy: str, given: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        fit(**{"strategies": [strategy], "epochs": 2, **given})

"""What "auto" gains by its trials, and what they cost: trainings in the same budget with and without.

    python bench/auto.py [--steps 2000] [--seeds 3] [--only digits gru] [--grid] [--horizon]

Time is counted, not measured: a step takes 1, a batch without gradients a third. So figures depend on
neither machine nor load, and lr_finder, trials and validations are all on the clock. Printed for each
training: the best validation loss without trials (lr_finder and one_cycle) and with them, their ratio,
and the time to a target, which is 2 % of its way from the best loss without trials to the first one. The
same without trials is 1, and twice the budget stands for never. ``--grid``: also the best loss of a grid
of rates, whose cost is not counted.

``--horizon``: the best rate of a grid by the length of the training, and the exponent with which it falls.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from statistics import mean
from typing import Any, NamedTuple

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F

from outpace.train.result import Result
from outpace.train.strategies import Divergence, LrFinder, OneCycle
from outpace.train.trainer import Trainer

RATES = [10 ** (i / 2) for i in range(-8, 1)]
LENGTHS = [30, 100, 300, 1000]
WAY = 0.02

Pair = tuple[torch.Tensor, torch.Tensor]


class Task(NamedTuple):
    """Data to learn and to judge by, and a model of a seed."""

    train: Pair
    valid: Pair
    model: Callable[[], nn.Module]
    loss: Callable[..., torch.Tensor] = F.cross_entropy
    batch: int = 32


class Ticks:
    """A clock that a loss moves."""

    def __init__(self, loss: Callable[..., torch.Tensor]) -> None:
        self.loss, self.s = loss, 0.0

    def __call__(self) -> float:
        return self.s

    def of(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The loss, some time later."""
        self.s += 1.0 if torch.is_grad_enabled() else 1 / 3
        return self.loss(outputs, targets)


def main() -> None:
    """Train all of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=list(TASKS))
    parser.add_argument("--grid", action="store_true")
    parser.add_argument("--horizon", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.horizon:
        return horizon(options.only, options.seeds)
    print(f"{'training':12} {'without':>9} {'with':>9} {'ratio':>6} {'time':>6}  what was taken")
    ratios, times = [], []
    for name in options.only:
        ratio, time = compared(name, options.steps, options.seeds, grid=options.grid)
        ratios.append(ratio)
        times.append(time)
    print(f"geometric means: loss {geometric(ratios):.3f}, time to target {geometric(times):.3f}")
    return None


def compared(name: str, steps: int, seeds: int, *, grid: bool) -> tuple[float, float]:
    """A training with trials and without."""
    without = [
        trained(name, seed, steps, [Divergence(), LrFinder(), OneCycle()]) for seed in range(seeds)
    ]
    tried = [trained(name, seed, steps, "auto") for seed in range(seeds)]
    ratios, times = [], []
    for one, two in zip(without, tried, strict=True):
        ratios.append(best(two) / best(one))
        target = best(one) + WAY * (one.history[0].valid_loss - best(one))
        times.append(reached(two, target, steps) / reached(one, target, steps))
    taken = {each.what for result in tried for each in result.tried if each.better}
    notes = (note for result in tried for note in result.notes)
    taken |= {note.partition(" ")[0] for note in notes if note.endswith(": taken")}
    loss, other = mean(map(best, without)), mean(map(best, tried))
    line = f"{name:12} {loss:9.4f} {other:9.4f} {geometric(ratios):6.3f} {geometric(times):6.3f}"
    print(f"{line}  {', '.join(sorted(taken)) or 'nothing'}", flush=True)
    if grid:
        fixed = (trained(name, 0, steps, [Divergence(), OneCycle(rate=r)]) for r in RATES)
        print(f"{name:12} {min(map(best, fixed)):9.4f} is the best of a grid", flush=True)
    return geometric(ratios), geometric(times)


def trained(
    name: str, seed: int, steps: float, strategies: Any, *, by_steps: bool = False
) -> Result:
    """One training in a budget of so many steps' time."""
    task = TASKS[name]()
    torch.manual_seed(seed)
    ticks = Ticks(task.loss)
    ends: dict[str, Any] = {"steps": int(steps)} if by_steps else {"budget": float(steps)}
    return Trainer(
        task.model(),
        loss=ticks.of,
        train=task.train,
        valid=task.valid,
        batch_size=task.batch,
        strategies=strategies,
        seed=seed,
        device="cpu",
        validate_every=max(1, int(steps) // 40),
        now=ticks,
        **ends,
    ).fit(quiet=True)


def best(result: Result) -> float:
    """Its best validation loss."""
    return result.metric if result.metric is not None else math.inf


def reached(result: Result, target: float, steps: float) -> float:
    """When a loss was reached; where it was not, twice the time."""
    at = (r.seconds for r in result.history if r.valid_loss is not None and r.valid_loss <= target)
    return next(at, 2.0 * steps)


def geometric(values: Sequence[float]) -> float:
    """Their geometric mean."""
    return math.exp(mean(map(math.log, values)))


def horizon(names: Sequence[str], seeds: int) -> None:
    """The best rate for each length, and how it falls."""
    print(f"{'training':12} " + " ".join(f"{length:>9}" for length in LENGTHS) + "  exponent")
    for name in names:
        rates = [best_rate(name, length, seeds) for length in LENGTHS]
        x = [math.log(length) for length in LENGTHS]
        y = [math.log(rate) for rate in rates]
        slope = sum((a - mean(x)) * (b - mean(y)) for a, b in zip(x, y, strict=True)) / sum(
            (a - mean(x)) ** 2 for a in x
        )
        print(
            f"{name:12} " + " ".join(f"{rate:9.4f}" for rate in rates) + f"  {-slope:.2f}",
            flush=True,
        )


def best_rate(name: str, length: int, seeds: int) -> float:
    """By a parabola through the lowest of the grid and its neighbours, over the rates' logarithms."""
    losses = [
        mean(
            best(trained(name, seed, length, [OneCycle(rate=rate)], by_steps=True))
            for seed in range(seeds)
        )
        for rate in RATES
    ]
    losses = [loss if math.isfinite(loss) else 1e9 for loss in losses]
    low = min(range(len(RATES)), key=losses.__getitem__)
    shift = 0.0
    if 0 < low < len(RATES) - 1:
        left, middle, right = (math.log(losses[low + i]) for i in (-1, 0, 1))
        shift = 0.5 * (left - right) / max(1e-9, left - 2 * middle + right)
    return RATES[low] * 10 ** (shift / 2)


# --- the trainings ----------------------------------------------------------------------------


def halves(x: torch.Tensor, y: torch.Tensor, part: float = 0.8) -> tuple[Pair, Pair]:
    """Shuffled, and in two."""
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    cut = int(part * len(x))
    return (x[order[:cut]], y[order[:cut]]), (x[order[cut:]], y[order[cut:]])


def noisy() -> Task:
    """Four classes of products of dimensions."""
    chance = torch.Generator().manual_seed(1)
    x = torch.randn(3000, 16, generator=chance)
    y = torch.stack([x[:, i] * x[:, i + 4] + x[:, i + 8] for i in range(4)], 1).argmax(1)
    return Task(
        *halves(x, y), lambda: nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))
    )


def digit_pairs() -> tuple[torch.Tensor, torch.Tensor]:
    """scikit-learn's digits, 8 x 8."""
    x, y = load_digits(return_X_y=True)
    return torch.tensor(x, dtype=torch.float32) / 8.0 - 1.0, torch.tensor(y)


def digits() -> Task:
    """A convolutional net with BatchNorm."""
    x, y = digit_pairs()

    def net() -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
            nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
            nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(64, 10),
        )  # fmt: skip

    return Task(*halves(x.view(-1, 1, 8, 8), y), net)


def deep() -> Task:
    """Ten layers of tanh, as torch initialises them."""
    x, y = digit_pairs()

    def net() -> nn.Module:
        inner = [layer for _ in range(9) for layer in (nn.Linear(48, 48), nn.Tanh())]
        return nn.Sequential(nn.Linear(64, 48), nn.Tanh(), *inner, nn.Linear(48, 10))

    return Task(*halves(x, y), net)


def unequal() -> Task:
    """Digits of which more than half are one class."""
    x, y = digit_pairs()
    keep = (y == 0) | (
        torch.rand(len(y), generator=torch.Generator().manual_seed(2)) < 0.012 * (y + 1)
    )
    (rows, classes), valid = halves(x[keep], y[keep])
    return Task(
        (rows.repeat(4, 1), classes.repeat(4)),
        valid,
        lambda: nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)),
    )


def curve() -> Task:
    """A smooth function of four numbers."""
    chance = torch.Generator().manual_seed(3)
    x = torch.rand(3000, 4, generator=chance) * 2 - 1
    y = torch.sin(3 * x[:, :1]) * x[:, 1:2] + torch.exp(-(x[:, 2:3] ** 2) * 4) + 0.1 * x[:, 3:]
    y = y + 0.02 * torch.randn(y.shape, generator=chance)
    return Task(
        *halves(x, y),
        lambda: nn.Sequential(
            nn.Linear(4, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 1)
        ),
        F.mse_loss,
    )


def chains() -> tuple[torch.Tensor, torch.Tensor]:
    """Symbols, each drawn by the two before it."""
    chance = torch.Generator().manual_seed(4)
    odds = torch.rand(12, 12, 12, generator=chance) ** 6
    steps = [torch.randint(12, (2, 600), generator=chance)[i] for i in range(2)]
    for _ in range(31):
        steps.append(torch.multinomial(odds[steps[-2], steps[-1]], 1, generator=chance)[:, 0])
    chain = torch.stack(steps, 1)
    return chain[:, :-1], chain[:, 1:]


def told(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Cross-entropy at each place."""
    return F.cross_entropy(outputs.flatten(0, 1), targets.flatten())


class Gru(nn.Module):
    """Tells the next symbol."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.memory = nn.Embedding(12, 32), nn.GRU(32, 48, batch_first=True)
        self.head = nn.Linear(48, 12)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[N, T] -> [N, T, 12]."""
        found: torch.Tensor = self.head(self.memory(self.embedding(x))[0])
        return found


class Attending(nn.Module):
    """The same by two layers of attention."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.place = nn.Embedding(12, 32), nn.Embedding(64, 32)
        layer = nn.TransformerEncoderLayer(
            32, 4, 64, dropout=0.0, batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(32, 12)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[N, T] -> [N, T, 12]."""
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        inside = self.embedding(x) + self.place(torch.arange(x.shape[1]))
        found: torch.Tensor = self.head(self.layers(inside, mask, is_causal=True))
        return found


def gru() -> Task:
    """A recurrent net on chains of symbols."""
    return Task(*halves(*chains()), Gru, told, 16)


def attention() -> Task:
    """A transformer on the same."""
    return Task(*halves(*chains()), Attending, told, 16)


TASKS: dict[str, Callable[[], Task]] = {
    task.__name__: task for task in (noisy, digits, deep, unequal, curve, gru, attention)
}


if __name__ == "__main__":
    main()

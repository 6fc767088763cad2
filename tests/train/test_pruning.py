"""pruning: zeros come by its equation, stay, and cost less than those that come afterwards."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from outpace.errors import UsageError
from outpace.train.checkpoint import copied
from outpace.train.compress.weights import prunable, prune
from outpace.train.run import Run
from outpace.train.strategies import (
    Constant,
    Divergence,
    OneCycle,
    Pruning,
)
from tests.train.toys import accuracy, fit, model, points, ready


class Sparsities:
    """The share of a net's weights that is zero after each step."""

    def __init__(self) -> None:
        self.seen: list[float] = []
        self.zeros: list[set[int]] = []

    def step_end(self, run: Run) -> None:
        flat = torch.cat([weight.detach().flatten() for weight in prunable(run.module).values()])
        self.seen.append(float((flat == 0).float().mean()))
        self.zeros.append(set((flat == 0).nonzero().flatten().tolist()))


def test_pruning_follows_its_equation_and_zeros_stay() -> None:
    look = Sparsities()
    result = fit(
        strategies=[OneCycle(rate=0.03), Pruning(0.8, begin=0.2, finish=0.6)],
        callbacks=[look],
        epochs=20,
    )
    assert len(look.seen) == 200
    for step, sparsity in enumerate(look.seen, 1):
        u = min(1.0, max(0.0, (step / 200 - 0.2) / 0.4))
        assert sparsity == pytest.approx(0.8 * (1 - (1 - u) ** 3), abs=0.06)
    assert look.seen[38] == 0.0
    assert look.seen[-1] == pytest.approx(0.8, abs=0.01)
    for before, after in zip(look.zeros[120:], look.zeros[121:], strict=False):
        assert before <= after
    kept = torch.cat([result.weights[name].flatten() for name in ("0.weight", "3.weight")])
    assert float((kept == 0).float().mean()) == pytest.approx(0.8, abs=0.01)
    assert result.best is not None
    assert result.best.step >= 120  # the best of those that are as sparse as asked
    assert any("weights are zero" in note for note in result.notes)
    assert not any("before all was pruned" in note for note in result.notes)


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 3)
    )


def test_a_net_that_learns_meanwhile_bears_more() -> None:
    given: dict[str, Any] = {"train": ready(960), "valid": ready(960, seed=1), "epochs": 12}
    during = fit(model=net(), strategies=[OneCycle(rate=0.03), Pruning(0.9)], **given)
    dense = net()
    fit(model=dense, strategies=[OneCycle(rate=0.03)], **given)
    prune(dense, dict.fromkeys(prunable(dense), 0.9))
    x, y = points(960, seed=1)
    after = float(accuracy(dense(x), y))
    assert (during.metric or 0.0) > after + 0.05


def test_layers_can_have_shares_of_their_own() -> None:
    result = fit(
        strategies=[Constant(rate=0.02), Pruning({"0.weight": 0.5})], epochs=10, model=model()
    )
    assert int((result.weights["0.weight"] == 0).sum()) == 64
    assert not (result.weights["3.weight"] == 0).any()
    with pytest.raises(UsageError, match="there is no weight 'nowhere' to prune"):
        fit(strategies=[Pruning({"nowhere": 0.5})])
    with pytest.raises(UsageError, match=r"shares of the budget, in order|begin=0.5"):
        Pruning(begin=0.5, finish=0.2)


def test_a_training_that_ends_too_soon_says_so() -> None:
    class Ends:
        def epoch_end(self, run: Run) -> None:
            if run.epoch == 3:
                run.stop("enough")

    result = fit(strategies=[OneCycle(rate=0.03), "pruning"], epochs=10, callbacks=[Ends()])
    assert any("before all was pruned" in note for note in result.notes)


def test_what_does_not_learn_is_not_pruned() -> None:
    net = model()
    net[0].requires_grad_(False)
    result = fit(strategies=[Constant(rate=0.02), Pruning(0.5)], epochs=10, model=net)
    assert not (result.weights["0.weight"] == 0).any()
    assert float((result.weights["3.weight"] == 0).float().mean()) == 0.5
    net.requires_grad_(False)
    net[0].bias.requires_grad_()
    with pytest.raises(UsageError, match="no layer that learns"):
        fit(strategies=[Constant(rate=0.02), Pruning(0.5)], model=net)


def test_what_an_earlier_end_said_is_forgotten(tmp_path: Path) -> None:
    class Ends:
        def epoch_end(self, run: Run) -> None:
            if run.epoch == 3:
                run.stop("enough")

    def go(*callbacks: Any) -> str:
        strategies, given = [Constant(rate=0.02), Pruning(0.5)], [*callbacks]
        notes = fit(strategies=strategies, epochs=8, checkpoint=tmp_path, callbacks=given).notes
        (told,) = [note for note in notes if note.startswith("pruning: ")]
        return told

    assert "before all was pruned" in go(Ends())
    assert "before all was pruned" not in go()


def test_zeros_stay_through_a_roll_back() -> None:
    class Breaks:
        def loss(self, run: Run, loss: torch.Tensor) -> torch.Tensor | None:
            return loss * math.nan if run.step == 150 else None

    look = Sparsities()
    result = fit(
        strategies=[Divergence(every=32), OneCycle(rate=0.02), Pruning(0.7)],
        callbacks=[Breaks(), look],
        epochs=30,
    )
    assert any("divergence" in note for note in result.notes)
    assert look.seen[-1] == pytest.approx(0.7, abs=0.01)
    assert all(torch.isfinite(weight).all() for weight in result.weights.values())


def test_a_target_does_not_go_with_pruning() -> None:
    with pytest.raises(UsageError, match="pruning does not go with target"):
        fit(strategies=["one_cycle", "pruning"], target=0.9)


def test_a_model_that_is_trained_already_is_pruned_to_the_end() -> None:
    """Its loss grows by that, from next to nothing: beside "divergence", which "auto" always has."""
    net, (x, y) = model(), points()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    for _ in range(600):
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()
    look = Sparsities()
    result = fit(
        model=net,
        strategies=[Divergence(), OneCycle(rate=1e-4), Pruning(0.95)],
        callbacks=[look],
        epochs=40,
    )
    assert result.stopped != "diverged", result.notes
    assert look.seen[-1] == pytest.approx(0.95, abs=0.01)


def test_a_roll_back_to_more_weights_leaves_those_out_at_once() -> None:
    """Also where no step is to follow, as at the end."""
    net, strategy = model(), Pruning(0.5)
    looks: list[float] = []

    class Back:
        before: Any = None

        def step_end(self, run: Run) -> None:
            if run.step == 1:
                self.before = copied(run.learned())
            if run.step == 300:
                run.load_learned(self.before)
                weight = run.module.get_parameter("0.weight")
                looks.append(float((weight == 0).float().mean()))

    fit(model=net, strategies=[strategy, OneCycle(rate=0.02)], callbacks=[Back()], epochs=30)
    assert looks == [pytest.approx(0.5, abs=0.01)]

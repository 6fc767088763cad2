"""divergence: where a training goes back to, and what goes back with it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, final

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from outpace.measure.statistics import median
from outpace.train.alike import loss_of_none
from outpace.train.checkpoint import copied
from outpace.train.run import Run
from outpace.train.strategies import (
    STRATEGIES,
    Constant,
    Divergence,
    Ema,
    OneCycle,
    Plateau,
    Target,
    TaskCurriculum,
    divergence,
    plateau,
)
from outpace.train.strategies.base import Course, Strategy
from tests.train.toys import (
    accuracy,
    fit,
    made,
    model,
    partly_ignored,
    points,
    ready,
    same,
    suited,
)


class Breaks:
    """Once, the loss becomes what it is told."""

    def __init__(self, at: int, value: float) -> None:
        self.at, self.value = at, value
        self.rates: list[float] = []

    def loss(self, run: Run, loss: torch.Tensor) -> torch.Tensor:
        self.rates.append(run.rates.peak)
        if run.step == self.at:
            return loss * self.value
        return loss


def test_a_loss_that_is_not_finite_rolls_back_and_halves_the_rate() -> None:
    breaks = Breaks(300, math.nan)
    result = fit(
        strategies=[Divergence(every=32), OneCycle(rate=0.02)], callbacks=[breaks], epochs=60
    )
    assert result.stopped == "epochs"
    assert (result.metric or 0.0) > 0.9
    note = next(note for note in result.notes if "divergence" in note)
    assert "the loss became nan" in note
    assert "back to the weights of step 2" in note
    assert breaks.rates[290] == pytest.approx(0.02)
    assert breaks.rates[-1] == pytest.approx(0.01)
    assert all(torch.isfinite(weight).all() for weight in result.weights.values())
    assert all(math.isfinite(row.train_loss or 0.0) for row in result.history[32:])


def test_weights_go_back_bit_for_bit() -> None:
    seen: dict[int, Any] = {}

    class Watch(Breaks):
        def step_end(self, run: Run) -> None:
            if run.step in (64, 96, 320):
                seen[run.step] = {k: v.clone() for k, v in run.module.state_dict().items()}

    watch = Watch(300, math.inf)
    fit(strategies=[Divergence(every=1000), Constant(rate=0.02)], callbacks=[watch], epochs=40)
    assert same(seen[320], dict(model().state_dict()))


def test_a_rate_that_explodes_is_lowered_until_it_learns() -> None:
    net = nn.Linear(8, 1)
    x, _ = points(320)
    train = list(zip(x.split(8), x[:, :1].split(8), strict=True))
    result = fit(
        model=net,
        loss=nn.functional.mse_loss,
        metric=None,
        train=train,
        valid=train,
        optimizer=torch.optim.SGD(net.parameters(), 1.0),
        strategies=[Divergence()],
        epochs=30,
    )
    assert any("divergence" in note for note in result.notes)
    assert result.stopped == "epochs"
    assert (result.metric or 1.0) < 0.01


def test_it_gives_up_in_the_end() -> None:
    class Always:
        def loss(self, run: Run, loss: torch.Tensor) -> torch.Tensor:
            return loss * math.nan

    result = fit(
        strategies=[Divergence(most=2), OneCycle(rate=0.1)], callbacks=[Always()], epochs=50
    )
    assert result.stopped == "diverged"
    assert result.steps == 3 * 32
    assert all(torch.isfinite(weight).all() for weight in result.weights.values())


def test_nothing_happens_where_nothing_diverges() -> None:
    one = fit(strategies=[Divergence(every=32), OneCycle(rate=0.03)], epochs=20)
    two = fit(strategies=[OneCycle(rate=0.03)], epochs=20)
    assert same(dict(one.weights), dict(two.weights))


@pytest.mark.parametrize(
    ("spoilt", "cut"), [(300, 310), (400, 300), (300, 330), (20, 25), (400, 350)]
)
def test_after_a_resume_it_goes_back_as_far(tmp_path: Path, spoilt: int, cut: int) -> None:
    """Cut off between what spoils the weights and the look that tells, or between the copy and that."""

    class Cut:
        def step_end(self, run: Run) -> None:
            if run.step == cut:
                run.save()
                raise KeyboardInterrupt

    def go(*callbacks: Any) -> Any:
        return fit(
            strategies=[Divergence(), OneCycle(rate=0.02), Ema()],
            callbacks=[Breaks(spoilt, math.nan), *callbacks],
            epochs=50,
            validate_every=50,
            checkpoint=tmp_path,
            every="1h",
        )

    with pytest.raises(KeyboardInterrupt):
        go(Cut())
    again = go()
    for path in tmp_path.iterdir():
        path.unlink()
    whole = go()
    assert whole.stopped == "epochs"
    assert sum("the loss became nan" in note for note in whole.notes) == 1
    assert again.notes == whole.notes
    assert same(dict(again.weights), dict(whole.weights))


# --- what goes back with it ------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in STRATEGIES if name != "divergence"])
def test_each_strategy_goes_back_to_the_begin(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it makes of itself in its `begin`, which comes after that of divergence."""
    monkeypatch.setattr(divergence, "TOGETHER", 8)
    own = Target(2.0) if name == "target" else made(name)
    course = [] if isinstance(own, Course) else [Constant()]
    losses: list[float] = []

    class Once:
        def loss(self, run: Run, loss: torch.Tensor) -> torch.Tensor | None:
            losses.append(float(loss.detach()))
            return loss * math.nan if run.step == 3 else None

    result = fit(
        **suited(name), strategies=[Divergence(), *course, own], callbacks=[Once()], epochs=3
    )
    back = any("back to the weights of step 0" in note for note in result.notes)
    assert back is (name != "fp16"), "whose scaler has left out the step"
    assert result.stopped == "epochs"
    assert all(math.isfinite(loss) for loss in losses[-8:])


def test_the_average_goes_back_too() -> None:
    averages: dict[int, Any] = {}

    class Watch(Breaks):
        def step_end(self, run: Run) -> None:
            if run.step in (31, 32):
                kept = run.judged_model().state_dict()
                averages[run.step] = {name: value.clone() for name, value in kept.items()}

    watch = Watch(3, math.nan)
    fit(strategies=[Divergence(), Constant(rate=0.02), Ema()], callbacks=[watch], epochs=4)
    assert same(averages[32], dict(model().state_dict()))
    assert not torch.isfinite(averages[31]["0.weight"]).any()


def test_the_order_of_tasks_stays() -> None:
    def flat(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return (outputs - 1.0).square().mean()

    strategy = TaskCurriculum(until=0.9)
    loss = {"class": nn.functional.cross_entropy, "flat": flat}
    breaks = Breaks(3, math.nan)
    fit(
        loss=loss,
        strategies=[Divergence(), Constant(rate=0.02), strategy],
        callbacks=[breaks],
        epochs=20,
    )
    assert sorted(strategy.order) == ["class", "flat"]


def test_drops_of_the_rate_stay_dropped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        plateau, "stalled", lambda costs, *_, **__: "as is told" if len(costs) >= 8 else None
    )
    peaks: list[float] = []

    class Peaks:
        def validated(self, run: Run) -> None:
            peaks.append(run.rates.peak)

    result = fit(
        strategies=[Divergence(every=10_000), Plateau(rate=0.02, drop=0.5, drops=2)],
        callbacks=[Breaks(240, math.nan), Peaks()],
        epochs=40,
    )
    assert any("back to the weights of step 0" in note for note in result.notes)
    assert sum(note.startswith("plateau") for note in result.notes) == 2
    assert peaks[-1] == pytest.approx(0.02 * 0.5**3)


def test_numbers_lost_in_the_last_steps_are_not_kept() -> None:
    class Late:
        steps = 0

        def __call__(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
            self.steps += 1
            return F.cross_entropy(outputs, targets) * (math.nan if self.steps > 35 else 1.0)

    for strategies, kept in (([Divergence()], True), ([], False)):
        given = {"valid": None, "metric": None, "loss": Late(), "steps": 40}
        result = fit(strategies=[*strategies, Constant(rate=0.01)], **given)
        finite = all(bool(w.isfinite().all()) for w in result.weights.values())
        assert finite == kept
        assert ("the last losses are no numbers" in " ".join(result.notes)) == kept


class LastLossesNaN:
    """A callback: so are those of the last four of 40 steps."""

    def loss(self, run: Run, loss: torch.Tensor) -> torch.Tensor | None:
        return loss * math.nan if run.step > 35 else None


def test_a_training_that_ended_so_can_be_started_again(tmp_path: Path) -> None:
    given: dict[str, Any] = {
        "valid": None,
        "metric": None,
        "steps": 40,
        "strategies": [Divergence(), Constant(rate=0.01)],
        "callbacks": [LastLossesNaN()],
        "checkpoint": tmp_path,
    }
    first = fit(**given)
    assert "the last losses are no numbers" in " ".join(first.notes)
    again = fit(**given)
    assert again.steps == 40
    assert same(dict(again.weights), dict(first.weights))


@pytest.mark.parametrize("metric", [None, accuracy])
def test_weights_that_are_no_numbers_are_never_the_best(tmp_path: Path, metric: Any) -> None:
    """The training is shorter than an epoch: its only validation is that of what its last steps have lost."""
    given: dict[str, Any] = {
        "train": ready(60 * 24),
        "metric": metric,
        "steps": 40,
        "strategies": [Divergence(), Constant(rate=0.01)],
        "callbacks": [LastLossesNaN()],
        "checkpoint": tmp_path,
    }
    first = fit(**given)
    assert all(bool(weight.isfinite().all()) for weight in first.weights.values())
    assert math.isfinite(first.metric or math.nan)
    notes = " ".join(first.notes)
    assert "the last losses are no numbers: the weights of step 0 are kept" in notes
    assert "no validation gave a number" not in notes
    again = fit(**given)
    assert (again.metric, again.notes) == (first.metric, first.notes)
    assert same(dict(again.weights), dict(first.weights))


def test_a_metric_that_likes_what_are_no_numbers_costs_no_best_weights() -> None:
    """Of nine in ten targets that are 0 a model of no numbers, which is never above 0, has nine right."""

    class Watch:
        weights: Any = None

        def validated(self, run: Run) -> None:
            if run.step == 10:
                self.weights = copied(run.module.state_dict())

    x = torch.ones(40, 1)
    y = (torch.arange(40) % 10 == 0).float().view(-1, 1)
    net = nn.Linear(1, 1)
    nn.init.ones_(net.weight)
    watch = Watch()
    given: dict[str, Any] = {
        "loss": F.binary_cross_entropy_with_logits,
        "metric": lambda outputs, targets: ((outputs > 0) == targets).float().mean(),
        "train": [(x, y)] * 40,
        "valid": [(x, y)],
        "validate_every": 10,
        "steps": 40,
    }
    result = fit(
        model=net,
        **given,
        strategies=[Divergence(), Constant(rate=1e-3)],
        callbacks=[LastLossesNaN(), watch],
    )
    assert [row.metric for row in result.history] == pytest.approx(
        [0.1, 0.1, 0.1, math.nan], nan_ok=True
    )
    assert result.metric == pytest.approx(0.1)
    assert same(dict(result.weights), watch.weights)
    aimed = fit(
        model=nn.Linear(1, 1),
        **given,
        target=0.85,
        strategies=[Target(0.85), Divergence(), Constant(rate=1e-3)],
        callbacks=[LastLossesNaN()],
    )
    assert (aimed.stopped, aimed.time_to_target_s) == ("steps", None), "no numbers reach no target"


@pytest.mark.parametrize("raises", [True, False])
def test_a_loss_that_a_strategy_raises_is_no_divergence(raises: bool) -> None:
    """Ten times as large from half of the training on; what is not finite is told all the same."""

    @final
    class Harder(Strategy):
        name = "harder"
        raises_loss = raises

        def loss(self, run: Run, loss: torch.Tensor) -> torch.Tensor:
            return loss * (10.0 if run.step >= 100 else 1.0)

    def go(*callbacks: Any) -> Any:
        strategies = [Divergence(), Constant(rate=1e-3), Harder()]
        return fit(strategies=strategies, steps=200, callbacks=callbacks)

    assert any("the loss grew" in note for note in go().notes) is not raises
    assert any("became nan" in note for note in go(LastLossesNaN150()).notes)


class LastLossesNaN150:
    def loss(self, run: Run, loss: torch.Tensor) -> torch.Tensor | None:
        return loss * math.nan if run.step == 150 else None


# --- losses that have taught nothing ---------------------------------------------------------


def test_batches_whose_targets_are_all_ignored_are_no_divergence() -> None:
    given: dict[str, Any] = {"train": partly_ignored(ready()), "epochs": 40}
    result = fit(strategies=[Divergence(), OneCycle(rate=0.03)], **given)
    assert result.stopped == "epochs"
    assert [n for n in result.notes if "divergence" in n] == [divergence.TAUGHT_NOTHING]
    assert all(math.isfinite(row.train_loss or math.nan) for row in result.history)
    assert (result.metric or 0.0) > 0.9
    plain = fit(strategies=[OneCycle(rate=0.03)], **given)
    assert same(dict(result.weights), dict(plain.weights))


def test_nor_are_they_at_the_end() -> None:
    train = ready()[:2] + partly_ignored(ready())[2:3]
    given: dict[str, Any] = {"train": train, "valid": None, "metric": None, "epochs": 10}
    result = fit(strategies=[Divergence(), Constant(rate=0.01)], **given)
    assert not any("are kept" in note for note in result.notes)
    plain = fit(strategies=[Constant(rate=0.01)], **given)
    assert same(dict(result.weights), dict(plain.weights))


@pytest.mark.parametrize("spoilt", [False, True])
def test_what_the_optimizer_keeps_is_to_be_a_number_too(spoilt: bool) -> None:
    """Adam's second moments of infinity leave weights as they are for good."""

    class Odd:
        def loss(self, run: Run, loss: torch.Tensor) -> torch.Tensor | None:
            return loss + math.nan if run.step == 40 else None

        def step_end(self, run: Run) -> None:
            if run.step == 41 and spoilt:
                for each in run.optimizer.state.values():
                    each["exp_avg_sq"].fill_(math.inf)

    result = fit(strategies=[Divergence(), OneCycle(rate=0.02)], callbacks=[Odd()], epochs=20)
    assert any("the loss became nan" in note for note in result.notes) == spoilt
    assert (divergence.TAUGHT_NOTHING in result.notes) != spoilt
    assert (result.metric or 0.0) > 0.9


@pytest.mark.parametrize(("steps", "stopped"), [(320, "epochs"), (1000, "diverged")])
def test_good_steps_make_up_for_a_roll_back(
    steps: int, stopped: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(divergence, "FORGIVEN", steps)
    result = fit(
        strategies=[Divergence(most=1), OneCycle(rate=0.02)],
        callbacks=[Breaks(100, math.nan), Breaks(600, math.nan)],
        epochs=80,
    )
    assert result.stopped == stopped


# --- weights that were trained before --------------------------------------------------------


def learnt() -> nn.Module:
    net = model()
    fit(model=net, strategies=[OneCycle(rate=0.1)], epochs=150, valid=None, metric=None)
    return net


@pytest.mark.parametrize("by_model", [False, True])
def test_what_a_larger_rate_moves_in_a_learnt_model_is_no_divergence(by_model: bool) -> None:
    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        return F.cross_entropy(model(batch[0]), batch[1])

    losses: list[float] = []

    class Watch:
        def loss(self, run: Run, loss: torch.Tensor) -> None:
            losses.append(float(loss.detach()))

    given: dict[str, Any] = {"loss": loss, "metric": None} if by_model else {}
    result = fit(
        model=learnt(),
        **given,
        strategies=[Divergence(), OneCycle(rate=0.1)],
        callbacks=[Watch()],
        epochs=60,
    )
    first = median(losses[:32])
    assert max(median(losses[i : i + 32]) for i in range(0, 600, 32)) > 2.0 * first
    assert not any("divergence" in note for note in result.notes)
    assert result.stopped == "epochs"


def test_a_learnt_model_that_unlearns_goes_back() -> None:
    result = fit(model=learnt(), strategies=[Divergence(), OneCycle(rate=3.0)], epochs=60)
    assert any("divergence: the loss grew" in note for note in result.notes)


def test_the_loss_of_a_model_that_tells_nothing_is_that_of_the_mean() -> None:
    seen: list[float] = []

    class Ask:
        def batch(self, run: Run, batch: Any) -> None:
            if not run.step:
                weights = {n: w.clone() for n, w in run.module.state_dict().items()}
                before = copied(run.learned())
                seen.append(loss_of_none(run, weights, batch))
                assert same(copied(run.learned()), before)

    x, _ = points(240)
    far = 5.0 + x[:, :1]
    net = nn.Linear(8, 1)
    with torch.no_grad():
        net.weight.copy_(torch.eye(8)[:1])
        net.bias.fill_(5.0)
    train = [(x, far)]
    given: dict[str, Any] = {"model": net, "loss": F.mse_loss, "metric": None, "train": train}
    fit(**given, valid=None, callbacks=[Ask()], epochs=1)
    assert seen == [pytest.approx(float(far.var(unbiased=False)), rel=1e-4)]


def test_a_sparse_momentum_is_looked_at_too() -> None:
    """As of an embedding whose gradients are: what it holds is what counts."""
    x = torch.arange(240) % 8
    train = [(part, part % 3) for part in x.split(24)]
    train[2] = (train[2][0], torch.full_like(train[2][1], -100))
    net = nn.Sequential(nn.Embedding(8, 3, sparse=True))
    result = fit(
        model=net,
        train=train,
        valid=train[:2],
        metric=None,
        optimizer=torch.optim.SGD(net.parameters(), 0.1, momentum=0.9),
        strategies=[Divergence()],
        steps=40,
    )
    assert any("targets of a batch" in note for note in result.notes)

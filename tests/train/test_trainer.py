"""The Trainer as a user meets it."""

from __future__ import annotations

import itertools
import math
import threading
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import outpace
from outpace.errors import RecipeError, UsageError
from outpace.measure.machine import describe
from outpace.records.files import write_json
from outpace.records.recipe import Applied, Recipe
from outpace.records.recipe_file import write_recipe
from outpace.records.session import read_session
from outpace.records.training import Row
from outpace.report import write_report
from outpace.serve.loader import Loader
from outpace.train.progress import Telling
from outpace.train.result import Result
from outpace.train.run import Run
from outpace.train.strategies import Constant, Divergence, Ema, OneCycle, Strategy, Target
from outpace.train.trainer import Trainer
from tests.train.toys import (
    Slow,
    Time,
    accuracy,
    fit,
    goes_on_exactly,
    model,
    partly_ignored,
    points,
    ready,
    same,
    trainer,
)


def test_it_learns_and_keeps_the_best_weights() -> None:
    made = trainer(epochs=15)
    result = made.fit(quiet=True)
    assert result.stopped == "epochs"
    assert (result.epochs, result.steps) == (15, 150)
    assert result.metric is not None
    assert result.metric > 0.9
    assert result.metric == max(row.metric or 0.0 for row in result.history)
    x, y = points(120, seed=1)
    assert float(accuracy(made.model.eval()(x), y)) == pytest.approx(result.metric)
    assert same(dict(made.model.state_dict()), dict(result.weights))


def test_the_public_name() -> None:
    assert outpace.Trainer is Trainer
    assert "Trainer" in outpace.__all__


def test_history_has_a_row_an_epoch() -> None:
    result = fit(epochs=3)
    assert [(row.epoch, row.step) for row in result.history] == [(1, 10), (2, 20), (3, 30)]
    for row in result.history:
        assert row.train_loss is not None
        assert row.valid_loss is not None
        assert row.metric is not None
        assert 0.0 <= row.metric <= 1.0
    assert [row.seconds for row in result.history] == sorted(r.seconds for r in result.history)
    told = result.told()
    assert told["history"][0]["step"] == 10
    assert "weights" not in told


def test_a_session_that_a_report_is_made_of(tmp_path: Path) -> None:
    result = fit(epochs=3, target=2.0)
    session = result.session
    assert (session.command, session.outcome, session.what) == ("train", "done", "Sequential")
    assert (session.metric_name, session.larger_is_better, session.target) == (
        "accuracy",
        True,
        2.0,
    )
    assert (session.stopped, session.steps, session.epochs) == ("epochs", 30, 3)
    assert (session.metric, session.best, session.history) == (
        result.metric,
        result.best,
        result.history,
    )
    assert datetime.fromisoformat(session.started).tzinfo is not None
    assert session.machine == describe()
    write_json(tmp_path / "session.json", session)
    assert read_session(tmp_path / "session.json") == session
    write_report(session, tmp_path / "report.html")
    assert "The target, accuracy 2, was not reached" in (tmp_path / "report.html").read_text()


def test_a_session_knows_the_target_of_a_strategy_and_a_metric_without_a_name() -> None:
    strategies = [OneCycle(rate=0.03), Target(0.1)]
    session = fit(metric=lambda outputs, _: outputs.mean(), strategies=strategies).session
    assert (session.target, session.metric_name) == (0.1, "metric")
    session = fit(metric=None, epochs=1).session
    assert (session.metric_name, session.larger_is_better) == (None, False)
    assert session.metric == session.history[-1].valid_loss


def test_the_same_seed_gives_the_same_bits() -> None:
    one, two = (fit(model=model(dropout=0.3)) for _ in range(2))
    other = fit(model=model(dropout=0.3), seed=1)
    assert same(dict(one.weights), dict(two.weights))
    assert not same(dict(one.weights), dict(other.weights))


def test_a_step_is_what_the_bare_loop_does() -> None:
    by_hand = model(dropout=0.2)
    optimizer = torch.optim.SGD(by_hand.parameters(), 0.05, momentum=0.9)
    torch.manual_seed(3)
    for _ in range(2):
        for x, y in ready():
            F.cross_entropy(by_hand(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()
    ours = model(dropout=0.2)
    fit(
        model=ours,
        optimizer=torch.optim.SGD(ours.parameters(), 0.05, momentum=0.9),
        strategies=[],
        valid=None,
        metric=None,
        epochs=2,
        seed=3,
    )
    assert same(dict(by_hand.state_dict()), dict(ours.state_dict()))


def test_validation_leaves_training_as_it_would_be() -> None:
    """A loader that shuffles draws from the generators, and dropout would draw others then."""
    valid = DataLoader(TensorDataset(*points(60, 1)), 10, shuffle=True)
    results = [fit(model=model(dropout=0.3), valid=v, metric=None) for v in (None, valid)]
    losses = [[row.train_loss for row in result.history] for result in results]
    assert losses[0] == losses[1]


@pytest.mark.parametrize("kind", ["tuple", "dataset", "DataLoader", "Loader", "ready"])
def test_ways_to_give_data(kind: str) -> None:
    data = points()
    given: dict[str, Any] = {
        "tuple": {"train": data, "batch_size": 24},
        "dataset": {"train": TensorDataset(*data), "batch_size": 24},
        "DataLoader": {"train": DataLoader(TensorDataset(*data), 24, shuffle=True)},
        "Loader": {"train": Loader(TensorDataset(*data), 24, executor="none")},
        "ready": {"train": ready()},
    }[kind]
    result = fit(**given, epochs=8, valid=DataLoader(TensorDataset(*points(120, 1)), 24))
    assert result.steps == 80
    assert (result.metric or 0.0) > 0.8


@pytest.mark.parametrize(
    ("samples", "strategies", "steps"),
    [(97, ["one_cycle"], 8), (98, ["one_cycle"], 10), (100, ["batch_warmup", "one_cycle"], None)],
)
def test_batch_norm_is_given_no_single_sample(
    samples: int, strategies: list[str], steps: int | None
) -> None:
    given = {"valid": None, "metric": None, "batch_size": 24, "epochs": 2}
    result = fit(model=model(norm=True), train=points(samples), strategies=strategies, **given)
    assert result.epochs == 2
    assert steps in (None, result.steps)
    assert any("left out of an epoch" in note for note in result.notes) == (samples != 98)
    assert fit(train=points(97), **given).steps == 10


def test_loss_of_the_model_and_a_batch() -> None:
    batches = [{"x": x, "y": y} for x, y in ready()]

    def loss(model: torch.nn.Module, batch: dict[str, Any]) -> torch.Tensor:
        return F.cross_entropy(model(batch["x"]), batch["y"])

    def metric(model: torch.nn.Module, batch: dict[str, Any]) -> float:
        return float(accuracy(model(batch["x"]), batch["y"]))

    result = fit(train=batches, valid=batches, loss=loss, metric=metric, epochs=8)
    assert (result.metric or 0.0) > 0.8
    with pytest.raises(UsageError, match="a batch is a dict of x, y"):
        fit(train=batches, valid=None, metric=None)


def test_a_metric_that_gathers() -> None:
    class Recall:
        def reset(self) -> None:
            self.outputs: list[torch.Tensor] = []
            self.targets: list[torch.Tensor] = []

        def update(self, outputs: torch.Tensor, targets: torch.Tensor) -> None:
            self.outputs.append(outputs.argmax(1))
            self.targets.append(targets)

        def compute(self) -> torch.Tensor:
            found, wanted = torch.cat(self.outputs), torch.cat(self.targets)
            return torch.stack([(found[wanted == c] == c).float().mean() for c in range(3)]).mean()

    result = fit(metric=Recall(), epochs=8)
    assert 0.8 < (result.metric or 0.0) <= 1.0


def test_a_metric_may_give_tensors_and_plain_numbers() -> None:
    """As one does that has nothing to divide by in some batches."""

    def recall(outputs: torch.Tensor, targets: torch.Tensor) -> Any:
        of_class = targets == 1
        return (outputs.argmax(1) == targets)[of_class].float().mean() if of_class.any() else 0.0

    x, y = points(120, seed=1)
    order = y.argsort()  # so that some batches have no target of the class
    valid = list(zip(x[order].split(24), y[order].split(24), strict=True))
    assert 0.0 < (fit(metric=recall, valid=valid[::-1], epochs=8).metric or 0.0) < 1.0
    assert 0.0 < (fit(metric=recall, valid=valid[1:], epochs=8).metric or 0.0) < 1.0


def test_batches_weigh_by_their_samples() -> None:
    x, y = points(100, 1)
    result = fit(valid=list(zip(x.split(90), y.split(90), strict=True)), epochs=1)
    made = trainer(epochs=1, valid=[(x, y)])
    assert result.metric == pytest.approx(made.fit(quiet=True).metric)


def test_what_loss_and_metric_hold_goes_to_the_device() -> None:
    class Recall(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("right", torch.zeros(3))

        def forward(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
            return accuracy(outputs, targets)

    net = model()
    loss, metric = torch.nn.CrossEntropyLoss(weight=torch.ones(3)), Recall()
    made = trainer(model=net, loss={"class": loss}, metric=metric, device="meta")
    made.put_together(Telling(quiet=True))
    held = [*loss.buffers(), *metric.buffers(), *net.parameters()]
    assert {tensor.device.type for tensor in held} == {"meta"}


def test_smaller_may_be_better() -> None:
    def error(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return 1.0 - accuracy(outputs, targets)

    result = fit(metric=error, larger_is_better=False, epochs=8)
    assert result.metric == min(row.metric or 0.0 for row in result.history)


def test_without_validation_the_last_weights_are_kept() -> None:
    made = trainer(valid=None, metric=None)
    result = made.fit(quiet=True)
    assert result.best is None
    assert same(dict(made.model.state_dict()), dict(result.weights))
    assert all(row.valid_loss is None for row in result.history)


# --- when it ends ----------------------------------------------------------------------------


def test_steps_end_it_in_the_middle_of_an_epoch() -> None:
    result = fit(steps=25)
    assert (result.stopped, result.steps, result.epochs) == ("steps", 25, 2)
    assert result.history[-1].step == 25


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"valid": None, "metric": None},
        {"strategies": [OneCycle(rate=0.03), Ema()]},
        {"steps": 25, "validate_every": 25},
    ],
)
@pytest.mark.parametrize("learning", [True, False])
def test_layers_are_left_in_the_mode_they_came_in(given: dict[str, Any], learning: bool) -> None:
    net = model(norm=True).train(learning)
    net[1].eval()
    before = [layer.training for layer in net.modules()]
    fit(model=net, **given)
    assert [layer.training for layer in net.modules()] == before


def test_validation_every_so_many_steps() -> None:
    result = fit(epochs=2, validate_every=4)
    assert [row.step for row in result.history] == [4, 8, 12, 16, 20]


def test_what_a_strategy_asks_for_does_not_stand_for_the_validation_of_an_epoch() -> None:
    class Asks:
        def step_end(self, run: Run) -> None:
            run.asked = run.step == 3

    result = fit(epochs=3, validate_every=15, callbacks=[Asks()])
    assert [row.step for row in result.history] == [3, 10, 15, 30]


@pytest.mark.parametrize("validate_every", [None, 3])
def test_what_is_given_in_evaluation_mode_learns_in_it(validate_every: int | None) -> None:
    modes: list[tuple[bool, ...]] = []

    class Seeing:
        def batch(self, run: Run, batch: Any) -> None:
            modes.append(tuple(layer.training for layer in run.module))

    net = model(dropout=0.3, norm=True)
    net[1].eval()
    result = fit(model=net, epochs=2, validate_every=validate_every, callbacks=[Seeing()])
    assert set(modes) == {(True, False, True, True, True)}
    assert int(result.weights["1.num_batches_tracked"]) == 0
    assert "1 stay in evaluation mode, as they were given" in result.notes
    whole = fit(model=model(norm=True).eval(), epochs=2)
    assert int(whole.weights["1.num_batches_tracked"]) > 0


class Heavy(Strategy):
    """What it has to save takes time to copy."""

    name = "heavy"

    def __init__(self, time: Time, seconds: float) -> None:
        self.time, self.seconds = time, seconds

    def state_dict(self) -> dict[str, Any]:
        self.time.s += self.seconds
        return {}


def test_a_budget_holds_the_last_checkpoint_too(tmp_path: Path) -> None:
    class Written:
        seconds = 0.0

        def end(self, run: Run) -> None:
            assert run.checkpoints is not None
            run.checkpoints.wait()
            self.seconds = run.clock.write_s

    time, written = Time(), Written()
    result = fit(
        budget=100.0,
        strategies=[Heavy(time, 6.0), Constant(rate=0.03)],
        train=Slow(ready(), time, 0.5),
        checkpoint=tmp_path,
        every="5m",
        callbacks=[written],
        now=time,
    )
    assert result.stopped == "budget"
    assert written.seconds > 0.0
    assert 90.0 <= time.s - 100.0 <= 100.0


@pytest.mark.parametrize("validation_s", [0.0, 5.0])
def test_a_budget_holds_the_last_validation_too(validation_s: float) -> None:
    time = Time()
    result = fit(
        budget=100.0,
        train=Slow(ready(), time, 0.5),
        valid=Slow(ready(24), time, validation_s),
        now=time,
    )
    assert result.stopped == "budget"
    assert 100.0 - 6.0 - 1.2 * validation_s <= time.s - 100.0 <= 100.0
    assert result.history[-1].step == result.steps
    assert result.history[-1].rate == pytest.approx(0.0, abs=0.001)


def test_a_budget_shorter_than_an_epoch_is_kept_too() -> None:
    time = Time()
    result = fit(
        budget=40.0, train=Slow(ready(2400), time, 1.0), valid=Slow(ready(), time, 0.4), now=time
    )
    assert result.epochs == 0
    assert 30.0 <= time.s - 100.0 <= 40.0


def test_a_machine_that_slows_down_makes_fewer_steps() -> None:
    time = Time()
    result = fit(
        budget="100s",
        train=Slow(ready(), time, lambda: 0.5 if time.s < 150 else 1.0),
        valid=None,
        metric=None,
        now=time,
    )
    assert result.steps == pytest.approx(150, abs=3)
    assert 97.0 <= time.s - 100.0 <= 100.0
    assert result.history[-1].rate == pytest.approx(0.0, abs=0.001)


def test_epochs_within_a_budget_end_by_themselves() -> None:
    time = Time()
    result = fit(budget=1000.0, epochs=2, train=Slow(ready(), time, 0.5), now=time)
    assert (result.stopped, result.steps) == ("epochs", 20)
    assert result.history[-1].rate == pytest.approx(0.0)


def test_a_target_ends_it() -> None:
    time = Time()
    result = fit(target=0.8, epochs=50, train=Slow(ready(), time, 0.5), now=time)
    assert result.stopped == "target"
    assert result.epochs < 50
    assert (result.metric or 0.0) >= 0.8
    assert result.time_to_target_s == pytest.approx(0.5 * result.steps)
    assert fit(target=1.1, epochs=2).time_to_target_s is None


def test_a_target_of_the_validation_loss() -> None:
    result = fit(target=0.6, metric=None, epochs=50)
    assert result.stopped == "target"
    assert (result.metric or 1.0) <= 0.6


# --- callbacks -------------------------------------------------------------------------------


def test_events_come_in_their_order() -> None:
    told: list[str] = []

    class Noting:
        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):
                raise AttributeError(name)
            return lambda run, *given: told.append(name)

    fit(callbacks=[Noting()], train=ready(48), epochs=2)
    step = ["batch", "loss", "gradients", "step_end"]
    one = ["epoch_begin", *step, *step, "validated", "epoch_end"]
    assert told == ["begin", *one, *one, "end", "over"]


@pytest.mark.parametrize("fails", ["begin", "gradients", "validated", "end"])
def test_all_are_told_that_it_is_over_however_it_ended(fails: str) -> None:
    told: list[str] = []

    class Fails:
        def over(self, run: Run) -> None:
            told.append("first")

    class Told:
        def over(self, run: Run) -> None:
            told.append("last")
            raise ValueError("cannot be undone")

    def fail(run: Run) -> None:
        raise RuntimeError("it fails")

    failing = Fails()
    setattr(failing, fails, fail)
    with pytest.raises(ValueError, match="cannot be undone") as raised:
        fit(callbacks=[failing, Told()])
    assert isinstance(raised.value.__context__, RuntimeError)
    assert told == ["last", "first"]


def test_functions_are_called_at_the_end_of_each_epoch() -> None:
    rows: list[Row] = []
    fit(callbacks=[lambda run: rows.append(run.history[-1])], epochs=3)
    assert [row.epoch for row in rows] == [1, 2, 3]


def test_a_callback_may_end_it_and_change_batches_and_losses() -> None:
    class Doubled:
        losses: list[float] = []  # noqa: RUF012

        def batch(self, run: Run, batch: Any) -> Any:
            return batch[0] * 0, batch[1]

        def loss(self, run: Run, loss: torch.Tensor) -> torch.Tensor:
            self.losses.append(loss.item())
            return loss * 2

        def step_end(self, run: Run) -> None:
            if run.step == 7:
                run.stop("enough")

    result = fit(callbacks=[Doubled()], strategies=[], steps=100)
    assert (result.stopped, result.steps) == ("enough", 7)
    assert result.history[-1].train_loss == pytest.approx(2 * sum(Doubled.losses) / 7)


def test_strategies_come_before_callbacks_in_the_order_given() -> None:
    told = []

    class One(Strategy):
        name = "one"

        def step_end(self, run: Run) -> None:
            told.append("one")

    class Two(Strategy):
        name = "two"

        def step_end(self, run: Run) -> None:
            told.append("two")

    class Callback:
        def step_end(self, run: Run) -> None:
            told.append("callback")

    fit(strategies=[Two(), One()], callbacks=[Callback()], steps=1)
    assert told == ["two", "one", "callback"]


# --- mistakes --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"epochs": None, "strategies": []}, "how long"),
        ({"epochs": 0}, "epochs=0"),
        ({"strategies": ["one_cylce"]}, "no strategy 'one_cylce'"),
        ({"strategies": ["target"]}, "which target"),
        ({"strategies": ["transfer"]}, "which weights"),
        ({"target": 0.9, "valid": None}, "no valid="),
        ({"strategies": ["plateau"], "valid": None}, "plateau needs validation"),
        ({"strategies": ["one_cycle"], "epochs": None, "target": 0.9}, "one_cycle needs an end"),
        ({"train": iter(ready())}, "once only"),
        ({"train": []}, "nothing to learn from"),
        ({"loss": "cross_entropy"}, "loss is 'cross_entropy'"),
        ({"model": None}, "no torch.nn.Module"),
        ({"device": "gpu"}, "no device"),
        ({"budget": "soon"}, "not a duration"),
        (dict.fromkeys(("train", "valid"), Loader([1, 2], 1)), "are one Loader"),
        (
            dict.fromkeys(
                ("train", "valid"), DataLoader([1, 2], num_workers=1, persistent_workers=True)
            ),
            "are one DataLoader",
        ),
    ],
)
def test_mistakes_are_told(given: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        fit(**{"epochs": 2, **given})


def outputs_alone(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(outputs, targets, reduction="none")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"loss": outputs_alone}, "loss= gives a tensor of 24 for a batch"),
        ({"loss": lambda o, t: {"loss": F.cross_entropy(o, t), "n": 1}}, "gives a dict of loss, n"),
        ({"loss": lambda o, t: 0.5}, "gives a float for a batch"),
        ({"metric": outputs_alone}, "metric= gives a tensor of 24 for a batch"),
    ],
)
@pytest.mark.parametrize("strategies", ["auto", ["one_cycle"]])
def test_that_a_loss_is_no_number_is_told(given: Any, said: str, strategies: Any) -> None:
    with pytest.raises(UsageError, match=said):
        fit(**given, strategies=strategies, epochs=40)


def test_that_there_is_nothing_to_validate_on_is_told_before_the_first_step() -> None:
    steps: list[int] = []

    class Noted:
        def step_end(self, run: Run) -> None:
            steps.append(run.step)

    x, y = points(24)
    for valid in ([], Loader(TensorDataset(x[:0], y[:0]), 8)):
        with pytest.raises(UsageError, match="nothing to validate on"):
            fit(valid=valid, callbacks=[Noted()])
    assert not steps


def test_what_is_told_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    trainer(strategies="auto", epochs=40).fit()
    out, said = capsys.readouterr()
    assert out == ""
    lines = said.splitlines()
    assert all(line.startswith("outpace: ") for line in lines)
    assert any("lr_finder: rate" in line for line in lines)
    assert "epochs" in lines[-1]
    trainer().fit(quiet=True)
    assert capsys.readouterr() == ("", "")


def test_a_loss_that_is_not_finite_is_never_the_best() -> None:
    def metric(outputs: torch.Tensor, targets: torch.Tensor) -> float:
        return next(values)

    tried = [0.9]  # of the batch that is judged before the first step
    values = itertools.chain(tried, [0.5, math.nan, 0.4], itertools.repeat(0.1))
    result = fit(metric=metric, valid=ready(24, seed=1), epochs=4, strategies=[OneCycle(rate=0.01)])
    assert result.metric == 0.5
    assert result.best is not None
    assert result.best.epoch == 1


def test_where_no_validation_is_a_number_the_last_weights_are_kept() -> None:
    def metric(outputs: torch.Tensor, targets: torch.Tensor) -> float:
        return math.nan

    result, plain = fit(metric=metric), fit(metric=None, valid=None)
    assert same(dict(result.weights), dict(plain.weights))
    assert any("no validation gave a number" in note for note in result.notes)
    assert not any("no validation gave a number" in note for note in fit().notes)


def test_a_recipe_holds_while_it_trains(tmp_path: Path) -> None:
    path = tmp_path / "outpace.toml"
    remedies = (Applied("bf16", "numerics"),)
    write_recipe(path, Recipe(1, "train.py", "", "", "", "", "", remedies=remedies))
    kinds: list[torch.dtype] = []
    net = model()
    net[0].register_forward_hook(lambda module, given, output: kinds.append(output.dtype))
    before = torch.autograd.backward
    fit(model=net, recipe=path, valid=None, metric=None)
    assert torch.bfloat16 in kinds
    assert torch.autograd.backward is before
    with pytest.raises(RecipeError, match="does not exist"):
        fit(recipe=tmp_path / "none.toml")


def test_a_target_is_reached_whatever_else_ends_the_training() -> None:
    class Enough:
        def step_end(self, run: Run) -> None:
            if run.step == 5:
                run.stop("enough")

    result = fit(target=0.01, callbacks=[Enough()])
    assert (result.stopped, result.steps) == ("enough", 5)
    assert result.time_to_target_s is not None


def test_a_target_that_is_met_exactly_is_reached_in_float32() -> None:
    """0.94 of it is 0.93999999761."""
    result = fit(metric=lambda outputs, _: torch.tensor(0.94), target=0.94)
    assert (result.stopped, result.epochs) == ("target", 1)


@pytest.mark.parametrize("every", [None, 10, 5])
def test_a_row_tells_the_epochs_that_are_behind(every: int | None) -> None:
    result = fit(epochs=3, validate_every=every)
    assert [row.epoch for row in result.history if row.step % 10 == 0] == [1, 2, 3]
    assert [row.epoch for row in result.history if row.step % 10] == [0, 1, 2] * (every == 5)


def test_only_methods_of_a_callback_are_events() -> None:
    class Curve:
        def __init__(self) -> None:
            self.loss: list[float | None] = []

        def epoch_end(self, run: Run) -> None:
            self.loss.append(run.history[-1].train_loss)

    curve = Curve()
    fit(epochs=3, callbacks=[curve])
    assert len(curve.loss) == 3


def test_a_model_that_cannot_be_copied_learns_without_what_copies_it() -> None:
    net = model()
    net.lock = threading.Lock()  # type: ignore[assignment]
    result = fit(model=net, strategies="auto", target=2.0, epochs=2)
    assert result.epochs == 2
    assert any("ema: left out, as the model cannot be copied" in note for note in result.notes)


class Remembering(torch.nn.Linear):
    """Its buffer comes with the first batch."""

    def __init__(self) -> None:
        super().__init__(8, 3)
        self.mean: torch.Tensor | None
        self.register_buffer("mean", None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.mean is None:
            self.mean = x.detach().mean(0)
        return super().forward(x - self.mean)


def test_a_buffer_that_comes_with_the_first_batch(tmp_path: Path) -> None:
    def go(folder: Path, **given: Any) -> Result:
        torch.manual_seed(0)
        return fit(model=Remembering(), checkpoint=folder, every=0, **given)

    goes_on_exactly(go, tmp_path / "cut", 25, go(tmp_path / "whole"))


def test_an_average_begun_before_a_buffer_came_goes_on(tmp_path: Path) -> None:
    def go(folder: Path, **given: Any) -> Result:
        torch.manual_seed(0)
        strategies = [OneCycle(rate=0.03), Ema()]
        return fit(model=Remembering(), checkpoint=folder, every=0, strategies=strategies, **given)

    goes_on_exactly(go, tmp_path / "cut", 5, go(tmp_path / "whole"))


def test_back_to_before_a_buffer_came() -> None:
    class Breaks:
        def loss(self, run: Run, loss: torch.Tensor) -> torch.Tensor:
            return loss * math.nan if run.step == 20 else loss

    torch.manual_seed(0)
    given: dict[str, Any] = {"callbacks": [Breaks()], "strategies": [Divergence(), OneCycle(0.03)]}
    result = fit(model=Remembering(), **given)
    assert any("back to the weights of step 0" in note for note in result.notes), result.notes


class LateLoss(torch.nn.Module):
    """A loss whose buffer comes with its first batch."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", None)

    def forward(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        if self.mean is None:
            self.mean = outputs.detach().mean(0)
        return F.cross_entropy(outputs - self.mean, targets)


def test_a_buffer_of_a_loss_may_come_late(tmp_path: Path) -> None:
    class Breaks:
        def loss(self, run: Run, loss: torch.Tensor) -> torch.Tensor:
            return loss * math.nan if run.step == 20 else loss

    strategies = [Divergence(), OneCycle(0.03)]
    result = fit(loss=LateLoss(), callbacks=[Breaks()], strategies=strategies)
    assert any("back to the weights of step 0" in note for note in result.notes), result.notes

    def go(folder: Path, **given: Any) -> Result:
        return fit(
            loss=LateLoss(), checkpoint=folder, every=0, strategies=[OneCycle(0.03)], **given
        )

    goes_on_exactly(go, tmp_path / "cut", 5, go(tmp_path / "whole"))


class Scaled(torch.nn.Module):
    """A loss that learns by how much it scales what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(()))

    def forward(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self.scale * outputs, targets)


def test_what_a_loss_has_learnt_is_set_back_to_the_best_validation_too(tmp_path: Path) -> None:
    """The model was of the best step, and the loss, without which it is of no use, of the last."""
    at: dict[int, float] = {}

    class Watch:
        def validated(self, run: Run) -> None:
            at[run.step] = float(loss.scale)

    def go(folder: Path, **given: Any) -> Result:
        parts = [*net.parameters(), *loss.parameters()]
        return fit(
            model=net, loss=loss, optimizer=torch.optim.SGD(parts, 3.0), callbacks=[Watch()],
            strategies=["constant"], checkpoint=folder, **given,
        )  # fmt: skip

    net, loss = model(), Scaled()
    best = go(tmp_path, epochs=6).best
    assert best is not None
    assert len({*at.values()}) == len(at)
    assert best.step < max(at)
    assert float(loss.scale) == at[best.step]
    wanted = float(loss.scale)
    net, loss = model(), Scaled()
    again = go(tmp_path, epochs=6)
    assert again.best == best
    assert float(loss.scale) == wanted


def test_a_seed_of_numpy_is_a_seed() -> None:
    assert same(dict(fit(seed=np.int64(3)).weights), dict(fit(seed=3).weights))


def test_a_model_with_nothing_to_learn_is_told() -> None:
    with pytest.raises(UsageError, match="no weights that learn"):
        fit(model=model().requires_grad_(False))


def test_a_checkpoint_that_nobody_could_go_on_from_is_told_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Odd(list[Any]):
        def state_dict(self) -> dict[str, Any]:
            return {"chance": np.random.default_rng(0).bit_generator.state, "at": np.arange(3)}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            raise AssertionError

    trainer(train=Odd(ready()), checkpoint=tmp_path, every=0, epochs=1).fit()
    assert capsys.readouterr().err.count("cannot be read again") == 1


def test_a_model_that_cannot_be_copied_and_a_target_as_a_strategy() -> None:
    net = model()
    net.lock = threading.Lock()  # type: ignore[assignment]
    result = fit(model=net, strategies=["auto", Target(2.0)], epochs=2)
    assert result.epochs == 2


class Late(torch.nn.Linear):
    """Its buffer comes with the sixteenth batch."""

    def __init__(self) -> None:
        super().__init__(8, 3)
        self.seen: torch.Tensor | None
        self.register_buffer("seen", None)
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += self.training
        if self.calls > 15 and self.seen is None:
            self.seen = x.detach().mean(0)
        return super().forward(x)


def test_a_buffer_that_comes_after_the_best_validation_costs_no_result() -> None:
    values = itertools.count(-1, -1)
    result = fit(model=Late(), metric=lambda outputs, targets: next(values))
    assert result.best is not None
    assert result.best.epoch == 1
    assert "seen" not in result.weights


def test_a_validation_of_which_some_batches_have_no_loss_is_told_once() -> None:
    given: dict[str, Any] = {"valid": partly_ignored(ready(120, seed=1)), "metric": None}
    result = fit(**given, epochs=3)
    assert all(math.isfinite(row.valid_loss or math.nan) for row in result.history)
    assert sum("the loss of some batches of valid= is no number" in n for n in result.notes) == 1
    assert not any("of valid= is no number" in note for note in fit(epochs=2).notes)

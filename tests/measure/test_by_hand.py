"""An optimizer written out in the script is seen by its operators, a proper one is not taken for it."""

from __future__ import annotations

import copy
import sys
from collections import Counter
from typing import Any

import pytest
import torch
from torch import nn

from outpace.measure.by_hand import OwnOperators, Update, is_scripts_own, through_torchs
from outpace.measure.dispatch import OperatorWatch
from outpace.measure.ledger import Seen, build, own_share
from outpace.measure.sampler import Line
from outpace.seams.host import Step
from outpace.seams.where import user_frame


class Watch(OperatorWatch):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.own = OwnOperators(model.parameters())

    def see(self, operator: Any, args: Any, kwargs: Any, out: Any) -> None:
        frame = user_frame(sys._getframe(1))
        assert frame is not None
        self.own.see(operator, args, out, frame)


def trained() -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    model(torch.randn(8, 4)).sum().backward()
    return model


def update(model: nn.Module) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            step = 0.1 * parameter.grad
            parameter.sub_(step)


def update_data(model: nn.Module) -> None:
    for parameter in model.parameters():
        parameter.data -= 0.1 * parameter.grad


@pytest.mark.parametrize("how", [update, update_data])
def test_lines_that_change_parameters(how: Any) -> None:
    model = trained()
    with Watch(model) as watch:
        how(model)
    assert watch.failure is None
    found = watch.own.update()
    assert found is not None
    assert found.function == how.__name__
    assert found.operators >= 8, "two operators for each of four tensors"
    last = how.__code__.co_firstlineno + (4 if how is update else 2)
    assert found.last == last
    assert found.holds(__file__, how.__name__, last)
    assert not found.holds(__file__, how.__name__, last + 1)
    assert not found.holds(__file__, "main", last)


def epoch(model: nn.Module) -> None:
    for _ in range(2):
        noise = torch.randn(8, 4)
        loss = model(noise).square().sum()
        shown = loss.detach() * 2
        with torch.no_grad():
            model[1].weight.clamp_(-1, 1)  # type: ignore[index]
        shown.neg()


def plainly(model: nn.Module) -> None:
    for _ in range(2):
        loss = model(torch.randn(8, 4)).square().sum()
        model[0].bias.data.clamp_(-1, 1)  # type: ignore[index]
        loss.detach().neg()
        model[1].bias.data.clamp_(-1, 1)  # type: ignore[index]


@pytest.mark.parametrize(("how", "first", "last"), [(epoch, 6, 6), (plainly, 3, 5)])
def test_a_training_that_keeps_a_weight_within_limits_is_no_update_for_that(
    how: Any, first: int, last: int
) -> None:
    """Its loop computes the loss, and whatever else the script does in a step."""
    model = trained()
    with Watch(model) as watch:
        how(model)
    found = watch.own.update()
    assert found is not None
    at = how.__code__.co_firstlineno
    assert (found.first - at, found.last - at) == (first, last)


def test_what_changes_no_parameter_is_none() -> None:
    model = trained()
    with Watch(model) as watch:
        for parameter in model.parameters():
            parameter.grad.mul_(0.5)  # type: ignore[union-attr]
            parameter.detach().norm()
    assert watch.own.operators
    assert watch.own.update() is None


def test_a_copy_of_the_model_changes_no_parameter() -> None:
    """Its tensors are made over memory of the parameters, by operators that write to what they are given."""
    model = trained()
    with Watch(model) as watch:
        kept = copy.deepcopy(model.state_dict())
    assert kept
    assert watch.own.update() is None


def losses(model: nn.Module) -> None:
    out = model(torch.randn(8, 4))
    loss = nn.functional.cross_entropy(out, torch.zeros(8, dtype=torch.long))
    penalty = (out**2).mean()
    right = (out.argmax(1) == 0).float().mean()
    scores = out.detach().abs().sum()
    with torch.no_grad():
        scores += out.abs().sum()
    (loss + penalty).item(), right, scores


def test_lines_that_make_a_loss() -> None:
    """Not those of metrics, though these are made of the model's output too."""
    model = trained()
    with Watch(model) as watch:
        losses(model)
    assert watch.failure is None
    first = losses.__code__.co_firstlineno
    assert {line - first for _, name, line in watch.own.learnt if name == "losses"} == {1, 2, 3, 8}


def learn(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        target = x[:, :2].tanh()
    out = model(x)
    loss = torch.zeros(())
    for row, other in zip(out, target, strict=True):
        loss = loss + (row - other).square().sum()
    right = (out.argmax(dim=1) == 1).float().mean()
    print(f"{loss.detach().item():.3f} {loss.item():.3f} {right.item():.3f}")
    (slope,) = torch.autograd.grad(loss, x, create_graph=True)
    return loss + slope.square().sum()


def test_lines_of_a_loss() -> None:
    """Those that gradients go through or that make some; not what is printed or only looked at."""
    model, x = trained(), torch.randn(8, 4, requires_grad=True)
    with Watch(model) as watch:
        learn(model, x)
    assert watch.failure is None
    first = learn.__code__.co_firstlineno
    lines = {line - first for _, name, line in watch.own.learnt if name == "learn"}
    assert {6, 9, 10} <= lines <= {3, 5, 6, 9, 10}, (
        "the model is called in line 3, without a seam here"
    )
    assert watch.own.update() is None


def test_the_time_of_a_loss_is_the_forward_passes() -> None:
    """Also where it is told by a word that stands for logging elsewhere."""
    phases = {"forward": 10_000_000, "elsewhere": 30_000_000}
    steps = [Step(i, 40_000_000, 40_000_000, phases, 1, 8, True) for i in range(4)]
    lines = {place: ("train.py", "loss", place) for place in (5, 6, 9)}
    samples = Counter({Line("elsewhere", "train.py", "loss", (at,)): 10 for at in lines.values()})
    seen = Seen(0.0, steps, 4, {}, samples, input_lines={lines[5]}, loss_lines={lines[5], lines[6]})
    assert own_share(seen, "forward") == pytest.approx(2 / 3)
    seconds: Counter[str] = Counter()
    for row in build(seen):
        seconds[row.name] += row.seconds  # type: ignore[assignment]
    assert seconds == pytest.approx({"forward": 0.12, "elsewhere": 0.04})


def test_an_optimizer_of_the_scripts_own_is_told_by_its_module() -> None:
    class Own(torch.optim.SGD):
        pass

    model = nn.Linear(2, 2)
    assert is_scripts_own(Own(model.parameters(), 0.1))
    assert not is_scripts_own(torch.optim.SGD(model.parameters(), 0.1))


class Clipped(torch.optim.SGD):
    """One of torch's, with something before its step."""

    def step(self, closure: Any = None) -> Any:  # type: ignore[override]
        return super().step(closure)


def test_a_step_of_torchs_own_is_told_from_one_written_out() -> None:
    found: set[bool] = set()

    class Watch(OperatorWatch):
        def see(self, operator: Any, args: Any, kwargs: Any, out: Any) -> None:
            frame = user_frame(sys._getframe(1))
            assert frame is not None
            found.add(through_torchs(sys._getframe(1), frame))

    model = trained()
    with Watch():
        update(model)
    assert found == {False}
    found.clear()
    with Watch():
        Clipped(model.parameters(), 0.1, foreach=False).step()
    assert True in found


def test_its_time_is_the_optimizers() -> None:
    phases = {"forward": 10_000_000, "elsewhere": 30_000_000}
    steps = [Step(i, 40_000_000, 40_000_000, phases, 1, 8, True) for i in range(4)]

    def at(line: int) -> Line:
        return Line("elsewhere", "train.py", "main", (("train.py", "main", line),))

    samples = Counter({at(20): 10, at(21): 10, at(30): 10})
    seen = Seen(0.0, steps, 4, {}, samples, by_hand=Update("train.py", "main", 19, 22, 21, 40))
    assert own_share(seen, "optimizer") == pytest.approx(2 / 3)
    rows = {row.name: row.seconds for row in build(seen)}
    assert rows["optimizer"] == pytest.approx(0.08)
    assert rows["elsewhere"] == pytest.approx(0.04)

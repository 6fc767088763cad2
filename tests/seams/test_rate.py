"""Another learning rate to step with, while the script and its scheduler see their own."""

from __future__ import annotations

import gc
import io
import sys
from collections.abc import Iterator

import pytest
import torch

from outpace.seams.rate import RateSeam, finds_its_rate

state_dict = torch.optim.Optimizer.state_dict


@pytest.fixture
def seam() -> Iterator[RateSeam]:
    seam = RateSeam()
    seam.install()
    yield seam
    seam.remove()


def one_weight(lr: float | torch.Tensor, kind: type = torch.optim.SGD) -> torch.optim.Optimizer:
    weight = torch.nn.Parameter(torch.ones(1))
    weight.grad = torch.ones(1)
    made: torch.optim.Optimizer = kind([weight], lr=lr)
    return made


def value(optimizer: torch.optim.Optimizer) -> float:
    return float(optimizer.param_groups[0]["params"][0].detach())


def test_it_steps_with_the_changed_rate_and_shows_the_scripts(seam: RateSeam) -> None:
    optimizer = one_weight(0.4)
    seam.change = lambda own, largest: own / 2
    optimizer.step()
    assert value(optimizer) == pytest.approx(0.8)
    assert optimizer.param_groups[0]["lr"] == 0.4


def test_nothing_changes_while_nothing_is_asked(seam: RateSeam) -> None:
    optimizer = one_weight(0.4)
    optimizer.step()
    assert value(optimizer) == pytest.approx(0.6)


def test_a_scheduler_goes_on_undisturbed(seam: RateSeam) -> None:
    optimizer, seen = one_weight(0.4), []
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
    seam.change = lambda own, largest: seen.append((own, largest)) or 0.0  # type: ignore[func-returns-value]
    for _ in range(4):
        optimizer.step()
        scheduler.step()
    assert seen == [(0.4, 0.4), (0.4, 0.4), (0.2, 0.4), (0.2, 0.4)]
    assert scheduler.get_last_lr() == [pytest.approx(0.1)]
    assert value(optimizer) == 1.0


def test_a_step_that_raises_leaves_the_rate_to_be_put_right(seam: RateSeam) -> None:
    optimizer = one_weight(0.4)
    seam.change = lambda own, largest: own / 2

    def closure() -> float:
        raise ValueError("no loss")

    with pytest.raises(ValueError, match="no loss"):
        optimizer.step(closure)
    optimizer.step()
    assert value(optimizer) == pytest.approx(0.8)
    assert optimizer.param_groups[0]["lr"] == 0.4


def test_what_is_saved_after_a_step_was_interrupted_has_the_scripts_rate(seam: RateSeam) -> None:
    optimizer = one_weight(0.4)
    seam.change = lambda own, largest: 0.0

    def closure() -> float:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        optimizer.step(closure)
    assert optimizer.state_dict()["param_groups"][0]["lr"] == 0.4


def test_an_optimizer_that_failed_and_is_gone_leaves_the_next_one_alone(seam: RateSeam) -> None:
    """As where a model that takes too much memory is made anew, smaller."""
    seam.change = lambda own, largest: own / 2

    def closure() -> float:
        raise MemoryError

    first = one_weight(0.4)
    with pytest.raises(MemoryError):
        first.step(closure)
    del first
    gc.collect()
    second = one_weight(0.2)
    second.step()
    assert value(second) == pytest.approx(0.9)
    assert second.param_groups[0]["lr"] == 0.2


def test_a_group_that_joins_goes_down_from_its_own_rate(
    seam: RateSeam, capsys: pytest.CaptureFixture[str]
) -> None:
    optimizer, seen = one_weight(0.4), []
    seam.change = lambda own, largest: seen.append(largest) or own  # type: ignore[func-returns-value]
    optimizer.step()
    optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(1))], "lr": 0.1})
    optimizer.step()
    optimizer.step()
    assert seen == [0.4, 0.4, 0.1, 0.4, 0.1]
    assert capsys.readouterr().err == ""


def test_a_group_that_is_taken_out_leaves_the_others_their_rates(seam: RateSeam) -> None:
    optimizer, seen = one_weight(0.4), []
    optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(1))], "lr": 0.1})
    seam.change = lambda own, largest: seen.append((own, largest)) or own  # type: ignore[func-returns-value]
    optimizer.step()
    optimizer.param_groups.pop(0)
    optimizer.step()
    assert seen == [(0.4, 0.4), (0.1, 0.1), (0.1, 0.1)]


def test_a_rate_in_a_tensor_stays_there(seam: RateSeam) -> None:
    kept = torch.tensor(0.4)
    optimizer = one_weight(kept, torch.optim.Adam)
    seam.change = lambda own, largest: 0.1
    optimizer.step()
    assert optimizer.param_groups[0]["lr"] is kept
    assert float(kept) == pytest.approx(0.4)


def test_a_change_that_fails_is_told_and_the_step_is_the_scripts(
    seam: RateSeam, capsys: pytest.CaptureFixture[str]
) -> None:
    optimizer = one_weight(0.4)
    seam.change = lambda own, largest: 1 / 0
    optimizer.step()
    assert value(optimizer) == pytest.approx(0.6)
    assert "rate seam failed" in capsys.readouterr().err
    optimizer.param_groups[0]["params"][0].grad = torch.ones(1)
    optimizer.step()
    assert value(optimizer) == pytest.approx(0.2)


def test_a_change_that_fails_where_nobody_can_be_told_ends_no_step(
    seam: RateSeam, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed)
    optimizer = one_weight(0.4)
    seam.change = lambda own, largest: 1 / 0
    optimizer.step()
    assert value(optimizer) == pytest.approx(0.6)


def test_taken_out_nothing_is_left(seam: RateSeam) -> None:
    seam.change = lambda own, largest: 0.0
    seam.remove()
    assert torch.optim.Optimizer.state_dict is state_dict
    optimizer = one_weight(0.4)
    optimizer.step()
    assert value(optimizer) == pytest.approx(0.6)


def test_what_a_script_put_there_since_stays(
    seam: RateSeam, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = torch.optim.Optimizer.state_dict

    def own(optimizer: torch.optim.Optimizer) -> dict[str, object]:
        return ours(optimizer)

    with monkeypatch.context() as patched:
        patched.setattr(torch.optim.Optimizer, "state_dict", own)
        seam.remove()
        assert torch.optim.Optimizer.state_dict is own
    seam.remove()
    assert torch.optim.Optimizer.state_dict is state_dict


class Relative(torch.optim.Optimizer):
    """One that finds its rate itself, as Adafactor does."""

    def __init__(self, weights: list[torch.nn.Parameter]) -> None:
        super().__init__(weights, {"lr": None})

    def step(self, closure: object = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for weight in group["params"]:
                weight.data -= 0.1


def test_an_optimizer_without_a_rate_is_left_alone(seam: RateSeam) -> None:
    weight = torch.nn.Parameter(torch.ones(1))
    seam.change = lambda own, largest: 0.0
    optimizer = Relative([weight])
    optimizer.step()
    assert float(weight.detach()) == pytest.approx(0.9)
    assert optimizer.param_groups[0]["lr"] is None


def test_the_largest_is_counted_from_where_it_goes_down(seam: RateSeam) -> None:
    optimizer, seen = one_weight(0.4), []
    seam.change = lambda own, largest: seen.append(largest) or own  # type: ignore[func-returns-value]
    for rate in (0.4, 0.1):
        optimizer.param_groups[0]["lr"] = rate
        optimizer.step()
    seam.from_here()
    for rate in (0.1, 0.2, 0.05):
        optimizer.param_groups[0]["lr"] = rate
        optimizer.step()
    assert seen == [0.4, 0.4, 0.1, 0.2, 0.2]


def test_a_hook_of_the_scripts_that_steps_its_scheduler_sees_the_scripts_rate(
    seam: RateSeam,
) -> None:
    """torch calls an optimizer's own hooks inside of those of all optimizers."""
    optimizer = one_weight(0.4)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
    optimizer.register_step_post_hook(lambda *_: scheduler.step())
    seam.change = lambda own, largest: own / 2
    rates = []
    for _ in range(6):
        optimizer.step()
        rates.append(optimizer.param_groups[0]["lr"])
    assert rates == pytest.approx([0.4, 0.2, 0.2, 0.1, 0.1, 0.05])


def test_a_hook_of_the_scripts_that_sets_the_rate_sets_its_own(seam: RateSeam) -> None:
    optimizer = one_weight(0.4)

    def warm_up(optimizer: torch.optim.Optimizer, *_: object) -> None:
        optimizer.param_groups[0]["lr"] = 0.2

    seam.change = lambda own, largest: own / 2
    optimizer.step()
    optimizer.register_step_pre_hook(warm_up)  # type: ignore[arg-type]
    optimizer.step()
    assert value(optimizer) == pytest.approx(1.0 - 0.2 - 0.1)
    assert optimizer.param_groups[0]["lr"] == 0.2


def test_an_optimizer_that_comes_later_may_keep_its_rate(seam: RateSeam) -> None:
    optimizer, later = one_weight(0.4), one_weight(0.4)
    seam.change = lambda own, largest: 0.0
    optimizer.step()
    seam.no_others()
    optimizer.step()
    later.step()
    assert (value(optimizer), value(later)) == pytest.approx((1.0, 0.6))


def test_nothing_is_looked_at_before_it_is_wanted(seam: RateSeam) -> None:
    optimizer = one_weight(1)  # a whole number, as LBFGS has it by itself
    own = optimizer.param_groups[0]["lr"]
    seam.change, seam.wanted = lambda own, largest: own / 2, lambda: False
    optimizer.step()
    assert optimizer.param_groups[0]["lr"] is own
    assert not seam.largest
    seam.wanted = lambda: True
    optimizer.step()
    assert optimizer.param_groups[0]["lr"] is own


def test_a_search_along_a_line_has_no_rate(seam: RateSeam) -> None:
    """At a rate of 0 it divides by nothing."""
    weight = torch.nn.Parameter(torch.full((4,), 3.0))
    optimizer = torch.optim.LBFGS([weight], line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = (weight - 1).square().sum() + (weight**4).sum()
        loss.backward()
        return loss

    seam.change = lambda own, largest: 0.0
    for _ in range(3):
        optimizer.step(closure)  # type: ignore[arg-type]
    assert finds_its_rate(optimizer)
    assert float(weight.detach().abs().max()) < 3.0

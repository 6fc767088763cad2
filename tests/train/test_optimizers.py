"""Rates of an optimizer's groups, which callbacks may change as well."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from outpace.errors import DataError, UsageError
from outpace.train.optimizers import Rates, groups, has_own_optimizer, matrices
from outpace.train.rate import PART, usual_rate
from outpace.train.run import Run
from outpace.train.strategies import Constant, Divergence, OneCycle, Sgd, Strategy
from tests.train.toys import Stop, deep, fit, model


def test_a_rate_that_others_have_set_is_rescaled_as_it_is() -> None:
    optimizer = torch.optim.SGD(nn.Linear(2, 2).parameters(), 0.1)
    rates = Rates(optimizer)
    optimizer.param_groups[0]["lr"] = 0.01
    rates.rescale(0.5)
    assert rates.now == optimizer.param_groups[0]["lr"] == pytest.approx(0.005)


class Unfreeze:
    """A callback: the first layer learns too from the second epoch on."""

    def __init__(self, layer: nn.Module) -> None:
        self.layer = layer

    def epoch_end(self, run: Run) -> None:
        if run.epoch == 1:
            group = {"params": list(self.layer.parameters()), "lr": 0.02}
            run.optimizer.add_param_group(group)


def test_sgd_bears_gradients_of_few_rows() -> None:
    torch.manual_seed(0)
    words = torch.randint(32, (240, 4))
    given = list(zip(words.split(24), (words[:, 0] % 3).split(24), strict=True))
    table = nn.EmbeddingBag(32, 3, mode="sum", sparse=True)
    result = fit(model=table, train=given, valid=given, strategies=["constant"], epochs=20)
    assert (result.metric or 0.0) > 0.5


def test_groups_that_a_callback_adds_follow_the_course() -> None:
    net = model()
    told: list[list[float]] = []

    class Watch:
        def step_end(self, run: Run) -> None:
            told.append([group["lr"] for group in run.optimizer.param_groups])

    before = net[0].weight.detach().clone()
    optimizer = torch.optim.SGD(net[-1].parameters(), 0.1)
    result = fit(
        model=net,
        optimizer=optimizer,
        strategies=[OneCycle(rate=0.1)],
        callbacks=[Unfreeze(net[0]), Watch()],
    )
    assert result.epochs == 4
    assert not torch.equal(net[0].weight, before)
    assert {len(rates) for rates in told[:10]} == {1}
    for first, second in told[10:]:
        assert second == pytest.approx(0.2 * first)


def test_a_roll_back_keeps_groups_that_a_callback_has_added() -> None:
    """The copy is of the begin, when there was one group."""
    net = model()
    told: list[tuple[torch.Tensor, list[float]]] = []

    class Spoils:
        def loss(self, run: Run, loss: torch.Tensor) -> torch.Tensor | None:
            return loss * torch.nan if run.step == 15 else None

        def step_end(self, run: Run) -> None:
            if run.step in (32, 33):
                rates = [group["lr"] for group in run.optimizer.param_groups]
                told.append((net[0].weight.detach().clone(), rates))

    before = net[0].weight.detach().clone()
    result = fit(
        model=net,
        optimizer=torch.optim.SGD(net[-1].parameters(), 0.1, momentum=0.9),
        strategies=[Divergence(), Constant(rate=0.1)],
        callbacks=[Unfreeze(net[0]), Spoils()],
        epochs=6,
    )
    assert any("back to the weights of step 0" in note for note in result.notes)
    assert torch.equal(told[0][0], before)
    assert not torch.equal(told[1][0], before)
    assert told[1][1] == pytest.approx([0.05, 0.01])
    assert all(weight.isfinite().all() for weight in result.weights.values())


def test_groups_that_a_callback_had_added_are_to_be_there_when_it_goes_on(tmp_path: Path) -> None:
    def go(*callbacks: Any, added: bool = False) -> Any:
        net = model()
        optimizer = torch.optim.SGD(net[-1].parameters(), 0.1, momentum=0.9)
        if added:
            optimizer.add_param_group({"params": list(net[0].parameters()), "lr": 0.02})
        return fit(
            model=net,
            optimizer=optimizer,
            strategies=[OneCycle(rate=0.1)],
            callbacks=[Unfreeze(net[0]), *callbacks],
            checkpoint=tmp_path,
            every=0,
        )

    with pytest.raises(KeyboardInterrupt):
        go(Stop(25))
    with pytest.raises(DataError, match="has 2 groups of weights, and this one's 1"):
        go()
    assert go(added=True).epochs == 4


def betas(**given: Any) -> tuple[set[float], list[str]]:
    """First betas or momenta of the steps of one cycle, and what is said of them."""
    seen: set[float] = set()

    class Seen:
        def gradients(self, run: Run) -> None:
            for group in run.optimizer.param_groups:
                seen.add(group["betas"][0] if "betas" in group else group["momentum"])

    result = fit(callbacks=[Seen()], **{"strategies": [OneCycle()], **given})
    return seen, [note for note in result.notes if "momentum" in note]


def test_a_momentum_of_zero_stays_so() -> None:
    net = model()
    adam = torch.optim.Adam(net.parameters(), 0.01, betas=(0.0, 0.9))
    assert betas(model=net, optimizer=adam) == ({0.0}, [])
    net = model()
    sgd = torch.optim.SGD(net.parameters(), 0.01)
    assert betas(model=net, optimizer=sgd) == ({0}, [])


def test_that_the_momentum_of_a_given_optimizer_is_cycled_is_told() -> None:
    net = model()
    adam = torch.optim.Adam(net.parameters(), 0.01, betas=(0.8, 0.9))
    seen, notes = betas(model=net, optimizer=adam)
    assert len(seen) > 10
    (note,) = notes
    assert "the momentum of the optimizer goes from 0.95 to 0.85 and back" in note
    assert adam.param_groups[0]["betas"] == (0.8, 0.9)
    assert betas()[1] == []


def test_a_momentum_that_was_asked_for_and_is_cycled_is_told() -> None:
    for momentum, told in ((0.99, 1), (0.9, 0)):
        _, notes = betas(strategies=[OneCycle(rate=0.01), Sgd(momentum=momentum)])
        assert sum("the momentum of the optimizer goes" in note for note in notes) == told


class Own(Strategy):
    name = "own"

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.RMSprop(model.parameters(), 0.01)


def test_an_optimizer_that_the_user_has_set_is_known_for_one() -> None:
    assert has_own_optimizer(OneCycle(weight_decay=0.1))
    assert has_own_optimizer(Own())
    assert not any(map(has_own_optimizer, (OneCycle(), Constant(rate=0.1), Divergence())))


def test_a_decay_that_counts_for_nothing_is_told() -> None:
    told = "one_cycle: its optimizer is not used, as sgd sets one: give that its weight_decay"
    assert told in fit(strategies=[OneCycle(0.01, weight_decay=0.1), Sgd()]).notes
    assert told not in fit(strategies=[OneCycle(0.01), Sgd(weight_decay=0.1)]).notes


# --- what decays -----------------------------------------------------------------------------


class Block(nn.Module):
    """As ConvNeXt has its: what the branch gives is scaled channel by channel."""

    def __init__(self, wide: int) -> None:
        super().__init__()
        self.branch = nn.Conv2d(wide, wide, 3, padding=1)
        self.layer_scale = nn.Parameter(torch.full((wide, 1, 1), 1e-6))


def test_scales_of_channels_are_no_matrices() -> None:
    """They do not decay, nor tell how large weights are: the usual rate was ten times too small."""
    net = nn.Sequential(Block(8), nn.Flatten(), nn.Linear(8, 1), nn.Linear(1, 4))
    assert matrices(net) == {id(net[0].branch.weight), id(net[2].weight), id(net[3].weight)}
    with torch.no_grad():
        for weight in (net[0].branch.weight, net[2].weight, net[3].weight):
            weight.fill_(0.2)
    assert usual_rate(net, torch.optim.AdamW(net.parameters())) == pytest.approx(PART * 0.2)


@pytest.mark.parametrize("strategies", ["auto", ["one_cycle"], ["constant", "muon"]])
def test_adam_is_not_given_gradients_of_few_rows(strategies: Any) -> None:
    net = nn.Sequential(nn.EmbeddingBag(32, 8, sparse=True), *deep())
    words = torch.randint(32, (240, 4))
    with pytest.raises(UsageError, match="takes no sparse gradients, as 0 has"):
        fit(model=net, train=list(zip(words.split(24), words[:, 0].split(24), strict=True)),
            valid=None, strategies=strategies)  # fmt: skip


def test_norms_and_biases_of_several_dimensions_do_not_decay() -> None:
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.LayerNorm((4, 6, 6)), nn.RMSNorm((6, 6)))
    net.register_parameter("place_bias", nn.Parameter(torch.zeros(1, 4)))
    decays, stays = groups(net, 0.1)
    assert [id(each) for each in decays["params"]] == [id(net[0].weight)]
    assert decays["weight_decay"] == 0.1
    assert stays["weight_decay"] == 0.0
    assert len(stays["params"]) == 5


class Late(nn.Module):
    """A layer of it has its first gradients after some calls."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.late, self.calls = nn.Linear(8, 3), nn.Linear(8, 3), 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += self.training
        found: torch.Tensor = self.first(x)
        return found + self.late(x) if self.calls > 5 else found


def test_a_weight_whose_first_gradient_comes_late() -> None:
    """torch's kernel for SGD takes momenta of all weights of a group or of none."""
    model = Late()
    before = model.late.weight.detach().clone()
    result = fit(model=model, strategies=[Sgd(), Constant(rate=0.05)], epochs=2)
    assert not torch.equal(result.weights["late.weight"], before)

"""Looks at real steps: what they see, and that they leave nothing behind."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.optim import optimizer as optimizers
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    TensorDataset,
)

from outpace.measure import strays
from outpace.measure.health import HealthWatch
from outpace.measure.some_numbers import some_numbers
from outpace.measure.strays import Strays
from outpace.records.health import Health
from outpace.seams.host import Host
from outpace.seams.loader_record import Line, Record
from outpace.tune.assemble import assemble


@pytest.fixture
def host() -> Iterator[Host]:
    """A host with its seams in; they, and the hooks of a look, are taken out again."""
    before = (
        dict(optimizers._global_optimizer_pre_hooks),
        dict(optimizers._global_optimizer_post_hooks),
    )
    made = assemble(switching=True)
    made.install()
    yield made
    made.remove()
    for hooks, own in zip(
        (optimizers._global_optimizer_pre_hooks, optimizers._global_optimizer_post_hooks),
        before,
        strict=True,
    ):
        hooks.clear()
        hooks.update(own)


Step = Callable[[nn.Module, torch.optim.Optimizer, int], torch.Tensor]


def plain(model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> torch.Tensor:
    x = torch.randn(64, 8)
    loss = nn.functional.cross_entropy(model(x), torch.arange(64) % 4)
    optimizer.zero_grad()
    loss.backward()
    return loss


def by_its_own_guesses(
    model: nn.Module, optimizer: torch.optim.Optimizer, step: int
) -> torch.Tensor:
    """Half of the loss is of labels that the model chose, as in semi-supervised training."""
    x = torch.randn(64, 8)
    out = model(x)
    with torch.no_grad():
        guessed = out.softmax(1).max(1).indices
    right = nn.functional.one_hot(torch.arange(64) % 4).argmax(1)
    loss = nn.functional.cross_entropy(out, right) + nn.functional.cross_entropy(out, guessed)
    optimizer.zero_grad()
    loss.backward()
    return loss


def looked_at(host: Host, model: nn.Module, step: Step = plain, **made: float) -> Health:
    """Health after six looks, each at one step."""
    torch.manual_seed(0)
    watch = HealthWatch(host)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, **made)  # type: ignore[arg-type]
    looks = None
    for index in range(8):
        if index == 2:
            looks = watch.look(6, 60.0)
        if looks is not None:
            next(looks, None)
        step(model, optimizer, index)
        optimizer.step()
    assert looks is not None
    next(looks, None)
    assert watch.failure is None
    return watch.health()


def net() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))


def test_a_healthy_step(host: Host) -> None:
    health = looked_at(host, net())
    assert health.update_ratio is not None
    assert 1e-4 < health.update_ratio < 1e-1
    assert health.labels == (96, 96, 96, 96)
    assert (health.classes, health.purity) == (4, 0.25)
    assert health.dead < 0.3
    assert not health.carried
    assert not health.lost_again
    assert not health.not_optimized
    assert health.weakest_gradient is not None


def test_gradients_before_the_first_step(host: Host) -> None:
    """Of the very first update, though looks begin later; of weight matrices, by hand."""
    model = net()
    with torch.no_grad():
        model[2].weight.mul_(1e3)

    def relative() -> float:
        own = [p for p in model.parameters() if p.dim() > 1]
        gradients = [p.grad for p in own if p.grad is not None]
        return float(torch.cat([g.flatten() for g in gradients]).norm()) / float(
            torch.cat([p.detach().flatten() for p in own]).norm()
        )

    watch = HealthWatch(host)
    optimizer = torch.optim.SGD(model.parameters(), 1e-6)
    plain(model, optimizer, 0)
    wanted = relative()
    optimizer.step()
    for _ in watch.look(2, 60.0):
        model.zero_grad()
        plain(model, optimizer, 1)
        optimizer.step()
    health = watch.health()
    assert health.first_gradient == pytest.approx(wanted, rel=1e-4)
    assert health.first_where == "0.weight", "what comes back through the large ones"
    assert wanted != pytest.approx(relative(), rel=1e-4)


def test_gradients_that_are_carried_on(host: Host) -> None:
    def forgets(model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> torch.Tensor:
        loss = nn.functional.cross_entropy(model(torch.randn(64, 8)), torch.arange(64) % 4)
        loss.backward()
        return loss

    assert looked_at(host, net(), forgets).carried


def test_accumulated_gradients_are_not_carried_on(host: Host) -> None:
    def accumulates(model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> torch.Tensor:
        optimizer.zero_grad()
        for _ in range(3):
            loss = nn.functional.cross_entropy(model(torch.randn(64, 8)), torch.arange(64) % 4)
            loss.backward()
        return loss

    assert not looked_at(host, net(), accumulates).carried


@pytest.mark.parametrize("to_none", [True, False])
def test_gradients_that_are_gone_before_the_step(host: Host, to_none: bool) -> None:
    def loses(model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> torch.Tensor:
        loss = nn.functional.cross_entropy(model(torch.randn(64, 8)), torch.arange(64) % 4)
        loss.backward()
        optimizer.zero_grad(set_to_none=to_none)
        return loss

    health = looked_at(host, net(), loses)
    assert health.lost_again
    assert not health.carried


def test_gradients_that_another_loss_gave_may_go(host: Host) -> None:
    """As those that the loss of a generator leaves in its adversary."""
    other = nn.Linear(4, 1)
    others = torch.optim.SGD(other.parameters(), 0.1)

    def in_turns(model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> torch.Tensor:
        optimizer.zero_grad()
        loss = other(model(torch.randn(64, 8))).mean()
        loss.backward()
        others.zero_grad()
        other(model(torch.randn(64, 8)).detach()).square().mean().backward()
        others.step()
        return loss

    assert not looked_at(host, net(), in_turns).lost_again


def test_a_layer_that_no_optimizer_has(host: Host) -> None:
    model = net()
    model.append(nn.Linear(4, 4))
    torch.manual_seed(0)
    watch = HealthWatch(host)
    optimizer = torch.optim.SGD(model[:3].parameters(), 0.1)
    plain(model, optimizer, 0)
    optimizer.step()
    for index in range(2):
        for _ in watch.look(1, 60.0):
            plain(model, optimizer, 1)
            optimizer.step()
        # One look alone could not tell whether the script changes them itself.
        assert watch.health().not_optimized == (("3.weight", "3.bias") if index else ())


class Blocks(nn.Module):
    """Some of its layers are in a plain list."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.blocks = [nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(2)]
        self.frozen = [nn.Linear(8, 8).requires_grad_(False)]
        self.last = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for block in (*self.blocks, *self.frozen):
            x = block(x)
        out: torch.Tensor = self.last(x)
        return out


def test_layers_of_a_plain_list(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strays, "graphs_compiled", lambda: 0)  # other tests may have compiled
    torch.manual_seed(0)
    found = looked_at(host, Blocks()).not_optimized
    kinds = [f"Sequential {i}, 0.{name}" for i in (1, 2) for name in ("weight", "bias")]
    assert list(found) == kinds
    hooks = nn.modules.module
    left = [*hooks._global_forward_pre_hooks.values(), *hooks._global_forward_hooks.values()]
    assert not any(isinstance(getattr(hook, "__self__", None), Strays) for hook in left)


def test_layers_of_a_plain_list_that_an_optimizer_has(host: Host) -> None:
    model = Blocks()
    watch = HealthWatch(host)
    extra = [p for block in model.blocks for p in block.parameters()]
    optimizer = torch.optim.SGD([*model.parameters(), *extra], 0.1)
    for index in range(4):
        for _ in watch.look(1, 60.0) if index else [None]:
            plain(model, optimizer, 1)
            optimizer.step()
    assert watch.failure is None
    assert not watch.health().not_optimized


def test_a_rate_is_noted_where_there_is_no_look_too(host: Host) -> None:
    """As of a training that is over before there is another."""
    model = net()
    watch = HealthWatch(host)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [50], gamma=1e-6)
    for index in range(200):
        for _ in watch.look(1, 60.0) if index == 1 else [None]:
            plain(model, optimizer, 1)
            optimizer.step()
        schedule.step()
    found = watch.health().rate_gone
    assert found is not None
    assert found[0] == 0.1
    assert 130 <= found[2] <= 150
    assert len(watch.rates.noted) < 20


def test_a_rate_that_cannot_be_read_does_no_harm(host: Host) -> None:
    model = net()
    watch = HealthWatch(host)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    optimizer.param_groups.append({"params": [], "lr": "as the schedule says"})
    host.main_optimizer = lambda: optimizer
    watch.rates.note(optimizer)
    assert watch.rates.noted == []


@pytest.mark.parametrize(("factor", "gone"), [(0.1, True), (0.9, False)])
def test_a_rate_that_a_schedule_has_brought_to_nothing(
    host: Host, factor: float, gone: bool
) -> None:
    model = net()
    watch = HealthWatch(host)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, factor)
    for index in range(30):
        for _ in watch.look(1, 60.0) if index in (1, 2, 10) else [None]:
            plain(model, optimizer, 1)
            optimizer.step()
        schedule.step()
    found = watch.health().rate_gone
    assert (found is not None) is gone
    if found is not None:
        largest, now, since = found
        assert largest == pytest.approx(0.01)
        assert now < 1e-20
        assert 15 <= since <= 20


def test_copies_of_the_weights_that_an_optimizer_has(host: Host) -> None:
    """As of weights of few bits: gradients are given to the copies, and these put back."""
    torch.manual_seed(0)
    model = net()
    copies = [p.detach().clone().requires_grad_() for p in model.parameters()]
    optimizer = torch.optim.SGD(copies, 0.1)
    watch = HealthWatch(host)

    def step() -> None:
        loss = nn.functional.cross_entropy(model(torch.randn(64, 8)), torch.arange(64) % 4)
        model.zero_grad()
        loss.backward()
        for copied, weight in zip(copies, model.parameters(), strict=True):
            assert weight.grad is not None
            copied.grad = weight.grad.clone()
        optimizer.step()
        for copied, weight in zip(copies, model.parameters(), strict=True):
            weight.data.copy_(copied.data)

    step()
    for _ in watch.look(6, 60.0):
        step()
    assert watch.failure is None
    assert not watch.health().not_optimized
    assert not watch.health().carried


def test_a_warm_up_by_hand(host: Host) -> None:
    def rises(model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> torch.Tensor:
        optimizer.param_groups[0]["lr"] = 0.001 * (1 + step)
        return plain(model, optimizer, step)

    def falls(model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> torch.Tensor:
        optimizer.param_groups[0]["lr"] = 0.1 / (1 + step)
        return plain(model, optimizer, step)

    assert looked_at(host, net(), rises).warming_up
    assert not looked_at(host, net(), falls).warming_up
    assert not looked_at(host, net()).warming_up


class Rateless(torch.optim.SGD):
    """Finds its rate itself, as Adafactor does."""

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for weight in group["params"]:
                weight.data.sub_(0.01 * weight.grad)


def test_an_optimizer_without_a_rate(host: Host) -> None:
    torch.manual_seed(0)
    model, watch = net(), HealthWatch(host)
    optimizer = Rateless(model.parameters(), 0.1)
    optimizer.param_groups[0]["lr"] = None
    for index in range(3):
        for _ in watch.look(1, 60.0) if index else (None,):
            plain(model, optimizer, index)
            optimizer.step()
    assert watch.failure is None
    assert watch.health().update_ratio is not None


class Branched(nn.Module):
    """Two branches, of which the second is cut off from the loss, always or in every other step."""

    def __init__(self, cut: int) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(8, 4), nn.Linear(8, 4)
        self.cut, self.calls = cut, 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        other = self.other(x)
        return self.one(x) + (other.detach() if self.calls % self.cut == 0 else other)


@pytest.mark.parametrize(("cut", "told"), [(1, ("other.weight", "other.bias")), (2, ())])
def test_a_branch_that_the_loss_does_not_depend_on(
    host: Host, cut: int, told: tuple[str, ...]
) -> None:
    """One look alone could not tell them apart."""
    model = Branched(cut)
    watch = HealthWatch(host)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    plain(model, optimizer, 0)
    optimizer.step()
    for _ in watch.look(1, 60.0):
        plain(model, optimizer, 1)
        optimizer.step()
    assert watch.health().without_gradient == (), "that may be of this step"
    for step in range(2, 30):
        plain(model, optimizer, step)
        optimizer.step()
    assert watch.health().without_gradient == told


class Stream(IterableDataset[Any]):
    """Samples in the order in which they are stored."""

    def __init__(self, data: Sequence[Any]) -> None:
        self.data = data

    def __iter__(self) -> Iterator[Any]:
        return (self.data[index] for index in range(len(self.data)))


class Balanced(BatchSampler):
    """Makes batches in a way that only it knows."""


@pytest.mark.parametrize(
    ("make", "shuffles"),
    [
        (lambda data: DataLoader(data, 4), False),
        (lambda data: DataLoader(data, 4, shuffle=True), True),
        (lambda data: DataLoader(data, 4, sampler=DistributedSampler(data, 2, 0, shuffle=False)), False),
        (lambda data: DataLoader(data, 4, sampler=DistributedSampler(data, 2, 0)), True),
        (lambda data: DataLoader(data, batch_sampler=BatchSampler(RandomSampler(data), 4, False)), True),
        (lambda data: DataLoader(data, batch_sampler=BatchSampler(SequentialSampler(data), 4, False)), False),
        (lambda data: DataLoader(data, batch_sampler=Balanced(SequentialSampler(data), 4, False)), True),
    ],
)  # fmt: skip
def test_whether_a_loader_draws_at_random(
    host: Host, make: Callable[[Any], DataLoader[Any]], shuffles: bool
) -> None:
    health = fed_by(host, make)
    assert health.shuffles is shuffles
    assert not health.streams


def test_a_stream_has_an_order_of_its_own(host: Host) -> None:
    health = fed_by(host, lambda data: DataLoader(Stream(data), 4))
    assert health.shuffles is False
    assert health.streams


def fed_by(host: Host, make: Callable[[Any], DataLoader[Any]]) -> Health:
    model = nn.Linear(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    watch = HealthWatch(host)
    loader = make(TensorDataset(torch.randn(16, 8), torch.arange(16) % 4))
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return watch.health()


def test_steps_of_an_optimizer_tell_of_its_own_parameters(host: Host) -> None:
    """As an actor's and a temperature's steps, which leave the larger critic as it is."""
    model, other = net(), nn.Parameter(torch.ones(2, 2))
    watch = HealthWatch(host)
    one, two = torch.optim.SGD(model.parameters(), 0.1), torch.optim.SGD([other], 0.1)
    plain(model, one, 0)
    one.step()
    for _ in watch.look(3, 60.0):
        plain(model, one, 1)
        one.step()
        for _ in range(2):
            two.zero_grad()
            other.square().sum().backward()
            two.step()
    health = watch.health()
    assert len(watch.ratios) == 3
    assert health.update_ratio is not None
    assert health.update_ratio > 1e-4


def test_models_with_optimizers_of_their_own_are_counted(host: Host) -> None:
    """A generator and its judge; and still when the function that trained them has returned."""

    def train(watch: HealthWatch) -> None:
        maker, judge = net(), nn.Linear(4, 1)
        makes, judges = (torch.optim.SGD(m.parameters(), 0.1) for m in (maker, judge))
        looks = watch.look(3, 60.0)
        for _ in range(4):
            for optimizer, sign in ((judges, 1.0), (makes, -1.0)):
                optimizer.zero_grad()
                (sign * judge(maker(torch.randn(8, 8)))).mean().backward()
                optimizer.step()
            next(looks, None)

    watch = HealthWatch(host)
    train(watch)
    assert watch.health().learners == 2


def test_optimizers_of_one_models_parts_are_one_learner(host: Host) -> None:
    """As one of its matrices and one of all else."""
    model = net()
    watch = HealthWatch(host)
    both = [torch.optim.SGD(model[part].parameters(), 0.1) for part in (0, 2)]
    plain(model, both[0], 0)
    for _ in watch.look(2, 60.0):
        plain(model, both[0], 1)
        for optimizer in both:
            optimizer.step()
    assert watch.health().learners == 1


def test_a_warm_up_that_is_over_by_the_last_look(host: Host) -> None:
    rates = {"now": 0.01}

    def warms_up(model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> torch.Tensor:
        for group in optimizer.param_groups:
            group["initial_lr"] = 0.1
            group["lr"] = 0.1 if step >= rates["now"] else 0.01
        return plain(model, optimizer, step)

    rates["now"] = 6
    assert not looked_at(host, net(), warms_up).warming_up
    rates["now"] = 60
    assert looked_at(host, net(), warms_up).warming_up


def test_a_loss_of_two_classes(host: Host) -> None:
    def yes_or_no(model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> torch.Tensor:
        wanted = (torch.arange(64) % 2).float()
        out = model(torch.randn(64, 8)).mean(1)
        loss = nn.functional.binary_cross_entropy_with_logits(out, wanted)
        optimizer.zero_grad()
        loss.backward()
        return loss

    assert looked_at(host, net(), yes_or_no).classes == 2


class TwoHeads(nn.Module):
    """Only the first head is asked; the other one's gradient is zero."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.heads = net(), nn.ModuleList(nn.Linear(4, 4) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.body(x)
        found: torch.Tensor = self.heads[0](hidden) + 0.0 * self.heads[1](hidden)
        return found


def test_a_gradient_of_zero_has_not_vanished(host: Host) -> None:
    health = looked_at(host, TwoHeads())
    assert health.weakest_gradient is not None
    assert health.weakest_gradient > 1e-4


class Adapted(nn.Module):
    """A layer whose change is a product of two matrices, the second of which begins at zero."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.down, self.up = nn.Linear(8, 32, bias=False), nn.Linear(32, 4, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.up(self.down(x))
        return found


def test_what_began_at_zero_is_left_out_of_the_ratios(host: Host) -> None:
    """Its first update is all that it is, its second about as large."""
    health = looked_at(host, Adapted())
    assert health.first_update_ratio is not None
    assert health.first_update_ratio < 0.02


def test_units_that_are_dead(host: Host) -> None:
    model = net()
    nn.init.constant_(model[0].bias, -50.0)
    health = looked_at(host, model)
    assert health.dead == 1.0
    assert health.dead_layer == "relu 1"


def test_units_that_are_off_harm_where_they_narrow_the_net(host: Host) -> None:
    """A wide layer that keeps more than the next one makes of them has enough."""
    wide = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 4))
    nn.init.constant_(wide[0].bias[:56], -50.0)
    assert looked_at(host, wide).dead == 0.0
    nn.init.constant_(wide[0].bias[:62], -50.0)
    assert looked_at(host, wide).dead == pytest.approx(62 / 64)


def test_units_of_a_convolution_in_one_dimension_are_its_channels(host: Host) -> None:
    model = nn.Sequential(
        *(nn.Unflatten(1, (1, 8)), nn.Conv1d(1, 32, 1), nn.ReLU(), nn.Conv1d(32, 4, 1)),
        *(nn.Flatten(), nn.Linear(32, 4)),
    )
    nn.init.constant_(model[1].bias[:30], -50.0)
    assert looked_at(host, model).dead == pytest.approx(30 / 32)


@pytest.mark.parametrize("units", [16, 8192])
def test_units_at_their_limit(host: Host, units: int) -> None:
    """Of a large activation only some rows are looked at."""
    model = nn.Sequential(nn.Linear(8, units), nn.Sigmoid(), nn.Linear(units, 4))
    nn.init.zeros_(model[0].weight)
    nn.init.zeros_(model[0].bias)
    nn.init.constant_(model[0].bias[: units // 2], 20.0)
    health = looked_at(host, model)
    assert health.saturated == pytest.approx(0.5, abs=0.01)
    assert health.saturated_layer == "sigmoid 1"


class Root(nn.Module):
    """A square root of what may be negative."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sqrt()


@pytest.mark.parametrize(
    ("layer", "change", "made"),
    [
        (Root(), "none", "1 (Root) is the first module whose output is not"),
        (nn.Dropout(), "loss", "the model's output is finite"),
        (nn.BatchNorm1d(32), "batch", "the batch that the model was given is not finite"),
        (nn.ReLU(), "weights", "2.bias was not finite any more"),
    ],
)
def test_where_a_nan_comes_from(host: Host, layer: nn.Module, change: str, made: str) -> None:
    model = nn.Sequential(nn.Linear(8, 32), layer, nn.Linear(32, 4))
    watch = HealthWatch(host)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    x = torch.randn(64, 8) * (torch.nan if change == "batch" else 1.0)
    if change == "weights":
        nn.init.constant_(model[2].bias, torch.inf)
    loss = nn.functional.cross_entropy(model(x), torch.arange(64) % 4)
    if change == "loss":
        loss = loss * torch.log(torch.zeros(()))
    state, noise = {k: v.clone() for k, v in model.state_dict().items()}, torch.get_rng_state()
    loss.backward()
    assert watch.failure is None
    assert made in (watch.bad_made or "")
    assert torch.equal(torch.get_rng_state(), noise)
    assert all(torch.equal(v, state[k]) or v.isnan().any() for k, v in model.state_dict().items())
    assert not any(m._forward_hooks for m in model.modules())
    optimizer.step()


def test_others_are_told_of_losses_after_one_that_is_not_finite(host: Host) -> None:
    """Also of those that come later, and what the model is given is noted for the probes."""
    told: list[bool] = []
    model = nn.Linear(8, 4)
    watch = HealthWatch(host)
    own = host.on_backward
    assert own is not None

    def see(loss: torch.Tensor) -> None:
        told.append(bool(loss.isfinite()))
        own(loss)

    host.on_backward = see
    x = torch.randn(64, 8)
    for factor in (torch.inf, 1.0, torch.inf):
        (factor * model(x).sum()).backward()
    assert told == [False, True, False]
    assert watch.bad_made is not None


def test_looks_change_no_bit(host: Host) -> None:
    def losses(watched: bool) -> list[float]:
        model = net()
        torch.manual_seed(0)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        looks = HealthWatch(host).look(4, 60.0) if watched else iter(())
        seen = []
        for index in range(6):
            if index >= 1:
                next(looks, None)
            seen.append(plain(model, optimizer, index).item())
            optimizer.step()
        next(looks, None)
        return seen

    assert losses(watched=True) == losses(watched=False)


def test_labels_that_the_model_chose_are_not_counted(host: Host) -> None:
    health = looked_at(host, nn.Linear(8, 4), by_its_own_guesses)
    assert health.labels == (96, 96, 96, 96)


def test_the_output_of_one_of_several_batches_is_no_hidden_layer(host: Host) -> None:
    """As where gradients are accumulated: the next batch's first layer follows on it."""

    def twice(model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> torch.Tensor:
        optimizer.zero_grad()
        for _ in range(2):
            loss = nn.functional.binary_cross_entropy(
                model(torch.randn(64, 8)), torch.zeros(64, 16)
            )
            loss.backward()
        return loss

    model = nn.Sequential(nn.Linear(8, 16), nn.Sigmoid())
    nn.init.constant_(model[0].bias, -20.0)
    assert looked_at(host, model, twice).saturated_layer is None


class Detector(nn.Module):
    """Two heads on common features: what follows on the first does not learn from it."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.there = nn.Conv1d(1, 8, 1), nn.Conv1d(8, 4, 1)
        self.kind = nn.Conv1d(8, 4, 1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        found = nn.functional.max_pool1d(torch.tanh(self.body(x[:, None])), 2)
        return torch.sigmoid(self.there(found)), self.kind(found).mean(2)


def test_the_output_of_one_of_several_heads_is_no_hidden_layer(host: Host) -> None:
    """What a layer does follow on, by way of what was made of it, is one."""

    def detect(model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> torch.Tensor:
        there, kind = model(torch.randn(64, 8))
        loss = nn.functional.cross_entropy(kind, EVEN) + there.square().mean()
        optimizer.zero_grad()
        loss.backward()
        return loss

    model = Detector()
    nn.init.constant_(model.there.bias, -20.0)
    nn.init.constant_(model.body.bias[:2], 20.0)
    health = looked_at(host, model, detect)
    assert health.saturated_layer == "tanh 1"
    assert health.saturated == pytest.approx(0.25, abs=0.05)


def of_heads(*asked: tuple[torch.Tensor, int]) -> Step:
    """A loss of several heads, each with labels of so many classes."""

    def step(model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> torch.Tensor:
        out, at, losses = model(torch.randn(64, 8)), 0, []
        for labels, classes in asked:
            losses.append(nn.functional.cross_entropy(out[:, at : at + classes], labels))
            at += classes
        loss = torch.stack(losses).sum()
        optimizer.zero_grad()
        loss.backward()
        return loss

    return step


EVEN = torch.tensor([i % 4 for i in range(64)])


@pytest.mark.parametrize(
    "step",
    [
        of_heads((EVEN % 2, 2), (EVEN, 4)),
        of_heads((EVEN, 4), (EVEN % 2, 2)),
    ],
    ids=["the smaller first", "the larger first"],
)
def test_labels_are_of_one_head(host: Host, step: Step) -> None:
    health = looked_at(host, nn.Linear(8, 6), step)
    assert (health.labels, health.classes) == ((96, 96, 96, 96), 4)


def test_labels_that_are_ignored_are_none(host: Host) -> None:
    few = torch.where(torch.tensor([i < 16 for i in range(64)]), EVEN, -100)
    health = looked_at(host, nn.Linear(8, 4), of_heads((few, 4)))
    assert (health.labels, health.purity) == ((24, 24, 24, 24), 0.25)


def test_characters_one_after_another_are_no_classes(host: Host) -> None:
    """Of a loss at each time step; two that learn from the same labels are of one sample each."""
    assert looked_at(host, nn.Linear(8, 8), of_heads((EVEN, 4), (EVEN % 3, 4))).labels == ()
    assert looked_at(host, nn.Linear(8, 8), of_heads((EVEN, 4), (EVEN.flip(0), 4))).labels


def test_labels_of_batches_that_are_accumulated_count(host: Host) -> None:
    def accumulates(model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> torch.Tensor:
        optimizer.zero_grad()
        for right in (EVEN, EVEN % 3):
            loss = nn.functional.cross_entropy(model(torch.randn(64, 8)), right)
            loss.backward()
        return loss

    assert sum(looked_at(host, net(), accumulates).labels) == 6 * 2 * 64


@pytest.mark.parametrize("weighted", [True, False])
def test_whether_a_loss_weights_its_classes(host: Host, *, weighted: bool) -> None:
    weights = torch.tensor([1.0, 2.0, 2.0, 1.0]) if weighted else None

    def step(model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> torch.Tensor:
        loss = nn.functional.cross_entropy(model(torch.randn(64, 8)), EVEN, weights)
        optimizer.zero_grad()
        loss.backward()
        return loss

    assert looked_at(host, net(), step).weighted is weighted


class Spectral(nn.Module):
    """Its weights are complex numbers, and its output real ones."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 4, dtype=torch.cfloat))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = (x.to(torch.cfloat) @ self.weight).abs()
        return out


@pytest.mark.filterwarnings("error")
def test_weights_that_are_complex_numbers(host: Host) -> None:
    """Both parts of them are looked at."""
    health = looked_at(host, Spectral())
    assert health.update_ratio is not None
    assert health.noise_scale is not None
    number = torch.tensor([[3.0 + 4.0j]])
    assert float(some_numbers(number).norm()) == pytest.approx(5.0)
    assert float(some_numbers(number.conj()).norm()) == pytest.approx(5.0)


FIRSTS = torch.zeros(64, dtype=torch.long)


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.zeros(64, dtype=torch.long),
        lambda: torch.zeros(64).long(),
        lambda: torch.zeros(64, dtype=torch.int).long().clone(),
        lambda: torch.zeros(2, 64, dtype=torch.long)[1],
        lambda: FIRSTS,
    ],
    ids=["made", "of other numbers", "copied", "a part", "made once"],
)
def test_labels_that_are_made_up_tell_nothing(host: Host, make: Callable[[], torch.Tensor]) -> None:
    """As where a sample is to be told from all others of its batch."""

    def contrast(model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> torch.Tensor:
        loss = nn.functional.cross_entropy(model(torch.randn(64, 8)), make())
        optimizer.zero_grad()
        loss.backward()
        return loss

    assert looked_at(host, net(), contrast).labels == ()


def test_targets_that_are_crossed_are_told_by_the_line_where_they_are(host: Host) -> None:
    def crossed(model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> torch.Tensor:
        differ = model(torch.randn(64, 8)) - torch.zeros(64)
        loss = differ.square().mean()
        optimizer.zero_grad()
        loss.backward()
        return loss

    line = crossed.__code__.co_firstlineno + 1
    assert (looked_at(host, nn.Linear(8, 1), crossed).crossed or "").endswith(f"_health.py:{line}")
    assert looked_at(host, net()).crossed is None


def test_no_memory_of_masks_is_held(host: Host) -> None:
    held: list[bool] = []

    def masked(model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> torch.Tensor:
        mask = torch.ones(64, 64, dtype=torch.bool).clone()
        memory = StorageWeakRef(mask.untyped_storage())
        del mask
        held.append(not memory.expired())
        return plain(model, optimizer, step)

    looked_at(host, net(), masked)
    assert held == [False] * 8


def test_actions_that_are_drawn_by_what_a_model_gave(host: Host) -> None:
    def acting(model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> torch.Tensor:
        policy = torch.distributions.Categorical(logits=model(torch.randn(64, 8)))
        loss = -policy.log_prob(policy.sample()).mean()
        optimizer.zero_grad()
        loss.backward()
        return loss

    assert looked_at(host, net(), acting).acts
    assert not looked_at(host, net()).acts


def test_a_loss_that_is_given_probabilities_is_told_by_its_line(host: Host) -> None:
    def twice(model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> torch.Tensor:
        given = model(torch.randn(64, 8)).softmax(1)
        loss = nn.functional.cross_entropy(given, torch.arange(64) % 4)
        optimizer.zero_grad()
        loss.backward()
        return loss

    assert "test_health.py:" in (looked_at(host, net(), twice).softmax_twice or "")
    assert looked_at(host, net()).softmax_twice is None


def test_an_encoder_and_its_decoder_learn_from_one_loss(host: Host) -> None:
    watch = HealthWatch(host)
    encoder, decoder = net(), nn.Linear(4, 1)
    both = [torch.optim.SGD(m.parameters(), 0.1) for m in (encoder, decoder)]
    looks = watch.look(3, 60.0)
    for _ in range(4):
        for optimizer in both:
            optimizer.zero_grad()
        decoder(encoder(torch.randn(8, 8))).mean().backward()
        for optimizer in both:
            optimizer.step()
        next(looks, None)
    assert watch.health().learners == 1


def test_what_later_states_are_worth_is_told_by_a_copy(host: Host) -> None:
    """As in Q-learning: its loss need not fall."""
    model, target = net(), net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    watch = HealthWatch(host)
    looks = watch.look(3, 60.0)
    for _ in range(8):
        with torch.no_grad():
            later = target(torch.randn(8, 8)).amax(1, keepdim=True)
        optimizer.zero_grad()
        (model(torch.randn(8, 8)) - later).square().mean().backward()
        optimizer.step()
        next(looks, None)
    assert watch.health().acts


class Scaled(nn.Module):
    """A scale along an image's channels, which does hardly anything."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.scale = net(), nn.Parameter(torch.ones(1, 8, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = x + 1e-9 * (x[..., None, None] * self.scale).flatten(1)
        found: torch.Tensor = self.body(hidden)
        return found


def test_a_scale_tells_nothing_of_gradients_that_vanish(host: Host) -> None:
    health = looked_at(host, Scaled())
    assert health.weakest_where is not None
    assert health.weakest_where.startswith("body")
    assert health.weak_share == 0.0


def test_models_that_a_script_makes_anew_are_not_held(host: Host) -> None:
    """As one for each client, each fold or each setting that is tried."""
    watch = HealthWatch(host)
    made, optimizers_of = [], []
    for step in range(6):
        model = nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 4))
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
        watch.looking = step % 2 == 0
        plain(model, optimizer, step)
        optimizer.step()
        made += [StorageWeakRef(each.untyped_storage()) for each in model.parameters()]
        optimizer.param_groups.clear()
        optimizer.state.clear()
        optimizers_of.append(optimizer)  # so that none has the number of another
    del model, optimizer
    gc.collect()
    assert len(made) - sum(each.expired() for each in made) <= 4, "the newest may be"


@pytest.mark.parametrize("peak", [3, 6])
def test_a_rate_that_was_warmed_up_by_hand_is_at_its_peak_or_falls(host: Host, peak: int) -> None:
    def warms_up(model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> torch.Tensor:
        rate = 0.01 * min(1 + step, peak) - 0.0005 * max(0, step - 2 * peak)
        optimizer.param_groups[0]["lr"] = rate
        return plain(model, optimizer, step)

    assert not looked_at(host, net(), warms_up).warming_up


def by_each(weigh: bool) -> Step:
    """A loss of each sample, which the script weighs, as a focal loss does."""

    def step(model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> torch.Tensor:
        labels = (torch.arange(64) % 16 == 0).long()
        out = model(torch.randn(64, 8))
        each = nn.functional.cross_entropy(out, labels, reduction="none" if weigh else "mean")
        loss = ((1 - torch.exp(-each)) ** 2 * each).mean() if weigh else each
        optimizer.zero_grad()
        loss.backward()
        return loss

    return step


@pytest.mark.parametrize("weigh", [True, False])
def test_a_loss_of_each_sample_may_be_weighed_by_the_script(host: Host, weigh: bool) -> None:
    assert looked_at(host, net(), by_each(weigh)).weighted is weigh


@pytest.mark.parametrize(
    ("given", "counts", "weighted"),
    [
        ({}, (360, 24), False),
        ({"pos_weight": torch.tensor(15.0)}, (360, 24), True),
        ({"reduction": "none"}, (360, 24), True),
        ({"smooth": 0.1}, (), False),
    ],
)
def test_answers_that_are_yes_or_no_are_counted(
    host: Host, given: dict[str, Any], counts: tuple[int, ...], weighted: bool
) -> None:
    smooth = given.pop("smooth", 0.0)
    answers = torch.tensor([0.0] * 15 + [1.0]).repeat(4)
    wanted = (1 - smooth) * answers + smooth / 2

    def step(model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> torch.Tensor:
        out = model(torch.randn(64, 8)).mean(1)
        loss = nn.functional.binary_cross_entropy_with_logits(
            out, wanted[torch.randperm(64)], **given
        )
        optimizer.zero_grad()
        loss.mean().backward()
        return loss

    found = looked_at(host, net(), step)
    assert found.classes == 2
    assert (found.labels, found.weighted) == (counts, weighted)


def test_what_adversaries_are_told_is_no_label(host: Host) -> None:
    def step(model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> torch.Tensor:
        out = model(torch.randn(64, 8)).mean(1)
        loss = nn.functional.binary_cross_entropy_with_logits(out, torch.ones(64))
        optimizer.zero_grad()
        loss.backward()
        return loss

    assert looked_at(host, net(), step).labels == ()


def test_answers_that_were_made_beforehand_are_no_labels(host: Host) -> None:
    """As adversaries are told, by the same two tensors in each step."""
    real, fake = torch.ones(64), torch.zeros(64)

    def step(model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> torch.Tensor:
        optimizer.zero_grad()
        for wanted in (real, fake):
            out = model(torch.randn(64, 8)).mean(1)
            loss = nn.functional.binary_cross_entropy_with_logits(out, wanted)
            loss.backward()
        return loss

    found = looked_at(host, net(), step)
    assert (found.labels, found.purity) == ((), None)


def test_words_that_come_next_are_as_rare_as_they_are(host: Host) -> None:
    class Next(nn.Module):
        def __init__(self, rows: int) -> None:
            super().__init__()
            self.table, self.head = nn.Embedding(rows, 8), nn.Linear(8, 30)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = self.head(self.table(x))
            return out

    def step(model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> torch.Tensor:
        x = torch.randint(30, (64,))
        loss = nn.functional.cross_entropy(model(x), torch.arange(64) % 30)
        optimizer.zero_grad()
        loss.backward()
        return loss

    assert looked_at(host, Next(30), step).weighted
    assert not looked_at(host, Next(40), step).weighted


def test_gradients_that_grow_from_look_to_look_do_not_vanish(host: Host) -> None:
    watch = HealthWatch(host)
    watch.gradients = {"gated": [1e-12, 1e-10, 1e-8], "dies": [3e-9, 2e-9], "head": [1e-3, 2e-3]}
    found = watch.health()
    assert (found.weakest_where, found.strongest_gradient) == ("dies", pytest.approx(1.5e-3))
    assert found.weak_share == 0.5
    watch.gradients = {"gated": [1e-12, 1e-8]}
    assert watch.health().weakest_where == "gated", "nothing else is there"


@pytest.mark.parametrize("played", [True, False])
def test_a_loader_over_what_was_just_played_is_no_data_set(
    host: Host, played: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader = DataLoader(TensorDataset(torch.zeros(8, 2)), 4, shuffle=True)
    record = Record(trains=True, taken_for=Line() if played else None)
    monkeypatch.setattr("outpace.measure.health.training_loader", lambda host: (loader, record))
    watch = HealthWatch(host)
    assert not watch.health().acts
    watch.acts = True
    assert watch.health().acts is played

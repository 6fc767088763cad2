"""Which optimizer a training has: muon, sgd."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.optimizer import register_optimizer_step_post_hook

from outpace.errors import UsageError
from outpace.train.run import Run
from outpace.train.strategies import (
    Constant,
    LrFinder,
    Muon,
    OneCycle,
    Sgd,
    Strategy,
    Transfer,
    muon,
)
from outpace.train.strategies.muon import MuonAdamW, hidden, is_muons, orthogonal
from tests.train.toys import deep, fit, points, same

# --- muon ------------------------------------------------------------------------------------


def steps(net: nn.Module, *optimizers: torch.optim.Optimizer, count: int = 4) -> None:
    """So many on the same batch, each with another rate."""
    x, y = points(32)
    net.eval()
    for step in range(count):
        F.cross_entropy(net(x), y).backward()
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = 0.01 * (1 + step)
            optimizer.step()
            optimizer.zero_grad()


def test_it_is_torchs_muon_and_torchs_adamw(monkeypatch: pytest.MonkeyPatch) -> None:
    """In float32, which torch's is made to multiply in."""
    monkeypatch.setattr(muon, "has_bf16", lambda device: False)
    monkeypatch.setattr(torch.Tensor, "bfloat16", torch.Tensor.float)
    ours, theirs, before = deep(), deep(), dict(deep().state_dict())
    steps(ours, Muon(weight_decay=0.1).optimizer(ours))
    matrices = [theirs[2].weight, theirs[5].weight]
    biases = [layer.bias for layer in theirs if isinstance(layer, nn.Linear)]
    others = [
        {"params": [theirs[0].weight, theirs[8].weight], "weight_decay": 0.1},
        {"params": biases, "weight_decay": 0.0},
    ]
    steps(
        theirs,
        torch.optim.Muon(matrices, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(others, fused=True),
    )
    for name, weight in theirs.state_dict().items():
        moved = float((weight - before[name]).norm())
        assert moved > 0.0
        assert float((ours.state_dict()[name] - weight).norm()) < 1e-4 * moved, name


@pytest.mark.parametrize("shape", [(3, 8, 8), (2, 24, 6), (4, 6, 24), (2, 1, 5)])
def test_all_directions_are_made_alike_large(shape: tuple[int, int, int]) -> None:
    given = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    left, sizes, right = torch.linalg.svd(given, full_matrices=False)
    found = orthogonal(given)
    inside = left.mT @ found.float() @ right.mT
    made = torch.diagonal(inside, dim1=1, dim2=2)
    assert float(sizes.amax() / sizes.amin()) > 1.0
    assert float(made.min()) > 0.6
    assert float(made.max()) < 1.3
    assert float((inside - torch.diag_embed(made)).abs().max()) < 0.03
    assert torch.equal(orthogonal(torch.zeros(shape)).float(), torch.zeros(shape))


def test_matrices_of_one_shape_move_as_each_alone() -> None:
    given = torch.randn(3, 12, 20, generator=torch.Generator().manual_seed(0))
    alone = torch.cat([orthogonal(each.unsqueeze(0)) for each in given])
    assert torch.allclose(orthogonal(given), alone, atol=0.02)


def test_those_who_watch_see_one_step_of_one_optimizer() -> None:
    seen: list[Any] = []
    net = deep()
    optimizer = Muon().optimizer(net)
    handle = register_optimizer_step_post_hook(lambda each, *_: seen.append(each))
    try:
        steps(net, optimizer, count=3)
    finally:
        handle.remove()
    assert seen == [optimizer] * 3


def test_copies_and_states_go_on_alike() -> None:
    net = deep()
    optimizer = Muon().optimizer(net)
    steps(net, optimizer, count=2)
    copied = copy.deepcopy((net, optimizer))
    other = deep(seed=3)
    other.load_state_dict(net.state_dict())
    loaded = Muon().optimizer(other)
    loaded.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    before = copy.deepcopy(net.state_dict())
    steps(*copied)
    assert same(dict(net.state_dict()), dict(before))
    steps(net, optimizer)
    steps(other, loaded)
    assert same(dict(copied[0].state_dict()), dict(net.state_dict()))
    assert same(dict(other.state_dict()), dict(net.state_dict()))


class Tied(nn.Module):
    """Tokens, places, attention, and a head that is the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.place = nn.Parameter(torch.zeros(5, 8))
        self.tokens = nn.Embedding(11, 8)
        self.inside = nn.TransformerEncoderLayer(8, 2, 16)
        self.memory = nn.GRU(8, 8)
        self.mix = nn.Conv1d(8, 8, 3)
        self.frozen = nn.Linear(8, 8).requires_grad_(False)
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.tokens.weight


def named(net: nn.Module) -> list[tuple[str, int]]:
    """Its hidden matrices by name, and how many each weight holds."""
    names = {id(parameter): name for name, parameter in net.named_parameters()}
    return [(names[id(weight)], parts) for weight, parts in hidden(net)]


def test_hidden_matrices_are_muons() -> None:
    net = Tied()
    assert named(net) == [
        ("inside.self_attn.in_proj_weight", 3),
        ("inside.self_attn.out_proj.weight", 1),
        ("inside.linear1.weight", 1),
        ("inside.linear2.weight", 1),
        ("memory.weight_ih_l0", 3),
        ("memory.weight_hh_l0", 3),
        ("mix.weight", 1),
    ]


def test_a_recurrent_layer_that_is_first_has_hidden_matrices_but_for_its_input() -> None:
    net = nn.ModuleList(
        [nn.LSTM(5, 8, 2, proj_size=4), nn.Conv1d(8, 8, 3, groups=8), nn.Linear(4, 2)]
    )
    assert named(net) == [
        ("0.weight_hh_l0", 4),
        ("0.weight_hr_l0", 1),
        ("0.weight_ih_l1", 4),
        ("0.weight_hh_l1", 4),
        ("0.weight_hr_l1", 1),
    ]


def test_parts_of_a_weight_move_each_as_a_matrix_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In float32: bfloat16 rounds a product of several matrices unlike that of one."""
    monkeypatch.setattr(muon, "has_bf16", lambda device: False)
    whole, cell = nn.Parameter(torch.zeros(12, 4)), nn.Parameter(torch.zeros(4, 2, 3))
    chance = torch.Generator().manual_seed(0)
    whole.grad, cell.grad = (
        torch.randn(12, 4, generator=chance),
        torch.randn(4, 2, 3, generator=chance),
    )
    given = [{"params": [whole], "parts": 3}, {"params": [cell], "parts": 1}]
    MuonAdamW(given, [], rate=1.0, weight_decay=0.0).step()
    moved = [*(-whole.detach()).chunk(3), -cell.detach().flatten(1)]
    gradients = [*whole.grad.chunk(3), cell.grad.flatten(1)]
    for each, gradient in zip(moved, gradients, strict=True):
        size = 0.2 * max(each.shape) ** 0.5
        assert torch.allclose(each / size, orthogonal(gradient.unsqueeze(0))[0], atol=1e-4)


def test_norms_of_two_dimensions_are_none() -> None:
    net = nn.Sequential(
        nn.Flatten(),
        nn.Linear(8, 24),
        nn.Unflatten(1, (4, 6)),
        nn.LayerNorm((4, 6)),
        nn.Linear(6, 6),
        nn.RMSNorm((4, 6)),
        nn.Flatten(),
        nn.Linear(24, 3),
        nn.LayerNorm((1, 3)),
    )
    assert [id(weight) for weight, _ in hidden(net)] == [id(net[4].weight)]


def seen(strategies: list[Strategy], **given: Any) -> list[tuple[float, ...]]:
    """Rates of the optimizer's groups at each step."""
    rates: list[tuple[float, ...]] = []

    class Rates:
        def gradients(self, run: Run) -> None:
            assert isinstance(run.optimizer, MuonAdamW)
            rates.append(tuple(group["lr"] for group in run.optimizer.param_groups))

    fit(**{"model": deep(), "strategies": strategies, "callbacks": [Rates()], **given})
    return rates


def test_any_course_of_the_rate_goes_with_it() -> None:
    for strategies in ([OneCycle(rate=0.1), Muon()], [Muon(), OneCycle(rate=0.1)]):
        rates = seen(strategies, epochs=10)
        assert len(set(rates[0])) == 1
        assert rates[0][0] == pytest.approx(0.1 / 25)
        assert max(rates)[0] == pytest.approx(0.1)
    found = seen([LrFinder(), Constant(), Muon()], epochs=40)
    assert set(found) == {found[0]}
    assert found[0][0] != 1e-3


def test_weights_that_are_transferred_keep_their_kind() -> None:
    other = {name: weight for name, weight in deep(seed=5).state_dict().items() if name[0] != "8"}
    kinds: list[int] = []

    class Kinds:
        def begin(self, run: Run) -> None:
            kinds.extend(
                sum(p.numel() for p in group["params"])
                for group in run.optimizer.param_groups
                if is_muons(group)
            )

    strategies = [Muon(), Transfer(other, parts=2), OneCycle(rate=0.01)]
    fit(model=deep(), strategies=strategies, callbacks=[Kinds()])
    assert sum(kinds) == 2 * 16 * 16
    assert len(set(seen([Muon(), Transfer(other, parts=2), OneCycle(rate=0.01)])[-1])) == 3


def turned(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs whose directions differ in size up to 32 times, and count alike for what is to be told."""
    chance, fixed = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(99)
    x = torch.randn(count, 32, generator=chance)
    first, last = torch.randn(32, 64, generator=fixed), torch.randn(64, 8, generator=fixed)
    return x / torch.arange(1.0, 33.0), torch.tanh(0.265 * x @ first) @ last / 8


def steps_to(loss: float, rate: float, *strategies: Strategy) -> int:
    """Steps until a validation is as good; more than there are where none is."""
    torch.manual_seed(0)
    middle = [layer for _ in range(3) for layer in (nn.Linear(64, 64), nn.ReLU())]
    net = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), *middle, nn.Linear(64, 8))
    x, y = turned(1024, 0)
    result = fit(
        model=net,
        train=list(zip(x.split(64), y.split(64), strict=True)),
        valid=[turned(512, 1)],
        loss=F.mse_loss,
        metric=None,
        target=loss,
        validate_every=16,
        epochs=20,
        strategies=[OneCycle(rate=rate), *strategies],
    )
    return result.steps if result.stopped == "target" else 1000


def test_directions_that_are_rare_in_gradients_are_learnt_in_fewer_steps() -> None:
    """Each at the better of two rates; AdamW is no better at those beside them."""
    ours = min(steps_to(0.1, rate, Muon()) for rate in (0.01, 0.03))
    plain = min(steps_to(0.1, rate) for rate in (0.003, 0.01))
    assert plain < 320
    assert ours < 0.8 * plain


# --- sgd -------------------------------------------------------------------------------------


def test_sgd_takes_the_place_of_the_courses_adamw() -> None:
    kinds: list[str] = []
    momenta: list[float] = []

    class Kind:
        def gradients(self, run: Run) -> None:
            momenta.append(run.optimizer.param_groups[0]["momentum"])

        def end(self, run: Run) -> None:
            kinds.append(type(run.optimizer).__name__)

    for strategies in (["sgd", "one_cycle"], ["one_cycle", "sgd"], ["linear", Sgd(momentum=0.5)]):
        fit(strategies=strategies, callbacks=[Kind()])
    assert kinds == ["SGD"] * 3
    assert min(momenta[:80]) == pytest.approx(0.85, abs=0.01)
    assert set(momenta[80:]) == {0.5}


def marginal(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Wilson et al. 2017, section 3.3: one feature tells the class, two are the same for all, and each
    sample has some that no other has, five times as many where it is of the rarer class.
    """
    rare = torch.arange(count) % 3 == 0
    x = torch.zeros(count, 3 + 5 * count)
    y = torch.where(rare, -1.0, 1.0)
    x[:, 0], x[:, 1:3] = y, 1.0
    for i in range(count):
        x[i, 3 + 5 * i : 3 + 5 * i + (5 if rare[i] else 1)] = 1.0
    return x, y.unsqueeze(1)


def test_sgd_holds_for_new_data_where_adamw_fits_alone() -> None:
    x, y = marginal(60)
    new = x.clone()
    new[:, 3:] = 0.0  # those of its own, training has not seen

    def right(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return ((outputs > 0) == (targets > 0)).float().mean()

    shares = []
    for strategies in ([Sgd(), OneCycle(rate=0.01)], [OneCycle(rate=0.01)]):
        net = nn.Linear(x.shape[1], 1, bias=False)
        nn.init.zeros_(net.weight)
        row = fit(
            model=net,
            train=[(x, y)],
            valid=[(new, y)],
            loss=F.mse_loss,
            metric=right,
            steps=200,
            validate_every=200,
            strategies=strategies,
        ).history[-1]
        assert (row.train_loss or 1.0) < 0.1
        shares.append(row.metric)
    assert shares[0] == 1.0
    assert shares[1] == pytest.approx(2 / 3)  # all are taken for the frequent class


# --- what they can not -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"strategies": ["muon"]}, "no matrices between its first and its last layer"),
        (
            {"model": deep(), "strategies": ["muon"], "optimizer": torch.optim.AdamW},
            "muon has an optimizer of its own",
        ),
        (
            {"strategies": ["sgd"], "optimizer": torch.optim.AdamW},
            "sgd is an optimizer, and optimizer= is AdamW",
        ),
        ({"strategies": ["muon", "sgd"]}, "both set the optimizer"),
        ({"strategies": ["schedule_free", "muon"]}, "both set the optimizer"),
    ],
)
def test_they_tell_why_they_can_not(given: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        fit(**given)


def test_all_that_learns_may_be_hidden_matrices() -> None:
    net = deep()
    for name, weight in net.named_parameters():
        weight.requires_grad_(name in ("2.weight", "5.weight"))
    result = fit(model=net, strategies=["muon", OneCycle(rate=0.03)], epochs=1)
    assert "muon: 512 weights by Muon, 0 by AdamW" in result.notes

"""bf16 and channels_last: the same steps, computed in another way."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from outpace.errors import UsageError
from outpace.train.facts import halves
from outpace.train.result import Result
from outpace.train.run import Run
from outpace.train.strategies import Bf16, ChannelsLast, OneCycle
from outpace.train.strategies.bf16 import LONG, FewInFloat32
from tests.train.toys import convolutional, fit, images, model, ready, same, trainer

# --- bf16 ------------------------------------------------------------------------------------


class Seen(nn.Module):
    """A model that notes the numbers it computes with, learning and judged."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(8, 3)
        self.seen: set[tuple[bool, torch.dtype]] = set()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.layer(x)
        self.seen.add((self.training, found.dtype))
        return found


def test_steps_are_in_half_precision_and_nothing_else() -> None:
    net, given = Seen(), set()

    def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        given.add(outputs.dtype)
        return F.cross_entropy(outputs, targets)

    result = fit(model=net, loss=loss, metric=None, strategies=[Bf16(), OneCycle(rate=0.03)])
    assert net.seen == {(True, torch.bfloat16), (False, torch.float32)}
    assert given == {torch.float32}
    assert {w.dtype for w in result.weights.values()} == {torch.float32}
    assert result.metric is not None
    assert result.metric < 0.8


def test_its_steps_are_those_of_autocast() -> None:
    net, own = Seen(), Seen()
    mine, theirs = (torch.optim.AdamW(each.parameters(), 0.01) for each in (net, own))
    fit(model=net, optimizer=mine, metric=None, epochs=1, strategies=[Bf16()])
    for x, y in ready():
        with torch.autocast("cpu", torch.bfloat16):
            outputs = own(x)
        F.cross_entropy(outputs.float(), y).backward()
        theirs.step()
        theirs.zero_grad()
    assert same(net.state_dict(), own.state_dict())


def test_a_loss_of_the_model_is_made_inside() -> None:
    net = Seen()

    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        return F.cross_entropy(model(batch[0]), batch[1])

    fit(model=net, loss=loss, metric=None, strategies=[Bf16(), OneCycle(rate=0.03)])
    assert net.seen == {(True, torch.bfloat16), (False, torch.float32)}


@pytest.mark.parametrize(("tokens", "dtype"), [(8, torch.float32), (LONG, torch.bfloat16)])
@pytest.mark.parametrize("masked", [None, torch.bool, torch.bfloat16])
def test_attention_between_few_tokens_is_in_float32(
    tokens: int, dtype: torch.dtype, masked: torch.dtype | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    plain = F.scaled_dot_product_attention

    def attention(query: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        seen.append(query.dtype)
        return plain(query, *args, **kwargs)

    monkeypatch.setattr(F, "scaled_dot_product_attention", attention)
    mask = None if masked is None else torch.ones(tokens, tokens).to(masked)
    query, key, value = (torch.randn(2, 2, tokens, 4, dtype=torch.bfloat16) for _ in range(3))
    few = FewInFloat32()
    with torch.autocast("cpu", torch.bfloat16):
        found = F.scaled_dot_product_attention(query, key, value, mask)
    del few
    assert seen == [dtype]
    assert found.dtype == torch.bfloat16
    wanted = plain(
        query.float(), key.float(), value.float(), mask if masked is torch.bool else None
    )
    if masked is torch.bfloat16:  # added to all alike
        wanted = plain(query.float(), key.float(), value.float())
    assert torch.allclose(found.float(), wanted, atol=0.05)


def test_torchs_attention_is_back_afterwards_whatever_comes() -> None:
    plain = F.scaled_dot_product_attention
    asked: list[bool] = []

    class Interrupts:
        def step_end(self, run: Run) -> None:
            asked.append(F.scaled_dot_product_attention is plain)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(strategies=[Bf16(), OneCycle(rate=0.03)], callbacks=[Interrupts()])
    assert asked == [False]
    assert F.scaled_dot_product_attention is plain


def test_torchs_attention_is_back_after_trials() -> None:
    """Whose strategies are dropped without a word, in any order."""
    plain = F.scaled_dot_product_attention
    one, other = FewInFloat32(), FewInFloat32()
    del one
    assert F.scaled_dot_product_attention is not plain
    del other
    assert F.scaled_dot_product_attention is plain
    variants = {name: [*more, OneCycle(rate=0.03)] for name, more in (("a", []), ("b", [Bf16()]))}
    tried = trainer(train=ready(960)).compare(variants, steps=20, seeds=2)
    assert tried[0].seeds > 0
    assert F.scaled_dot_product_attention is plain


class Attentive(nn.Module):
    """Its block may be called again in the backward pass: [N, T, 8] -> [N, 3]."""

    def __init__(self, *, again: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.again = again
        self.inner, self.head = nn.Linear(8, 24), nn.Linear(8, 3)

    def block(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = self.inner(x).unsqueeze(1).chunk(3, -1)
        return x + F.scaled_dot_product_attention(query, key, value).squeeze(1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inside = checkpoint(self.block, x, use_reentrant=False) if self.again else self.block(x)
        found: torch.Tensor = self.head(inside.mean(1))
        return found


def test_attention_that_is_called_again_in_the_backward_pass_is_the_same() -> None:
    x = torch.randn(24, 6, 8, generator=torch.Generator().manual_seed(0))
    train = [(x, torch.arange(24) % 3)]
    given: dict[str, Any] = {"train": train, "valid": None, "metric": None, "steps": 3}
    weights = [
        fit(model=Attentive(again=again), strategies=[Bf16(), OneCycle(rate=0.03)], **given).weights
        for again in (False, True)
    ]
    assert same(dict(weights[0]), dict(weights[1]))


# --- channels_last ---------------------------------------------------------------------------


class Layouts:
    """How weights, what the optimizer keeps of them, and images lie in the steps."""

    def __init__(self) -> None:
        self.seen: set[tuple[bool, ...]] = set()

    def step_end(self, run: Run) -> None:
        weight = next(p for p in run.module.parameters() if p.dim() == 4)
        kept = [v for v in run.optimizer.state[weight].values() if v.dim() == 4]
        self.seen.add(tuple(innermost(each) for each in (weight, *kept)))


class Wide(nn.Module):
    """Takes images of three channels, and notes how they lie."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(3))
        self.inner(torch.zeros(1, 3, 8, 8))
        self.seen: set[bool] = set()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.seen.add(innermost(x))
        found: torch.Tensor = self.inner(x)
        return found


def innermost(tensor: torch.Tensor) -> bool:
    return tensor.is_contiguous(memory_format=torch.channels_last)


def coloured() -> list[Any]:
    chance = torch.Generator().manual_seed(0)
    x = torch.randn(48, 3, 8, 8, generator=chance)
    return list(zip(x.split(12), (x.sum((1, 2, 3)) > 0).long().split(12), strict=True))


def trained(net: nn.Module, *strategies: Any, **given: Any) -> Result:
    data = coloured()
    given = {"optimizer": torch.optim.Adam(net.parameters(), 0.003, fused=True), **given}
    return fit(model=net, train=data, valid=data, strategies=list(strategies), **given)


def test_channels_are_innermost_while_it_trains() -> None:
    net, layouts = Wide(), Layouts()
    result = trained(net, ChannelsLast(), callbacks=[layouts])
    assert layouts.seen == {(True, True, True)}
    assert net.seen == {True}
    assert not innermost(next(net.parameters()))
    plain = trained(Wide())
    assert all(torch.allclose(result.weights[n], w, atol=1e-4) for n, w in plain.weights.items())
    assert plain.metric == result.metric


def test_losses_and_metrics_may_ask_for_views() -> None:
    def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return outputs.view(len(outputs), -1).mean() + 0.0 * targets.sum()

    net = nn.Conv2d(3, 4, 3)
    fit(
        model=net,
        loss=loss,
        metric=loss,
        train=coloured(),
        valid=coloured(),
        strategies=[ChannelsLast(), OneCycle(rate=0.01)],
    )
    assert not net._forward_hooks


def test_an_optimizer_of_the_users_goes_along() -> None:
    net = Wide()
    optimizer = torch.optim.Adam(net.parameters(), 0.003, fused=True)
    (x, y), *_ = coloured()
    F.cross_entropy(net(x), y).backward()
    optimizer.step()
    layouts = Layouts()
    trained(net, ChannelsLast(), optimizer=optimizer, callbacks=[layouts])
    assert layouts.seen == {(True, True, True)}
    weight = next(net.parameters())
    assert not any(innermost(each) for each in (weight, optimizer.state[weight]["exp_avg"]))


def test_weights_that_came_so_stay_so() -> None:
    net = Wide().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    trained(net, ChannelsLast())
    assert innermost(next(net.parameters()))


def test_there_have_to_be_images() -> None:
    with pytest.raises(UsageError, match="no weight of the model is of four dimensions"):
        fit(model=model(), strategies=[ChannelsLast()])


def test_both_together_end_much_as_neither() -> None:
    ended = [
        fit(
            model=convolutional(),
            train=images(),
            valid=images(seed=1),
            metric=None,
            strategies=[*more, OneCycle(rate=0.01)],
            epochs=10,
        ).metric
        for more in ([], [Bf16(), ChannelsLast()])
    ]
    assert ended[0] == pytest.approx(ended[1], rel=0.02)
    assert ended[0] != ended[1]  # they were at work


def test_objects_are_left_alone() -> None:
    net = model()
    before = copy.deepcopy(dict(vars(net)))
    fit(model=net, strategies=[Bf16(), OneCycle(rate=0.03)])
    assert vars(net).keys() == before.keys()


def test_a_torch_without_its_library_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    monkeypatch.setattr(torch.ops, "mkldnn", None)
    assert not halves(model())

"""quantization_aware: from its begin on layers learn, and are judged, as int8 will have them."""

from __future__ import annotations

import copy
import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from outpace.errors import MissingExtra, UsageError
from outpace.train.compress.int8 import eligible, replace
from outpace.train.run import Run
from outpace.train.strategies import (
    Constant,
    Divergence,
    OneCycle,
    QuantizationAware,
    quantization_aware,
)
from tests.train.toys import accuracy, deep, fit, images, points, ready, same, token_loss, tokens


def convolutional() -> nn.Module:
    """Without a linear layer that is large enough to be rounded; its second layer is."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(128, 1, bias=False),
    )


class Looked(nn.Module):
    """An embedding of 64 pairs of symbols: [N, T] -> [N, T, 8]."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.head = nn.Embedding(64, 8), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        before = torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1]], 1)
        found: torch.Tensor = self.head(self.embedding(8 * before + x))
        return found


def one_wave(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return F.binary_cross_entropy_with_logits(outputs[:, 0], (targets == 0).float())


CASES: dict[str, Any] = {
    "convolution": lambda: {
        "model": convolutional(),
        "train": images(),
        "valid": images(seed=1),
        "loss": one_wave,
    },
    "embedding": lambda: {
        "model": Looked(),
        "train": tokens(),
        "valid": tokens(seed=1),
        "loss": token_loss,
    },
}


def test_without_torchao_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quantization_aware, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match="torchao") as told:
        fit(model=deep(), strategies=["quantization_aware"])
    assert "outpace[quantize]" in (told.value.hint or "")


def test_from_its_begin_on_it_learns_and_is_judged_rounded() -> None:
    pytest.importorskip("torchao")
    kinds: list[str] = []
    rows: dict[int, float] = {}
    same_objects: list[bool] = []
    net = deep()
    weight = net[2].weight

    class Look:
        def step_end(self, run: Run) -> None:
            kinds.append(type(run.module[2]).__name__)
            same_objects.append(run.module[2].weight is weight)

        def validated(self, run: Run) -> None:
            x, y = points(120, seed=1)
            plain = deep()
            plain.load_state_dict(run.module.state_dict())
            with torch.no_grad():
                rows[run.step] = float(F.cross_entropy(plain.eval()(x), y))

    result = fit(
        model=net,
        strategies=[Constant(rate=0.02), QuantizationAware(begin=0.5)],
        callbacks=[Look()],
        epochs=4,
    )
    assert kinds[18] == "Linear"
    assert kinds[19] == kinds[-1] == "FakeQuantizedLinear"
    assert all(same_objects)
    assert type(net[2]) is nn.Linear
    for row in result.history:
        rounded = row.step >= 20
        assert row.valid_loss is not None
        assert (row.valid_loss == pytest.approx(rows[row.step], rel=1e-5)) != rounded
        assert row.valid_loss == pytest.approx(rows[row.step], rel=0.05)
    assert result.best is not None
    assert result.best.step >= 20
    x, y = points(120, seed=1)
    assert float(accuracy(net.eval()(x), y)) == pytest.approx(result.metric or 0.0, abs=0.03)


@pytest.mark.parametrize("name", CASES)
def test_what_is_judged_is_what_int8_will_give(name: str) -> None:
    """For those of which the weights alone are rounded, and without torchao."""
    given = CASES[name]()
    net = given["model"]
    strategies = [Constant(rate=0.05), QuantizationAware(begin=0.5)]
    result = fit(**given, metric=None, strategies=strategies, epochs=4)
    whole = float(sum(given["loss"](net.eval()(x), y) for x, y in given["valid"]))
    assert replace(net, products=False) == 1
    small = float(sum(given["loss"](net(x), y) for x, y in given["valid"]))
    assert result.metric == pytest.approx(small / len(given["valid"]), rel=1e-5)
    assert result.metric != pytest.approx(whole / len(given["valid"]), rel=1e-7)


@pytest.mark.parametrize("name", CASES)
def test_where_rounding_is_coarse_it_costs_less_learnt_than_done_afterwards(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three values for each output, in the place of 255."""

    def coarse(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        largest = values.detach().flatten(1).abs().amax(1).clamp(min=1e-30)
        scale = largest.view(-1, *[1] * (values.dim() - 1))
        return (values.detach() / scale).round().to(torch.int8), scale

    monkeypatch.setattr("outpace.train.compress.int8.rounded", coarse)
    monkeypatch.setattr("outpace.train.compress.straight.rounded", coarse)

    def loss(net: nn.Module) -> float:
        with torch.no_grad():
            return float(sum(given["loss"](net(x), y) for x, y in given["valid"]))

    whole, rounded = [], []
    for more in ([QuantizationAware(begin=0.3)], []):
        given = CASES[name]()
        net = given["model"]
        fit(**given, metric=None, strategies=[OneCycle(rate=0.02), *more], epochs=16)
        whole.append(loss(net.eval()))
        replace(net, products=False)
        rounded.append(loss(net))
    assert rounded[0] - whole[1] < 0.5 * (rounded[1] - whole[1])


def test_a_roll_back_goes_through_the_begin_of_rounding() -> None:
    class Breaks:
        def loss(self, run: Run, loss: torch.Tensor) -> torch.Tensor | None:
            return loss * math.nan if run.step == 30 else None

    given = CASES["convolution"]()
    strategies = [Divergence(), Constant(rate=0.01), QuantizationAware(begin=0.5)]
    result = fit(**given, metric=None, strategies=strategies, callbacks=[Breaks()], epochs=6)
    assert any("back to the weights of step 0" in note for note in result.notes)
    assert result.metric is not None
    assert math.isfinite(result.metric)


def test_a_model_without_such_layers_is_told() -> None:
    run: Any = SimpleNamespace(module=nn.Sequential(nn.Conv1d(1, 1, 1), nn.Linear(4, 4)))
    with pytest.raises(UsageError, match="no layer of the model has weights that become int8"):
        QuantizationAware().prepare(run)


def test_layers_whose_weights_others_read_are_left_alone() -> None:
    block = nn.TransformerEncoderLayer(16, 2, 32)
    assert set(eligible(nn.Sequential(block, nn.Linear(16, 16)))) == {"1"}


def test_plain_is_what_rounding_undoes() -> None:
    pytest.importorskip("torchao")
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(16, 16), nn.Conv1d(16, 16, 1), nn.Embedding(16, 16))
    given = torch.randn(2, 16, 16), torch.randn(2, 16, 5), torch.arange(4)

    def outputs() -> list[torch.Tensor]:
        return [layer(x) for layer, x in zip(net, given, strict=True)]

    before, first, state = copy.deepcopy(dict(net.state_dict())), list(net), torch.get_rng_state()
    wanted, layers = outputs(), eligible(net)
    quantization_aware.rounding(net, layers)
    assert same(dict(net.state_dict()), before)
    assert not any(torch.equal(*both) for both in zip(outputs(), wanted, strict=True))
    copied = copy.deepcopy(net)
    with torch.no_grad():
        copied[1].weight.zero_()
    assert not outputs()[1].equal(copied[1](given[1]))  # a copy computes with its own
    quantization_aware.plain(net, layers)
    assert same(dict(net.state_dict()), before)
    assert same(outputs(), wanted)
    assert torch.equal(torch.get_rng_state(), state)
    assert list(net) == first


def test_it_goes_by_the_ready_batches_too() -> None:
    pytest.importorskip("torchao")
    rounded, plain = (
        fit(model=deep(), train=ready(), strategies=[*more, Constant()])
        for more in (["quantization_aware"], [])
    )
    assert rounded.stopped == "epochs"
    assert not same(dict(rounded.weights), dict(plain.weights))


def test_a_layer_of_several_names_is_rounded_by_all_of_them() -> None:
    pytest.importorskip("torchao")
    layer = nn.Linear(16, 16)
    net = nn.Sequential(layer, nn.Tanh(), layer, nn.Sequential(nn.Tanh(), layer))
    layers = quantization_aware.roundable(net)
    quantization_aware.rounding(net, layers)
    standing = [net.get_submodule(name) for name in ("0", "2", "3.1")]
    assert all(each is standing[0] for each in standing)
    assert type(standing[0]).__name__ == "FakeQuantizedLinear"
    quantization_aware.plain(net, layers)
    assert all(net.get_submodule(name) is layer for name in ("0", "2", "3.1"))

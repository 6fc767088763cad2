"""Recurrent layers of int8 weights: a quarter of the file, and nearly what they gave."""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations
from torch.nn.utils.rnn import pack_padded_sequence

import outpace
from outpace.train.compress.cost import file_bytes
from outpace.train.compress.int8 import fits, int8_layer, replace
from outpace.train.strategies.quantization_aware import roundable
from tests.train.toys import Reader, fit, token_loss, tokens

LAYERS = [
    lambda: nn.LSTM(24, 32, num_layers=2, bidirectional=True, batch_first=True),
    lambda: nn.LSTM(24, 32, proj_size=8),
    lambda: nn.GRU(24, 32, num_layers=2, bias=False),
    lambda: nn.RNN(24, 32, nonlinearity="relu", bidirectional=True),
]


def near(before: torch.Tensor, after: torch.Tensor) -> bool:
    error = (before - after).square().mean().sqrt() / before.std()
    return before.shape == after.shape and 0.0 < float(error) < 0.03


@pytest.mark.parametrize("make", LAYERS)
def test_it_gives_nearly_what_the_layer_gave(make: Any) -> None:
    torch.manual_seed(0)
    layer = make().eval()
    small: Any = int8_layer(copy.deepcopy(layer)).eval()
    x = torch.randn(5, 7, 24)
    packed = pack_padded_sequence(x, [7] * 5 if layer.batch_first else [5] * 7, layer.batch_first)
    with torch.no_grad():
        before, hidden = layer(x)
        assert near(before, small(x)[0])
        assert near(layer(x, hidden)[0], small(x, hidden)[0])
        assert near(layer(packed)[0].data, small(packed)[0].data)
        assert near(layer(x[0])[0], small(x[0])[0])
    assert (small.hidden_size, small.num_layers) == (32, layer.num_layers)
    small.flatten_parameters()


def test_it_is_a_quarter_saved_loaded_and_copied() -> None:
    torch.manual_seed(0)
    large = nn.Sequential(nn.LSTM(256, 256)).eval()
    one, other = copy.deepcopy(large), nn.Sequential(nn.LSTM(256, 256)).eval()
    assert replace(one, products=True) == replace(other, products=True) == 1
    assert file_bytes(one)[0] < 0.27 * file_bytes(large)[0]
    x = torch.randn(3, 2, 256)
    with torch.no_grad():
        wanted = one(x)[0]
        other.load_state_dict(one.state_dict())
        file = io.BytesIO()
        torch.save(one, file)
        assert file.tell() < 0.3 * file_bytes(large)[0]
        file.seek(0)
        again = torch.load(file, weights_only=False)
        for each in (other, copy.deepcopy(one), again):
            assert torch.equal(each(x)[0], wanted)


def test_what_others_have_changed_stays() -> None:
    layer = nn.GRU(32, 32)
    assert fits(layer)
    assert not fits(parametrizations.weight_norm(layer, "weight_hh_l0"))
    assert roundable(nn.Sequential(nn.GRU(32, 32), nn.Embedding(40, 16))).keys() == {"1"}


def test_before_and_after_are_measured() -> None:
    def right(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return (outputs.argmax(-1) == targets).float().mean()

    model = Reader()
    fit(model=model, train=tokens(), valid=None, loss=token_loss, metric=None, epochs=2)
    result = outpace.compress(
        model, valid=tokens(seed=1), batch_size=None, metric=right, ways=["int8"], time_s=0.02
    )
    step = result.step("int8")
    assert step.accepted
    assert step.before.bytes > step.after.bytes
    assert step.before.latency_s > 0
    assert step.after.latency_s > 0
    assert step.after.metric == pytest.approx(step.before.metric, abs=0.01)
    assert type(model.memory) is nn.GRU
    assert type(result.model.memory).__name__ == "Int8Recurrent"

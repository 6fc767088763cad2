"""int8 weights: a quarter of the file, the metric kept, the same from each kernel."""

from __future__ import annotations

import copy
import io
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from outpace.errors import UsageError
from outpace.train.compress import int8
from outpace.train.compress.cost import file_bytes
from outpace.train.compress.int8 import Int8Linear, fits, int8_layer, quantized, replace, rounded
from outpace.train.compress.judging import Judge, Judging
from outpace.train.data import Batches
from tests.train.compress.nets import learnt
from tests.train.toys import accuracy


def judging_of(model: nn.Module, valid: Any) -> Judging:
    judge = Judge(accuracy, Batches([valid], torch.device("cpu")))
    return Judging(judge, judge, copy.deepcopy(model), 1.0)


def test_the_file_is_a_quarter_and_the_metric_kept() -> None:
    model, valid = learnt()
    judging = judging_of(model, valid)
    large = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512))
    small = copy.deepcopy(large)
    assert replace(small, products=True) == 2
    assert file_bytes(small)[0] < 0.27 * file_bytes(large)[0]
    made = quantized(copy.deepcopy(model), judging, 0.01)
    assert [each.said.partition(" are int8, ")[2][:8] for each in made][:2] == [
        "as are t",
        "multipli",
    ]
    for each in made:
        assert judging.fall(each.model) <= 0.005


@pytest.mark.parametrize(
    ("layer", "given"),
    [
        (nn.Linear(64, 32), torch.randn(5, 7, 64)),
        (nn.Linear(64, 32, bias=False), torch.randn(5, 64)),
        (nn.Conv1d(16, 8, 3, padding=1), torch.randn(2, 16, 9)),
        (nn.Conv2d(16, 8, 3, stride=2, padding="valid"), torch.randn(2, 16, 9, 9)),
        (nn.Conv3d(16, 32, 1), torch.randn(2, 16, 3, 3, 3)),
        (nn.Conv2d(32, 32, 3, groups=32), torch.randn(2, 32, 9, 9)),
        (nn.Embedding(40, 16), torch.randint(40, (2, 5))),
    ],
)
def test_each_layer_gives_nearly_what_it_gave(layer: nn.Module, given: torch.Tensor) -> None:
    small = int8_layer(layer, products=True)
    assert small is not None
    with torch.no_grad():
        before, after = layer(given), small(given)
    assert before.shape == after.shape
    error = (before - after).square().mean().sqrt() / before.std()
    assert 0.0 < error < 0.03


def test_rounding_is_to_the_nearest_of_255_values() -> None:
    weight = torch.randn(10, 30)
    values, scale = rounded(weight)
    assert values.dtype == torch.int8
    assert values.abs().amax(1).eq(127).all()
    assert ((values * scale - weight).abs() <= 0.5001 * scale).all()
    assert rounded(torch.zeros(2, 3))[0].eq(0).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_largest_of_short_floats_keeps_its_sign(dtype: torch.dtype) -> None:
    weight = torch.arange(1.0, 2.0, 1 / 128).to(dtype)[:, None] * torch.tensor([[1.0, -1.0]]).to(
        dtype
    )
    values, scale = rounded(weight)
    assert values.tolist() == [[127, -127]] * 128
    assert scale.dtype == dtype
    assert torch.allclose(values * scale, weight, rtol=0.02)


def test_layers_that_others_look_into_stay() -> None:
    """A hook would go with the layer, and what it does."""
    model, batch = learnt()
    seen: list[torch.Tensor] = []
    model[0].register_forward_hook(lambda layer, given, output: seen.append(output))
    vars(model[2])["forward"] = model[2].forward
    before = (model[0], model[2])
    replace(model, products=False)
    assert (model[0], model[2]) == before
    model(batch[0])
    assert len(seen) == 1


def test_what_has_no_int8_layer_stays() -> None:
    model = nn.ModuleDict(
        {
            "tiny": nn.Linear(4, 4),
            "padded": nn.Conv2d(16, 16, 3, padding_mode="circular", padding=1),
            "little memory": nn.GRU(4, 4),
            "cell": nn.GRUCell(32, 32),
            "attention": nn.MultiheadAttention(32, 2),
            "bounded": nn.Embedding(40, 16, max_norm=1.0),
        }
    )
    assert replace(model, products=True) == 0


class Repeats(nn.Module):
    """One layer under twelve names."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers, self.head = nn.ModuleList([nn.Linear(64, 64)] * 12), nn.Linear(64, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(x))
        found: torch.Tensor = self.head(x)
        return found


def test_a_layer_of_several_names_stays_one() -> None:
    model = Repeats()
    large = file_bytes(model)[0]
    assert replace(model, products=False) == 1
    assert len({id(layer) for layer in model.layers}) == 1
    assert file_bytes(model)[0] < 0.6 * large


def test_all_ways_take_a_layer_of_several_names() -> None:
    model, valid = Repeats().eval(), (torch.randn(100, 64), torch.zeros(100).long())
    judging = judging_of(model, valid)
    for each in quantized(model, judging, 1.0):
        assert len({id(layer) for layer in each.model.layers}) == 1  # type: ignore[arg-type, union-attr]


def test_products_in_int8_round_the_inputs_too(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    plain, x = nn.Linear(33, 7), torch.randn(5, 3, 33) * torch.tensor([1e-3, 1.0, 1e3]).view(3, 1)
    one, two = (Int8Linear(plain, products=products) for products in (True, False))
    multiplied = F.linear(x, two.multiplied(), two.bias)
    assert torch.equal(two(x), multiplied)
    error = (one(x) - multiplied).square().mean((0, 2)).sqrt() / multiplied.std((0, 2))
    assert error.gt(0).all()
    assert error.lt(0.02).all()  # whatever the size of a row
    assert torch.equal(one(torch.zeros(2, 33)), plain.bias.expand(2, -1))
    assert one(torch.zeros(0, 33)).shape == (0, 7)
    assert torch.allclose(one.double()(x.double()), multiplied.double(), rtol=1e-4)
    monkeypatch.setattr(int8, "PRODUCT", None)  # a torch that has none
    assert torch.equal(Int8Linear(plain, products=True)(x), multiplied)


def test_it_is_saved_loaded_and_copied(tmp_path: Path) -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 64)
    one, two = (nn.Sequential(Int8Linear(nn.Linear(64, 32), products=True)) for _ in range(2))
    expected = one(x)
    assert not torch.equal(two(x), expected)
    file = io.BytesIO()
    torch.save(one.state_dict(), file)
    file.seek(0)
    two.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(two(x), expected)
    torch.save(one, tmp_path / "model.pt")
    assert torch.equal(torch.load(tmp_path / "model.pt", weights_only=False)(x), expected)
    assert torch.equal(copy.deepcopy(one)(x), expected)


def test_nothing_that_torch_deprecates_is_used() -> None:
    model, valid = learnt()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        replace(model, products=True)
        model(valid[0])


class Reads(nn.Module):
    """Uses a layer's weight without calling it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 64)
        self.head = nn.Linear(64, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.head(F.linear(x, self.layer.weight))
        return found


def test_a_model_that_reads_weights_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(int8, "find_spec", lambda name: None)  # torchao's weights can be read
    model, valid = Reads().eval(), learnt()[1]
    with pytest.raises(UsageError, match=r"with int8 weights the model does not run: .*weight"):
        quantized(model, judging_of(model, valid), 1.0)


def test_nothing_to_make_int8_is_told() -> None:
    model, valid = nn.Sequential(nn.Linear(8, 3)), learnt()[1]
    with pytest.raises(UsageError, match="no layer of Sequential has weights that can be int8"):
        quantized(model, judging_of(model, valid), 1.0)


def test_torchao_is_tried_where_it_is_installed() -> None:
    pytest.importorskip("torchao")
    model, valid = learnt()
    judging = judging_of(model, valid)
    made = quantized(copy.deepcopy(model), judging, 0.01)
    assert [each.said.rpartition(" ")[2] for each in made] == ["ones", "call", "state_dict)"]
    assert judging.fall(made[2].model) <= 0.005
    assert file_bytes(made[2].model)[0] < 0.6 * file_bytes(model)[0]


def test_a_layer_of_complex_numbers_has_no_int8() -> None:
    assert fits(nn.Linear(64, 64))
    assert not fits(nn.Linear(64, 64, dtype=torch.complex64))

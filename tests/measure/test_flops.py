"""What a step computes is counted from shapes, by formulas that agree with the closed forms."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode, flop_registry

from outpace.measure.flops import StepCount, StepCounter, formulas


def calls(count: StepCount, operator: str) -> int:
    return sum(len(took) for (name, _, _), took in count.spent.items() if name == operator)


def test_matrix_products_forward_and_backward() -> None:
    layer = nn.Linear(64, 32)
    rows = torch.randn(16, 64)
    with StepCounter() as counter:
        layer(rows).sum().backward()
    count = counter.count
    assert counter.failure is None
    assert count.flops_forward == 2 * 16 * 64 * 32
    assert count.flops == 2 * count.flops_forward
    assert count.operations > count.operations_forward > 0
    assert calls(count, "addmm") == 1


def test_agrees_with_torch_on_a_convolutional_net() -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 4)
    )
    images = torch.randn(4, 3, 8, 8)
    with FlopCounterMode(display=False) as torchs:
        model(images).sum().backward()
    with StepCounter() as counter:
        model(images).sum().backward()
    assert counter.count.flops == torchs.get_total_flops() > 0


def test_attention_on_the_cpu_counts() -> None:
    query, key, value = (torch.randn(2, 4, 16, 8, requires_grad=True) for _ in range(3))
    product = 2 * (2 * 4) * 16 * 16 * 8
    with StepCounter() as counter:
        F.scaled_dot_product_attention(query, key, value, is_causal=True).sum().backward()
    assert counter.count.flops_forward == 2 * product
    assert counter.count.flops == (2 + 5) * product


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_recurrent_layers_count(layers: int, bidirectional: bool) -> None:
    lstm = nn.LSTM(8, 16, layers, bidirectional=bidirectional)
    weights = sum(weight.numel() for weight in lstm.parameters() if weight.dim() == 2)
    with StepCounter() as counter:
        lstm(torch.randn(5, 3, 8))[0].sum().backward()
    assert counter.count.flops_forward == 2 * 5 * 3 * weights
    assert counter.count.flops == 3 * counter.count.flops_forward


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta state")
@pytest.mark.parametrize("stored", [torch.Tensor.to_sparse, torch.Tensor.to_sparse_csr])
def test_of_sparse_operands_what_they_hold_counts(stored: Callable[..., torch.Tensor]) -> None:
    neighbours = stored(torch.eye(100))
    with StepCounter() as counter:
        torch.mm(neighbours, torch.randn(100, 8))
    assert counter.failure is None
    assert counter.count.flops == 2 * 100 * 8


def test_a_product_of_complex_numbers_is_four_of_real_ones() -> None:
    with StepCounter() as counter:
        torch.randn(4, 8, dtype=torch.cfloat) @ torch.randn(8, 2, dtype=torch.cfloat)
    assert counter.count.flops == 4 * (2 * 4 * 8 * 2)


def test_undivided_forms_in_inference_mode_count() -> None:
    rows, images = torch.randn(6, 8), torch.randn(2, 3, 8, 8)
    linear, convolution = nn.Linear(8, 4), nn.Conv2d(3, 5, 3)
    with StepCounter() as counter, torch.inference_mode():
        linear(rows)
        convolution(images)
        rows @ rows.T
        F.scaled_dot_product_attention(images, images, images)
    expected = 2 * 6 * 8 * 4 + 2 * 2 * 5 * 36 * 27 + 2 * 6 * 6 * 8 + 2 * (2 * 2 * 3 * 8 * 8 * 8)
    assert counter.count.flops == expected


def test_autocast_changes_bytes_and_not_flops() -> None:
    layer, rows = nn.Linear(256, 256), torch.randn(256, 256)
    counters = []
    for enabled in (False, True):
        with StepCounter() as counter, torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            layer(rows)
        counters.append(counter.count)
    whole, half = counters
    assert whole.flops == half.flops
    products = [sum(size for _, flops, size in each.spent if flops) for each in (half, whole)]
    assert 0 < products[0] < 0.6 * products[1]


def test_bytes_of_operators() -> None:
    one = torch.randn(1000)
    with StepCounter() as counter:
        total = one + one
        total.view(10, 100).mul_(2.0)
        torch.softmax(total, 0)
        one[:1].expand(1000) * 1.0
    moved = {name: size for name, _, size in counter.count.spent if size}
    assert moved == {"add": 12_000, "mul_": 8000, "_softmax": 8000, "mul": 8000}
    assert counter.count.bytes_out == 16_000


def test_micro_steps_and_the_optimizer_are_part_of_a_step() -> None:
    model = nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with StepCounter() as counter:
        for _ in range(3):
            model(torch.randn(4, 8)).sum().backward()
        optimizer.step()
    assert calls(counter.count, "addmm") == 3
    assert any("add_" in name for name, _, _ in counter.count.spent)


def test_where_a_formula_fails_the_rest_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> int:
        raise AssertionError

    table = {**formulas(), torch.ops.aten.bmm: broken}
    monkeypatch.setattr("outpace.measure.flops.formulas", lambda: table)
    with StepCounter() as counter:
        torch.bmm(torch.ones(2, 3, 4), torch.ones(2, 4, 5))
        torch.mm(torch.ones(2, 3), torch.ones(3, 4))
    assert counter.failure is None
    assert calls(counter.count, "bmm") == 1
    assert counter.count.flops == 48


def test_torchs_own_registry_is_left_alone() -> None:
    before = set(flop_registry)
    formulas()
    assert set(flop_registry) == before
    assert torch.ops.aten.linear not in flop_registry


def test_bytes_that_no_cache_holds_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outpace.measure.flops.last_level_cache", lambda: 10_000)
    large, small = torch.randn(2000), torch.randn(100)
    with StepCounter() as counter:
        large * 2.0
        small * 2.0
        large @ large
        large.add_(1.0)
    count = counter.count
    assert (count.far_bytes, count.fresh_bytes) == (32_000, 8000), "in place no memory is taken"
    far = {"mul": 16_000, "add_": 16_000}
    took = [sum(s) for (name, _, size), s in count.spent.items() if far.get(name) == size]
    assert count.far_s == pytest.approx(sum(took))
    assert len(took) == len(far)


@pytest.mark.parametrize("half", [True, False])
def test_the_precision_of_most_products_is_told(half: bool) -> None:
    """Under autocast, wherever it is entered: a library may do so inside of the model's call."""
    model, data = nn.Linear(64, 64), torch.randn(32, 64)
    with StepCounter() as counter:
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            loss = model(data).float().square().mean()
        loss.backward()
    assert counter.count.half == ("bfloat16" if half else "")

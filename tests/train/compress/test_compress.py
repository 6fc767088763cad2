"""outpace.compress as a user meets it: measured, refused with a reason, and the given model untouched."""

from __future__ import annotations

import copy
import io
import json
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import outpace
from outpace.errors import UsageError
from outpace.records.gain import NO_GAIN
from outpace.train.better import NOT_TOLD
from outpace.train.compress import compress as compress_module
from outpace.train.compress import cost
from outpace.train.compress.cost import Timed, file_bytes, paired_times
from outpace.train.compress.result import Made
from tests.train.compress.nets import learnt
from tests.train.compress.test_groups import Branching
from tests.train.compress.test_weights import share_of_zeros
from tests.train.toys import Time, accuracy, points, same


def compressed(model: nn.Module, valid: Any, **given: Any) -> Any:
    settings = {"metric": accuracy, "batch_size": 250, "time_s": 0.02, **given}
    return outpace.compress(model, valid=valid, **settings)


def test_all_ways_together() -> None:
    model, valid = learnt()
    model.train()
    model[0].register_buffer("kept", torch.ones(1))
    before, state = copy.deepcopy(model), torch.get_rng_state()
    result = compressed(model, valid, tolerance=0.03, scan=points(2000, seed=2))
    assert same(dict(model.state_dict()), dict(before.state_dict()))
    assert all(p.grad is None and p.requires_grad for p in model.parameters())
    assert model.training
    assert torch.equal(torch.get_rng_state(), state)
    assert not result.model.training
    assert [step.way for step in result.steps] == ["channels", "weights", "int8"]
    for step in result.steps:
        assert step.accepted, step.reason
        assert step.after is not None
        assert step.before.latency_s > 0
        assert step.after.latency_s > 0
        assert step.gain.low <= step.gain.speedup <= step.gain.high
    assert result.steps[0].curves["2"][0][0] == 0.125
    assert result.after.bytes < 0.5 * result.before.bytes
    assert result.after.zipped_bytes < 0.25 * result.before.zipped_bytes
    found = accuracy(result.model(valid[0]), valid[1])
    assert float(found) == pytest.approx(result.after.metric)
    assert result.after.metric >= result.before.metric - 0.03
    assert (result.after.bytes, result.after.zipped_bytes) == file_bytes(result.model)
    plain = json.loads(json.dumps(result.as_dict()))
    assert plain["schema"] == 1
    assert plain["steps"][1]["way"] == "weights"
    table = result.table()
    for word in ("channels", "weights", "int8", "KiB", " ms ", "of the weights", "MFLOPs"):
        assert word in table
    assert "chosen by the same data" not in table
    file = io.BytesIO()
    torch.save(result.model, file)


def test_what_costs_too_much_is_refused_and_the_model_kept() -> None:
    """Labels that only this very net gives: each weight that is lost is an error."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 24), nn.Tanh(), nn.Linear(24, 16)).eval()
    x = torch.randn(4000, 8)
    with torch.no_grad():
        y = model(x).argmax(1)
    result = compressed(model, (x, y), tolerance=0.0)
    assert [step.accepted for step in result.steps] == [False] * 3
    assert "no layer's channels can be removed" in result.steps[0].reason
    assert "no layer's weights can be set to zero" in result.steps[1].reason
    int8 = result.step("int8")
    assert "refused: the metric goes from 1 to 0.9" in int8.reason
    assert int8.after.metric < 1.0
    assert same(dict(result.model.state_dict()), dict(model.state_dict()))
    assert result.gain is None
    assert result.before == result.after


def test_a_metric_of_small_numbers_is_held_to_its_own_tolerance() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 24), nn.Tanh(), nn.Linear(24, 1)).eval()
    x = torch.randn(1000, 8)
    with torch.no_grad():
        for weight in model[2].parameters():
            weight.mul_(1e-4)
        y = model(x) + 1e-5 * torch.randn(1000, 1)
    allowed = 0.01 * float(F.mse_loss(model(x).detach(), y))
    result = compressed(model, (x, y), metric=F.mse_loss, ways=["weights"], tolerance=allowed)
    assert result.after.metric <= result.before.metric + 1.01 * allowed


def test_what_makes_the_file_larger_is_not_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it compresses better, as many zeros do."""

    def padded(model: nn.Module, judging: Any, allowed: float) -> list[Made]:
        with torch.no_grad():
            for weight in model.parameters():
                weight.mul_(0.0)
        model.register_buffer("more", torch.zeros(100))
        return [Made(model, "weights are zero, and some more of them")]

    model, valid = learnt()
    monkeypatch.setitem(compress_module.WAYS, "weights", padded)
    timed = Timed(1.0, 1.0, NO_GAIN)
    monkeypatch.setattr(compress_module, "paired_times", lambda *_: timed)
    step = compressed(model, valid, ways=["weights"], tolerance=1.0).steps[0]
    assert step.after.zipped_bytes < step.before.zipped_bytes
    assert not step.accepted
    assert "refused: it is neither smaller nor faster" in step.reason


def test_the_ways_share_the_tolerance() -> None:
    model, valid = learnt()
    base = float(accuracy(model(valid[0]), valid[1]))
    result = compressed(model, valid, tolerance=0.06, ways=["weights", "channels", "int8"])
    for i, step in enumerate(result.steps):
        assert step.after is None or step.after.metric >= base - 0.02 * (i + 1) - 1e-9
    assert any(step.after is not None for step in result.steps)
    assert "chosen by the same data" in result.table()


def test_a_model_that_cannot_be_traced_keeps_its_channels_and_goes_on() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(Branching(), nn.Linear(4, 128), nn.ReLU(), nn.Linear(128, 3))
    x = torch.randn(200, 4)
    with torch.no_grad():
        y = model(x).argmax(1)
    result = compressed(model, (x, y), ways=["channels", "int8"], tolerance=0.5)
    refused, taken = result.steps
    assert not refused.accepted
    assert refused.after is None
    assert "torch.fx cannot trace Sequential (TraceError: " in refused.reason
    assert taken.accepted


def test_a_loss_as_the_metric_and_other_ways_to_give_data() -> None:
    model, valid = learnt()

    def metric(model: nn.Module, batch: Any) -> torch.Tensor:
        return F.cross_entropy(model(batch[0]), batch[1])

    result = compressed(
        model,
        DataLoader(TensorDataset(*valid), 100),
        metric=metric,
        larger_is_better=False,
        ways=["channels"],
        tolerance=0.05,
        loss=F.cross_entropy,
        batch_size=None,
    )
    step = result.steps[0]
    assert step.accepted
    assert "by Taylor" in step.reason
    assert step.after.metric - step.before.metric <= 0.05
    assert all(p.requires_grad for p in result.model.parameters())


def test_what_is_tuned_loses_more_and_keeps_its_zeros() -> None:
    model, valid = learnt()
    before = copy.deepcopy(model)
    x, y = points(2000)
    seen: list[tuple[bool, float]] = []

    def tune(model: nn.Module) -> None:
        optimizer = torch.optim.AdamW(model.parameters(), 0.003, weight_decay=1.0)
        for _ in range(40):
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()
        seen.append((model.training, share_of_zeros(model)))

    plain = compressed(model, valid, ways=["channels", "weights"])
    result = compressed(model, valid, tune=tune, ways=["channels", "weights"])
    assert same(dict(model.state_dict()), dict(before.state_dict()))
    assert seen[0] == (True, 0.0)
    assert result.after.metric >= result.before.metric - 0.01
    assert result.after.zipped_bytes < plain.after.zipped_bytes
    weights = result.step("weights")
    assert weights.accepted
    for name, share in weights.shares.items():
        weight = result.model.get_parameter(name)
        assert float((weight == 0).float().mean()) == pytest.approx(share, abs=0.03)
    assert not result.model.training
    assert not result.model._forward_pre_hooks


def test_data_that_memory_does_not_hold_are_gone_through_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, valid = learnt()[0], points(200, seed=1)
    held = compressed(model, valid, ways=["weights"])
    monkeypatch.setattr(compress_module, "HELD_BYTES", 0)
    streamed = compressed(model, valid, ways=["weights"])
    assert streamed.steps[0].shares == held.steps[0].shares
    assert streamed.after.metric == pytest.approx(held.after.metric)


class Gathers:
    """A metric as those of torchmetrics are."""

    def reset(self) -> None:
        self.right = self.total = 0

    def update(self, outputs: torch.Tensor, targets: torch.Tensor) -> None:
        self.right += int((outputs.argmax(1) == targets).sum())
        self.total += len(targets)

    def compute(self) -> float:
        return self.right / self.total


def test_a_metric_that_gathers() -> None:
    model, valid = learnt()
    result = compressed(model, valid, metric=Gathers(), ways=["int8"])
    expected = float(accuracy(model(valid[0]), valid[1]))
    assert result.before.metric == pytest.approx(expected)


class Moved(nn.Module):
    """A cross-entropy that notes where it is moved to."""

    def __init__(self) -> None:
        super().__init__()
        self.to_: list[Any] = []

    def to(self, *args: Any, **kwargs: Any) -> Any:
        self.to_ += args
        return super().to(*args, **kwargs)

    def forward(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(outputs, targets)


def test_a_metric_and_a_loss_go_where_the_model_is() -> None:
    model, valid = learnt()
    metric, loss = Moved(), Moved()
    given: Any = {"metric": metric, "loss": loss, "larger_is_better": False, "tolerance": 0.05}
    compressed(model, valid, ways=["channels"], **given)
    assert {*metric.to_} == {*loss.to_} == {torch.device("cpu")}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"ways": ["smaller"]}, "there is no way 'smaller'"),
        ({"tolerance": -1.0}, "tolerance=-1"),
        ({"model": 3}, "a int is no torch.nn.Module"),
        ({"metric": lambda outputs, targets: float("nan")}, "is not a finite number"),
        ({"metric": lambda outputs, targets: float("inf")}, "is not a finite number"),
        ({"metric": lambda model, batch: 0.5}, "does not call the model"),
    ],
)
def test_what_cannot_be_is_told(given: dict[str, Any], said: str) -> None:
    model, valid = learnt()
    with pytest.raises(UsageError, match=said):
        compressed(given.pop("model", model), valid, **given)


def test_a_loss_is_left_as_it_was() -> None:
    class Centers(nn.Module):
        """Learns a center of each class, and counts its calls."""

        def __init__(self) -> None:
            super().__init__()
            self.centers = nn.Parameter(torch.zeros(1))
            self.register_buffer("calls", torch.zeros(1))

        def forward(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            return F.cross_entropy(outputs + self.centers, targets) + self.centers.square().sum()

    model, valid = learnt()
    loss = Centers()
    step = compressed(model, valid, loss=loss, ways=["channels"]).steps[0]
    assert "by Taylor" in step.reason
    assert loss.centers.grad is None
    assert float(loss.calls) == 0


def test_latencies_are_compared_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    time, calls, one, two = Time(), list[str](), nn.Identity(), nn.Tanh()
    monkeypatch.setattr(cost, "perf_counter", time)

    def call(model: nn.Module) -> None:
        time.s += 0.003 if model is one else 0.001
        calls.append("a" if model is one else "b")

    timed = paired_times(one, two, call, 1.0)
    blocks = calls[8::5]  # after those that warm up, and the two that tell how many go together
    assert "".join(blocks) == "baab" * 3
    assert (timed.first_s, timed.second_s) == pytest.approx((0.003, 0.001))
    assert timed.gain.low == pytest.approx(3.0)


def test_a_metric_whose_name_is_a_loss_is_not_to_grow() -> None:
    model, valid = learnt()
    result = compressed(model, valid, metric=F.cross_entropy, ways=["channels"], tolerance=0.02)
    assert result.after.metric <= result.before.metric + 0.02 + 1e-6

    def wobble(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return accuracy(outputs, targets)

    assert NOT_TOLD in compressed(model, valid, metric=wobble, ways=["int8"]).notes
    assert NOT_TOLD not in compressed(model, valid, ways=["int8"]).notes
    with pytest.raises(UsageError, match="larger_is_better='min'"):
        compressed(model, valid, larger_is_better="min")

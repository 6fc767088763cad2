"""fp16: steps in float16 whose loss is scaled, on a CPU, which computes the same as slowly."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from outpace.errors import UsageError
from outpace.train import facts as facts_module
from outpace.train.climb import climb
from outpace.train.facts import halves
from outpace.train.faster import distance, gradients_of
from outpace.train.native import has_fp16_alone
from outpace.train.run import Run
from outpace.train.scaled import UNSCALED
from outpace.train.strategies import Bf16, Divergence, Fp16, OneCycle
from outpace.train.strategies.base import clash
from outpace.train.twin import Twin
from tests.train.test_bf16 import Seen
from tests.train.toys import fit, model, points, ready, same

TINY = 1e-7
"""times a gradient that float16 has none for"""


class Looks:
    """At the length of the gradients that callbacks see, whether weights moved, and the scale after it."""

    def __init__(self) -> None:
        self.lengths: list[float] = []
        self.moved: list[bool] = []
        self.scales: list[float] = []
        self.before: dict[str, Any] = {}

    def batch(self, run: Run, batch: Any) -> None:
        self.before = copy.deepcopy(run.module.state_dict())

    def gradients(self, run: Run) -> None:
        found = [p.grad.norm() for p in run.module.parameters() if p.grad is not None]
        self.lengths.append(float(torch.stack(found).norm()))

    def step_end(self, run: Run) -> None:
        self.moved.append(not same(self.before, run.module.state_dict()))
        self.scales.append(run.scaler.get_scale())


def test_steps_are_in_half_precision_and_nothing_else() -> None:
    net = Seen()
    result = fit(model=net, metric=None, strategies=[Fp16(), OneCycle(rate=0.03)])
    assert net.seen == {(True, torch.float16), (False, torch.float32)}
    assert {w.dtype for w in result.weights.values()} == {torch.float32}
    assert result.metric is not None
    assert result.metric < 0.8


def test_its_steps_are_those_of_autocast_and_torchs_scaler() -> None:
    net, own = Seen(), Seen()
    mine, theirs = (torch.optim.AdamW(each.parameters(), 0.01) for each in (net, own))
    fit(model=net, optimizer=mine, metric=None, epochs=1, strategies=[Fp16()])
    scaler = torch.amp.GradScaler("cpu")
    for x, y in ready():
        with torch.autocast("cpu", torch.float16):
            outputs = own(x)
        scaler.scale(F.cross_entropy(outputs.float(), y)).backward()  # type: ignore[no-untyped-call]
        scaler.step(theirs)
        scaler.update()
        theirs.zero_grad()
    assert same(net.state_dict(), own.state_dict())


def test_small_gradients_are_not_lost() -> None:
    """Unscaled they would be zero; callbacks see them as they are."""

    def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return TINY * F.cross_entropy(outputs, targets)

    lengths = {}
    for name, strategies in (("fp16", [Fp16()]), ("float32", [])):
        looks = Looks()
        fit(
            model=model(),
            optimizer=lambda weights: torch.optim.SGD(weights, 0.1),
            loss=loss,
            metric=None,
            steps=4,
            strategies=strategies,
            callbacks=[looks],
        )
        lengths[name] = looks.lengths
    assert lengths["fp16"] == pytest.approx(lengths["float32"], rel=0.02)
    assert min(lengths["float32"]) < 1e-6


def test_a_step_that_overflows_moves_nothing_and_halves_the_scale() -> None:
    batches = [(1e6 * x if i == 2 else x, y) for i, (x, y) in enumerate(ready())]
    looks = Looks()
    result = fit(
        train=batches,
        metric=None,
        epochs=1,
        strategies=[Fp16(), Divergence(), OneCycle(rate=0.01)],
        callbacks=[looks],
    )
    assert looks.moved == [i != 2 for i in range(10)]
    assert looks.scales[:4] == [65536.0, 65536.0, 32768.0, 32768.0]
    assert all(bool(w.isfinite().all()) for w in result.weights.values())
    assert not any("ignored" in note for note in result.notes)


def test_its_scale_goes_on(tmp_path: Path) -> None:
    class Ends(Looks):
        def step_end(self, run: Run) -> None:
            super().step_end(run)
            if run.step == 4 and not run.resumed:
                run.stop("enough")

    batches = [(1e6 * x if i == 2 else x, y) for i, (x, y) in enumerate(ready())]
    found = []
    for _ in range(2):
        looks = Ends()
        fit(
            train=batches,
            metric=None,
            epochs=1,
            strategies=[Fp16(), OneCycle(rate=0.01)],
            callbacks=[looks],
            checkpoint=tmp_path / "run",
            every=0,
        )
        found.append(looks.scales)
    assert found[0][-1] == 32768.0
    assert set(found[1]) == {32768.0}


def test_weights_in_float16_are_refused() -> None:
    net = model().half()
    with pytest.raises(UsageError, match="some of the model's are in float16"):
        fit(model=net, train=[(x.half(), y) for x, y in ready()], valid=None, strategies=[Fp16()])


def test_one_precision_at_a_time() -> None:
    assert clash(Fp16(), Bf16()) == "fp16 and bf16 both set the precision"


@pytest.mark.parametrize("name", ["lr_finder", "accumulation", "batch_size"])
def test_what_learns_on_copies_scales_too(name: str) -> None:
    """A rate, a size of batches: found by gradients, which would be zero."""

    def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(outputs, targets)

    result = fit(
        model=model(),
        train=points(960),
        valid=points(120, seed=1),
        batch_size=24,
        loss=loss,
        metric=None,
        epochs=6,
        strategies=[Fp16(), name, "one_cycle"],
    )
    assert result.metric is not None
    assert any(note.startswith(name) for note in result.notes), result.notes


class Compares:
    """The gradients of a first batch, and those of a copy with a loss scaled far too much at first."""

    def __init__(self) -> None:
        self.apart = self.noise = float("nan")

    def begin(self, run: Run) -> None:
        batch = ready()[0]
        scaler, precision = run.scaler, run.objective.precision
        run.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**20)
        ours = gradients_of(run, batch)
        assert run.scaler.get_scale() < 2.0**20
        run.scaler, run.objective.precision = UNSCALED, None
        self.apart = distance(gradients_of(run, batch), ours)
        run.scaler, run.objective.precision = scaler, precision
        self.noise = Twin(run).noise_scale(ready(), 0.0, 1.0) or 0.0


def test_gradients_are_compared_as_the_optimizer_has_them() -> None:
    compares = Compares()
    fit(metric=None, steps=2, strategies=[Fp16()], callbacks=[compares])
    assert compares.apart < 0.02
    assert compares.noise > 0.0


def test_where_auto_may_take_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not has_fp16_alone("cpu")
    assert not halves(model(), has_fp16_alone)
    assert halves(model(), lambda device: True)
    assert not halves(model().half(), lambda device: True)
    monkeypatch.setattr(facts_module, "has_fp16_alone", lambda device: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr("outpace.train.native.has_bf16", lambda device: device == "cpu")
    assert has_fp16_alone("cuda")


def test_models_of_layers_take_it() -> None:
    net = nn.Sequential(nn.Conv1d(1, 4, 3), nn.BatchNorm1d(4), nn.Flatten(), nn.Linear(24, 3))
    batches = [(x.unsqueeze(1), y) for x, y in ready()]
    looks = Looks()
    fit(
        model=net,
        train=batches,
        valid=batches,
        metric=None,
        epochs=1,
        strategies=[Fp16(), OneCycle(rate=0.01)],
        callbacks=[looks],
    )
    assert all(looks.moved)


def test_a_first_step_that_overflows_leaves_no_momentum_of_nothing() -> None:
    """torch's kernel would keep memory that nobody has written to."""
    batches = [(1e6 * x if i == 0 else x, y) for i, (x, y) in enumerate(ready())]
    with_own: dict[str, Any] = {"strategies": [Fp16(), "sgd", "constant"]}
    with_theirs = {"strategies": [Fp16(), "constant"], "optimizer": fused_sgd}
    for given in (with_own, with_theirs):
        looks = Momenta()
        fit(train=batches, metric=None, steps=1, callbacks=[looks], **given)
        assert looks.most == 0.0


def fused_sgd(weights: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(weights, 0.1, momentum=0.9, fused=True)


class Momenta:
    """The largest of all after a step."""

    most = float("nan")

    def step_end(self, run: Run) -> None:
        states = [state["momentum_buffer"] for state in run.optimizer.state.values()]
        self.most = max(float(each.abs().max()) for each in states)


def test_gradients_that_are_never_finite_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    class Endless(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(context: Any, *gradients: torch.Tensor) -> Any:
            return gradients[0] * float("inf")

    def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = Endless.apply(outputs)  # type: ignore[no-untyped-call]
        return F.cross_entropy(made, targets)

    looks = Looks()
    result = fit(
        train=ready(960),
        loss=loss,
        metric=None,
        steps=32,
        strategies=[Fp16(), OneCycle(rate=0.01)],
        callbacks=[looks],
    )
    assert not any(looks.moved)
    assert looks.scales[-1] == 1.0
    assert any("not finite in float16 even where" in note for note in result.notes)


def test_a_scale_is_found_before_rates_are_tried() -> None:
    """Else steps that overflow would be of the few that tell."""
    net = model()
    x, y = points(240)
    scales = []

    def loss_of(model: nn.Module, batch: Any) -> torch.Tensor:
        outputs = model(batch[0])
        if outputs.requires_grad:
            outputs.register_hook(lambda gradient: scales.append(float(gradient.abs().max())))
        return 1e3 * F.cross_entropy(outputs.half().float(), batch[1])

    def copies() -> tuple[nn.Module, torch.optim.Optimizer]:
        own = copy.deepcopy(net)
        return own, torch.optim.AdamW(own.parameters(), 0.01)

    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**20)
    batches = [(x, y)]
    climb(copies, loss_of, (batches, batches), 4, lambda made: made < 2, scaler=scaler)
    finite = [each < float("inf") for each in scales]
    assert False in finite
    assert all(finite[finite.index(True) :])
    assert scaler.get_scale() == 2.0**20, "its own is as it was"


def test_gradients_of_weights_that_the_optimizer_has_not_are_left_out() -> None:
    """They are not unscaled."""

    class Halves:
        apart = float("nan")

        def begin(self, run: Run) -> None:
            ours = gradients_of(run, ready()[0])
            assert [each.shape for each in ours] == [torch.Size([3, 16]), torch.Size([3])]
            self.apart = max(float(each.abs().max()) for each in ours)

    looks, net = Halves(), model()
    optimizer = torch.optim.AdamW(net[-1].parameters(), 0.01)  # type: ignore[index]
    fit(
        model=net,
        optimizer=optimizer,
        metric=None,
        steps=1,
        strategies=[Fp16()],
        callbacks=[looks],
    )
    assert looks.apart < 10.0

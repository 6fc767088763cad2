"""Every strategy keeps to the rules, and does what its page says on a case made for it."""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from outpace.errors import UsageError
from outpace.train import auto
from outpace.train.auto import Known, chosen
from outpace.train.checkpoint import copied
from outpace.train.rate import usual_rate
from outpace.train.result import Choice
from outpace.train.run import Run
from outpace.train.strategies import (
    STRATEGIES,
    Constant,
    EarlyStopping,
    Ema,
    Linear,
    LrFinder,
    Lsuv,
    OneCycle,
    Plateau,
    QuantizationAware,
    Restarts,
    ScheduleFree,
    Strategy,
    Target,
    TaskCurriculum,
)
from outpace.train.strategies.base import EVENTS
from outpace.train.strategies.kaiming import fresh
from outpace.train.strategies.muon import hidden
from outpace.train.strategies.schedule_free import ScheduleFreeAdamW
from outpace.train.trainer import Trainer
from tests.train.toys import (
    Begun,
    Stop,
    fit,
    made,
    model,
    ready,
    same,
    size_loss,
    suited,
    trainer,
)

# --- what holds for all ----------------------------------------------------------------------


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_strategy_keeps_to_the_rules(name: str) -> None:
    kind = STRATEGIES[name]
    assert kind.name == name
    assert kind.__module__ == f"outpace.train.strategies.{name}"
    assert getattr(kind, "__final__", False)
    page = kind.page()
    for part in ("What:", "Helps:", "Harms:", "Source:"):
        assert part in page
    own = {key for key in vars(kind) if not key.startswith("_")}
    hooks = {*EVENTS, "prepare", "first_weights", "first_batches", "validates", "optimizer"}
    assert own & hooks
    for event in hooks & own:
        theirs = inspect.signature(getattr(kind, event)).parameters
        ours = inspect.signature(getattr(Strategy, event)).parameters
        assert list(theirs) == list(ours)
    state = made(name).state_dict()
    made(name).load_state_dict(state)


@pytest.mark.parametrize("name", [n for n in STRATEGIES if n not in auto.ASKED])
def test_it_is_used_alone_by_its_name(name: str) -> None:
    assert fit(**suited(name), strategies=[name], epochs=2).epochs == 2


def as_it_came(net: nn.Module) -> Any:
    """The layers of a model, their settings, and which weights learn."""
    layers = [
        (
            name,
            id(layer),
            {k: v for k, v in vars(layer).items() if isinstance(v, bool | int | float)},
        )
        for name, layer in net.named_modules()
    ]
    return layers, [weight.requires_grad for weight in net.parameters()]


@pytest.mark.parametrize("name", STRATEGIES)
def test_an_interrupted_training_leaves_the_model_as_it_came(name: str) -> None:
    """Interrupted where those that change it by the clock have begun to, and none is through."""
    strategy = QuantizationAware(begin=0.05) if name == "quantization_aware" else made(name)
    given = {"model": model(dropout=0.3), **suited(name), "strategies": [strategy]}
    net = given["model"].train()
    before = as_it_came(net)

    class Interrupted:
        def gradients(self, run: Run) -> None:
            if run.step == 5:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(**given, callbacks=[Interrupted()], epochs=6)
    assert as_it_came(net) == before


@pytest.mark.parametrize(
    ("pair", "said"),
    [
        (["one_cycle", "linear"], "one_cycle and linear both set the rate's course"),
        (["plateau", "constant"], "both set the rate's course"),
        (["ema", "schedule_free"], "both set the weights that are kept"),
        (
            ["early_stopping", "one_cycle"],
            "early_stopping does not go with one_cycle: its rate falls",
        ),
        (["linear", "early_stopping"], "early_stopping does not go with linear"),
        (["early_stopping", "restarts"], "early_stopping does not go with restarts"),
        (["ema", "ema"], "ema is given twice"),
        (["ema", "pruning"], "ema and pruning both set the weights that are kept"),
        (["early_stopping", "pruning"], "pruning does not go with early_stopping: it may end"),
        (["ema", "quantization_aware"], "quantization_aware does not go with ema"),
        ([LrFinder(), OneCycle(rate=0.1)], "lr_finder and one_cycle both set the largest rate"),
        ([Lsuv(), made("transfer")], "lsuv and transfer both set the first weights"),
    ],
)
def test_conflicts_are_refused_with_a_reason(pair: list[Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        fit(strategies=pair)


# --- auto ------------------------------------------------------------------------------------


def names(given: Any, **known: Any) -> list[str]:
    facts = {"end": True, "validation": True, "rate_given": False, "target": None, **known}
    found, reasons = chosen(given, Known(**facts))
    own = [] if isinstance(given, str) else [each for each in given if each != "auto"]
    assert len(reasons) >= len(found) - len(own)
    return [strategy.name for strategy in found]


def test_auto_chooses_and_says_why() -> None:
    assert names("auto") == ["divergence", "lr_finder", "one_cycle"]
    assert names("auto", target=0.9) == [
        "divergence", "lr_finder", "restarts", "ema", "target",
    ]  # fmt: skip
    assert names(["auto", Target(0.9)]) == [
        "divergence", "lr_finder", "restarts", "ema", "target",
    ]  # fmt: skip
    for given, facts in ((["auto", "quantization_aware"], {}), ("auto", {"batch_norm": True})):
        found = names(given, target=0.9, **facts)
        assert "restarts" in found
        assert "ema" not in found
    assert names(["auto", OneCycle(rate=0.1)], target=0.9) == ["divergence", "one_cycle", "target"]
    assert names("auto", rate_given=True) == ["divergence", "one_cycle"]
    assert names("auto", end=False, target=0.9) == ["divergence", "lr_finder", "plateau", "target"]
    assert names("auto", end=False, validation=False) == ["divergence", "lr_finder"]
    assert names(["auto", "early_stopping"]) == [
        "divergence", "lr_finder", "plateau", "early_stopping",
    ]  # fmt: skip
    assert names(["auto", OneCycle(rate=0.1)]) == ["divergence", "one_cycle"]
    assert names(["auto", "ema"])[-1] == "ema"
    assert names([]) == []


def test_a_rate_of_a_function_that_makes_the_optimizer_is_not_kept_and_that_is_said() -> None:
    def function(parameters: Any) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=1e-5)

    noted: list[float] = []
    notes = fit(strategies="auto", optimizer=function, epochs=40, callbacks=[Rates(noted)]).notes
    said = "\n".join(notes)
    assert max(noted) > 1e-3
    assert "lr_finder: the rate of optimizer='s function may be torch's default" in said
    assert "nobody gave a rate" not in said
    facts = {"end": True, "validation": True, "rate_given": False, "target": None}
    for choice in (Choice(), Choice(rate=0.1)):
        _, reasons = chosen("auto", Known(**facts, by_function=True), choice)
        assert any("the rate of optimizer='s function" in each for each in reasons)
        _, reasons = chosen("auto", Known(**facts), choice)
        assert not any("function" in each for each in reasons)
    noted.clear()
    course = ["auto", OneCycle(rate=0.1)]
    fit(strategies=course, optimizer=function, callbacks=[Rates(noted)])
    assert max(noted) == pytest.approx(0.1, rel=0.01)


def test_the_reasons_are_in_the_result() -> None:
    result = fit(strategies="auto", epochs=40)
    said = "\n".join(result.notes)
    for name in ("one_cycle: ", "lr_finder: ", "divergence: "):
        assert name in said
    assert (result.metric or 0.0) > 0.9


def test_a_users_optimizer_keeps_its_rate() -> None:
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), 0.25, momentum=0.9)
    rates: list[float] = []
    fit(
        model=net,
        optimizer=optimizer,
        strategies="auto",
        callbacks=[Rates(rates)],
    )
    assert max(rates) == pytest.approx(0.25, rel=0.01)
    assert auto.named("constant").name == "constant"


# --- courses of the rate ---------------------------------------------------------------------


class Rates:
    """Notes the rate that each step is made with."""

    def __init__(self, rates: list[float]) -> None:
        self.rates = rates

    def gradients(self, run: Run) -> None:
        self.rates.append(run.optimizer.param_groups[0]["lr"])


def rates(strategy: Strategy, **given: Any) -> list[float]:
    noted: list[float] = []
    fit(strategies=[strategy], callbacks=[Rates(noted)], **given)
    return noted


def test_one_cycle_rises_and_falls_to_zero() -> None:
    noted = rates(OneCycle(rate=0.1), epochs=10)
    top = noted.index(max(noted))
    assert 20 <= top <= 30
    assert noted[0] == pytest.approx(0.1 / 25)
    assert max(noted) == pytest.approx(0.1)
    assert noted[: top + 1] == sorted(noted[: top + 1])
    assert noted[top:] == sorted(noted[top:], reverse=True)
    assert noted[-1] < 0.001


def test_one_cycle_moves_momentum_the_other_way() -> None:
    betas: list[float] = []

    class Betas:
        def gradients(self, run: Run) -> None:
            betas.append(run.optimizer.param_groups[0]["betas"][0])

    fit(strategies=[OneCycle(rate=0.1)], callbacks=[Betas()], epochs=10)
    assert min(betas) == pytest.approx(0.85, abs=0.002)
    assert betas[-1] == pytest.approx(0.95, abs=0.002)
    assert 20 <= betas.index(min(betas)) <= 30


def test_linear_falls_in_a_line() -> None:
    noted = rates(Linear(rate=0.1, warmup=0.0), epochs=10)
    assert noted == pytest.approx([0.1 * (1 - i / 100) for i in range(100)])
    assert rates(Linear(rate=0.1, warmup=0.2), epochs=10)[0] < 0.002


def test_constant_is_constant_and_sgd() -> None:
    kinds: list[type] = []

    class Kind:
        def end(self, run: Run) -> None:
            kinds.append(type(run.optimizer))

    assert set(rates(Constant(rate=0.02))) == {0.02}
    fit(strategies=["constant"], callbacks=[Kind()])
    assert kinds == [torch.optim.SGD]


def test_biases_do_not_decay() -> None:
    optimizer = OneCycle(weight_decay=0.1).optimizer(model(norm=True))
    for group in optimizer.param_groups:
        assert all((p.dim() >= 2) == (group["weight_decay"] == 0.1) for p in group["params"])


def noisy_quadratic(count: int = 8, seed: int = 0) -> tuple[Any, Any]:
    """A regression whose targets are noise around a line: at one rate the loss stays above its best."""
    chance = torch.Generator().manual_seed(seed)
    x = torch.randn(64 * count, 10, generator=chance)
    y = x @ torch.arange(10.0).unsqueeze(1) / 10 + torch.randn(64 * count, 1, generator=chance)
    return list(zip(x.split(4), y.split(4), strict=True)), [(x, y)]


def on_noise(
    strategies: Sequence[Strategy], epochs: int, rate: float | None, **given: Any
) -> Trainer:
    """A Trainer of a line through such targets; ``rate``: that of SGD, or None for another optimizer."""
    train, valid = noisy_quadratic()
    torch.manual_seed(0)
    net = nn.Linear(10, 1)
    if rate is not None:
        given["optimizer"] = torch.optim.SGD(net.parameters(), rate, momentum=0.9)
    return trainer(
        model=net,
        loss=nn.functional.mse_loss,
        metric=None,
        train=train,
        valid=valid,
        epochs=epochs,
        strategies=strategies,
        **given,
    )


@pytest.mark.parametrize("course", [OneCycle, Linear])
def test_a_rate_that_falls_ends_lower_than_one_that_stays(course: type[OneCycle | Linear]) -> None:
    costs = []
    for strategy in (course(rate=0.05), Constant(rate=0.05)):
        result = on_noise([strategy], 10, None, optimizer=torch.optim.AdamW).fit(quiet=True)
        costs.append((result.history[-1].valid_loss or math.inf) - 1.0)
    assert costs[0] < 0.5 * costs[1]


def test_plateau_is_better_than_constant_where_noise_holds_the_loss_up() -> None:
    costs = {}
    for strategy in (Plateau(rate=0.05, drop=0.1), Constant(rate=0.05)):
        result = on_noise([strategy], 40, 0.05).fit(quiet=True)
        costs[strategy.name] = result.history[-1].valid_loss or math.inf
        drops = [note for note in result.notes if "plateau: the last" in note]
        assert bool(drops) == (strategy.name == "plateau")
    floor = 1.0
    assert costs["plateau"] - floor < 0.5 * (costs["constant"] - floor)


def test_early_stopping_stops_soon_and_not_short_of_the_best() -> None:
    """Few samples and a wide net: it overfits after some epochs."""
    torch.manual_seed(0)
    x, y = torch.randn(60, 8), torch.randint(3, (60,))
    y[:40] = x[:40, :3].argmax(1)
    train = list(zip(x.split(20), y.split(20), strict=True))

    def go(*strategies: Strategy) -> Any:
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(8, 128), nn.ReLU(), nn.Linear(128, 3))
        return fit(
            model=net,
            train=train,
            metric=None,
            epochs=200,
            strategies=[Constant(rate=0.05), *strategies],
            valid=ready(240, seed=1),
        )

    stopped, whole = go(EarlyStopping()), go()
    assert stopped.stopped == "early stopping"
    assert stopped.epochs < 60
    assert stopped.metric <= 1.01 * whole.metric


# --- schedule_free ---------------------------------------------------------------------------


def test_schedule_free_moves_as_its_authors_have_it() -> None:
    """With bias correction in the denominator alone, in float64; y are our weights, x what we validate."""
    target = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    ours = nn.Parameter(torch.zeros(3, dtype=torch.float64))
    optimizer = ScheduleFreeAdamW([ours], 0.1, betas=(0.9, 0.99), weight_decay=0.1)
    z = x = v = torch.zeros(3, dtype=torch.float64)
    weights = 0.0
    for t in range(1, 30):
        rate = 0.1 * min(1.0, t / 10)
        y = 0.1 * z + 0.9 * x
        assert torch.allclose(ours, y)
        g = 2 * (y - target)
        v = 0.99 * v + 0.01 * g**2
        z = z - rate * g / ((v / (1 - 0.99**t)).sqrt() + 1e-8) - rate * 0.1 * y
        weights += rate**2
        x = (1 - rate**2 / weights) * x + rate**2 / weights * z
        ((ours - target) ** 2).sum().backward()
        optimizer.param_groups[0]["lr"] = rate
        optimizer.step()
        optimizer.zero_grad()
        assert torch.allclose(optimizer.averaged(ours, optimizer.param_groups[0]), x)


def test_schedule_free_moves_both_parts_of_a_complex_weight_by_themselves() -> None:
    torch.manual_seed(0)
    first, target = torch.randn(2, 3, dtype=torch.complex128)
    whole = nn.Parameter(first.clone())
    parts = nn.Parameter(torch.view_as_real(first).clone())
    wanted = torch.view_as_real(target)
    one, other = ScheduleFreeAdamW([whole], 0.1), ScheduleFreeAdamW([parts], 0.1)
    for _ in range(20):
        (torch.view_as_real(whole) - wanted).square().sum().backward()
        (parts - wanted).square().sum().backward()
        for optimizer in (one, other):
            optimizer.step()
            optimizer.zero_grad()
        assert torch.allclose(torch.view_as_real(whole), parts)
    found = one.averaged(whole, one.param_groups[0])
    assert torch.allclose(torch.view_as_real(found), other.averaged(parts, other.param_groups[0]))


def test_schedule_free_is_better_than_a_constant_rate_at_any_moment() -> None:
    costs = []
    for strategy, kind in (
        (ScheduleFree(rate=0.05), None),
        (Constant(rate=0.05), torch.optim.AdamW),
    ):
        result = on_noise([strategy], 15, None, optimizer=kind).fit(quiet=True)
        costs.append([(row.valid_loss or math.inf) - 1.0 for row in result.history])
    for ours, plain in list(zip(*costs, strict=True))[4:]:
        assert ours < 0.5 * plain


def test_schedule_free_may_have_the_weights_of_a_loss_too() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(()))

        def forward(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
            return F.cross_entropy(outputs * self.scale, targets)

    loss = Scaled()
    result = fit(
        loss=loss,
        strategies=[ScheduleFree(rate=0.05)],
        optimizer=lambda weights: ScheduleFreeAdamW([*weights, *loss.parameters()]),
        epochs=2,
    )
    assert result.epochs == 2
    assert float(loss.scale) != 1.0


def test_schedule_free_reaches_its_rate_in_short_trainings_too() -> None:
    rates: list[float] = []

    class Rates:
        def gradients(self, run: Run) -> None:
            rates.append(run.rates.now)

    def seen(steps: int) -> list[float]:
        rates.clear()
        fit(strategies=[ScheduleFree(rate=0.02)], steps=steps, callbacks=[Rates()])
        return [each / 0.02 for each in rates]

    assert seen(30)[0] == pytest.approx(0.01)
    assert seen(30)[2:] == pytest.approx([1.0] * 28)
    assert min(i for i, each in enumerate(seen(1000)) if each == pytest.approx(1.0)) == 50
    long = seen(2400)
    assert long[:100] == pytest.approx([(i + 1) / 100 for i in range(100)])
    assert long[100:] == pytest.approx([1.0] * 2300)


def test_schedule_free_refuses_sparse_gradients() -> None:
    class Told(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(8, 3, sparse=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = self.table(x.argmax(1))
            return found

    with pytest.raises(UsageError, match="the gradient of a weight is sparse"):
        fit(model=Told(), strategies=[ScheduleFree(rate=0.02)], epochs=1)


def test_schedule_free_wants_its_own_optimizer() -> None:
    net = model()
    with pytest.raises(UsageError, match="schedule_free has an optimizer of its own"):
        fit(
            model=net,
            optimizer=torch.optim.SGD(net.parameters(), 0.1),
            strategies=["schedule_free"],
        )


# --- ema -------------------------------------------------------------------------------------


def test_averaged_weights_are_better_at_a_large_rate() -> None:
    costs = []
    for strategies in ([Constant(), Ema(0.99)], [Constant()]):
        made = on_noise(strategies, 15, 0.03)
        result = made.fit(quiet=True)
        costs.append(result.history[-1].valid_loss or math.inf)
        assert same(dict(made.model.state_dict()), dict(result.weights))
    assert costs[0] - 1.0 < 0.5 * (costs[1] - 1.0)


def test_short_numbers_are_averaged_in_longer_ones(tmp_path: Path) -> None:
    """Weights that change once; in bfloat16 three hundredths of what is left to 1.25 soon are nothing."""

    class Change:
        def gradients(self, run: Run) -> None:
            for weight in run.module.parameters():
                weight.detach().fill_(1.0 if run.step < 200 else 1.25)

    def go(folder: str, *callbacks: Any) -> Any:
        return fit(
            model=model().bfloat16(),
            train=[(x.bfloat16(), y) for x, y in ready()],
            valid=[(x.bfloat16(), y) for x, y in ready(24, seed=1)],
            strategies=[Constant(rate=0.0), Ema(0.97, every=1)],
            epochs=40,
            checkpoint=tmp_path / folder,
            every=0.05,
            callbacks=[Change(), *callbacks],
        )

    kept = {}

    class Kept:
        def end(self, run: Run) -> None:
            kept.update(copied(run.judged_model().state_dict()))

    go("whole", Kept())
    whole = dict(kept)
    assert all(float(weight.min()) > 1.23 for weight in whole.values())
    with pytest.raises(KeyboardInterrupt):
        go("cut", Stop(290))
    go("cut", Kept(), begun := Begun())
    assert same(kept, whole)
    assert 0 < begun.step <= 290


class Counting(nn.Module):
    """Has whole numbers that nothing learns, before and after what does."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.places = nn.Parameter(torch.arange(5), requires_grad=False)
        self.linear = nn.Linear(8, 3)
        self.mask = nn.Parameter(torch.ones(4, dtype=torch.bool), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.linear(x)
        return found


def test_whole_numbers_are_not_averaged() -> None:
    result = fit(model=Counting(), strategies=[Constant(rate=0.02), Ema(0.9, every=1)])
    assert result.weights["places"].tolist() == [0, 1, 2, 3, 4]
    assert result.weights["mask"].all()


class Keeping(nn.Module):
    """Keeps what it gave, as models do that show their attention, or whose loss has a part of their own."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(8, 3)
        self.kept: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.kept = [self.linear(x)]
        return self.kept[0]


@pytest.mark.parametrize("strategies", [[OneCycle(), Ema()], [ScheduleFree()]])
def test_a_model_that_keeps_what_it_gave_can_be_copied(strategies: list[Strategy]) -> None:
    net = Keeping()
    for _ in range(2):
        net(ready()[0][0])
        result = fit(model=net, strategies=[LrFinder(), *strategies], epochs=40)
        assert "no rate can be tried on a copy" not in str(result.notes)


class Caching(nn.Module):
    """Keeps what it has reckoned once, in buffers that come and grow."""

    places: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(8, 3)
        self.register_buffer("places", torch.zeros(0), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if len(self.places) < len(x):
            self.places = torch.linspace(0, 1, len(x))
            self.register_buffer("again", self.places.clone(), persistent=False)
        found: torch.Tensor = self.linear(x) + self.places[: len(x), None]
        return found


@pytest.mark.parametrize("strategies", [[Constant(rate=0.02), Ema()], [ScheduleFree(rate=0.02)]])
def test_buffers_may_come_and_grow(strategies: list[Strategy]) -> None:
    result = fit(model=Caching(), strategies=strategies, valid=ready(120, size=40, seed=1))
    assert result.epochs == 4


def test_training_does_not_notice_the_average() -> None:
    given = {"valid": None, "metric": None, "model": model(norm=True)}
    losses = [
        [
            row.train_loss
            for row in fit(**{**given, "model": model(norm=True)}, strategies=s).history
        ]
        for s in ([Constant(rate=0.02)], [Constant(rate=0.02), Ema()])
    ]
    assert losses[0] == losses[1]


@pytest.mark.parametrize(
    ("kind", "given", "said"),
    [
        (Restarts, {"factor": 0.5}, r"first=200, factor=0\.5"),
        (Restarts, {"first": 0}, "first=0, factor=2"),
        (ScheduleFree, {"betas": (0.0, 0.999)}, r"betas=\(0\.0, 0\.999\)"),
        (ScheduleFree, {"betas": (0.9, 1.0)}, r"betas=\(0\.9, 1\.0\)"),
        (Ema, {"every": 0}, r"decay=0\.999, every=0"),
        (Ema, {"decay": 1.1}, r"decay=1\.1, every=4"),
    ],
)
def test_numbers_that_nothing_can_be_reckoned_with_are_refused(
    kind: Any, given: dict[str, Any], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        kind(**given)


@pytest.mark.parametrize("strategy", [EarlyStopping(), Plateau(rate=0.01)])
def test_nothing_stalls_while_a_strategy_unfolds(strategy: Strategy) -> None:
    """A second task joins at 0.9 of the budget; the first has long been learnt by then."""
    losses = {"easy": F.cross_entropy, "later": size_loss}
    seen: list[int] = []

    class Joined:
        def validated(self, run: Run) -> None:
            curriculum = next(s for s in run.events.strategies if isinstance(s, TaskCurriculum))
            seen.append(len(curriculum.joined))

    def go(until: float) -> Any:
        course = [] if isinstance(strategy, Plateau) else [Constant(rate=0.01)]
        joins = TaskCurriculum(until=until, order=["easy", "later"])
        return fit(
            loss=losses,
            metric=None,
            epochs=60,
            strategies=[joins, *course, strategy],
            callbacks=[Joined()],
        )

    result = go(0.9)
    assert seen[-1] == 2, "the second task has been learnt too"
    early = [row for row in result.history if row.epoch < 54]
    assert len({row.rate for row in early}) == 1


def test_two_targets_are_refused() -> None:
    with pytest.raises(UsageError, match=r"target=0.9, and strategies= has Target\(0.95\)"):
        fit(strategies=[Target(0.95)], target=0.9)
    assert fit(strategies=[Target(0.5)], target=0.5).target == 0.5


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_schedule_free_wants_weights_that_tell_its_moves(kind: torch.dtype) -> None:
    net = model().to(kind)
    train = [(x.to(kind), y) for x, y in ready()]
    with pytest.raises(UsageError, match="rounds its small moves away"):
        fit(model=net, train=train, valid=None, metric=None, strategies=["schedule_free"])


def test_complex_weights_are_left_to_adam_and_as_they_begin() -> None:
    layers = [nn.Linear(8, 8, dtype=torch.complex64) for _ in range(4)]
    net = nn.Sequential(*layers)
    assert hidden(net) == []
    assert not any(fresh(each, set()) for each in layers)
    for each in layers:
        each.weight.data *= 1j  # its size is that of both parts
    adam = torch.optim.AdamW(net.parameters())
    turned = usual_rate(net, adam)
    for each in layers:
        each.weight.data *= 1j
    assert turned == pytest.approx(usual_rate(net, adam), rel=1e-4)

"""What "auto" chooses by trying, on cases made for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from outpace.errors import UsageError
from outpace.serve.loader import Loader
from outpace.train import choose, facts, trainer
from outpace.train.candidates import Candidate
from outpace.train.clock import Clock
from outpace.train.data import Batches
from outpace.train.judged_first import LOOKED_AT
from outpace.train.progress import Telling
from outpace.train.rate import LONG, Found, horizon
from outpace.train.result import Choice, Result, Spent
from outpace.train.run import Run
from outpace.train.strategies import (
    STRATEGIES,
    Accumulation,
    BatchWarmup,
    Constant,
    Divergence,
    LrFinder,
    OneCycle,
    Strategy,
    Target,
    Transfer,
    lr_finder,
)
from tests.train import toys
from tests.train.test_trials import Ticking
from tests.train.toys import (
    Stop,
    Time,
    fit,
    model,
    points,
    ready,
    same,
)

EPOCHS = 280
"""of ten batches: just enough for trials of the rate"""
MANY = 600
"""enough for those of strategies too"""


@pytest.fixture(autouse=True)
def untimed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without what the real time of a step settles: that is another on other machines."""
    rows = tuple(each for each in choose.CANDIDATES if each.by != "the time of a step")
    monkeypatch.setattr(choose, "CANDIDATES", rows)


class Useless(Strategy):
    """Learns from half of its steps."""

    name = "useless"

    def loss(self, run: Run, loss: torch.Tensor) -> torch.Tensor:
        return loss * (run.step % 2)


class Useful(Strategy):
    """Knows the answers."""

    name = "useful"

    def batch(self, run: Run, batch: Any) -> Any:
        return batch[0], batch[0][:, :3].argmax(1)


def mislabelled() -> list[Any]:
    """Batches of whose answers two in five are wrong."""
    chance = torch.Generator().manual_seed(0)
    return [
        (x, torch.where(torch.rand(len(y), generator=chance) < 0.4, (y + 1) % 3, y))
        for x, y in ready()
    ]


def planted(monkeypatch: pytest.MonkeyPatch, *kinds: type[Strategy]) -> None:
    """Strategies that something always speaks for, and no others; the rate is a good one."""
    suggested(monkeypatch, 0.01)
    for kind in kinds:
        monkeypatch.setitem(STRATEGIES, kind.name, kind)
    rows = tuple(Candidate(kind.name, lambda facts: "planted") for kind in kinds)
    monkeypatch.setattr(choose, "CANDIDATES", rows)


def suggested(monkeypatch: pytest.MonkeyPatch, rate: float) -> None:
    """Sweeps that find that rate."""
    monkeypatch.setattr(lr_finder, "suggestion", lambda *_, **__: Found(rate, rate, rate))


def auto(**given: Any) -> Result:
    return fit(**{"strategies": "auto", "epochs": EPOCHS, "metric": None, **given})


class Begun:
    """Notes how a training begins, and ends it at a step."""

    def __init__(self, until: int = 0) -> None:
        self.until, self.names, self.rate, self.seconds = until, list[str](), 0.0, 0.0

    def begin(self, run: Run) -> None:
        self.rate, self.names = run.rates.peak, [s.name for s in run.events.strategies]
        self.seconds = run.clock.read()
        self.step_end(run)

    def step_end(self, run: Run) -> None:
        if run.step == self.until:
            run.stop("seen")


# --- the rate --------------------------------------------------------------------------------


@pytest.mark.parametrize(("told", "low", "high"), [(3e-4, 2e-3, 0.3), (3.0, 1e-3, 1.1)])
def test_a_rate_far_off_is_corrected(
    told: float, low: float, high: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    suggested(monkeypatch, told)
    begun = Begun()
    result = auto(callbacks=[begun])
    assert low <= begun.rate <= high
    assert "lr_finder" not in begun.names
    (moved,) = [each for each in result.tried if each.better]
    assert f"tried {moved.what} against rate {told:.2g}: " in "\n".join(result.notes)


def test_a_good_rate_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    suggested(monkeypatch, 0.03)
    begun = Begun()
    result = auto(callbacks=[begun])
    assert begun.rate == pytest.approx(0.03)
    assert result.tried
    assert not any(each.better for each in result.tried)
    assert any("left out" in note for note in result.notes)


def test_nothing_is_tried_where_it_does_not_pay() -> None:
    def tried(**given: Any) -> bool:
        return bool(auto(callbacks=[Begun()], **given).tried)

    assert tried()
    assert not tried(epochs=100)  # too short
    assert not tried(target=0.1)  # it may end long before
    assert not tried(strategies=["auto", Target(0.1)])
    assert not tried(epochs=None, target=0.5)  # no end is known
    assert not tried(strategies=["auto", OneCycle(rate=0.03)])
    net = model()
    assert not tried(model=net, optimizer=torch.optim.SGD(net.parameters(), 0.1))


# --- candidates ------------------------------------------------------------------------------


def test_what_is_useless_is_rejected_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    planted(monkeypatch, Useless)
    begun = Begun()
    result = auto(callbacks=[begun], epochs=MANY)
    (tried,) = [each for each in result.tried if each.what == "useless"]
    assert not tried.better
    assert any(n.startswith("tried useless against rate") and "left out" in n for n in result.notes)
    assert "useless" not in begun.names


def test_what_helps_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    planted(monkeypatch, Useless, Useful)
    begun = Begun()
    result = auto(callbacks=[begun], epochs=MANY, train=mislabelled())
    assert "useful" in [each.what for each in result.tried if each.better]
    assert "useful" in begun.names
    assert "useless" not in begun.names


def test_the_rate_is_looked_at_again_where_something_was_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = {}
    for kind in (Useful, Useless):
        with monkeypatch.context() as patch:
            planted(patch, kind)
            tried = auto(callbacks=[Begun()], epochs=4 * MANY, train=mislabelled()).tried
        names = [each.what for each in tried]
        found[kind.name] = names[names.index(kind.name) + 1 :]
    assert found["useless"] == []
    assert found["useful"][0].startswith("rate ")


class Other(Strategy):
    """Sets what the first one sets."""

    name, sets = "other", ("answers",)


def test_what_does_not_go_with_what_was_taken_is_not_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    planted(monkeypatch, Useful, Other)
    monkeypatch.setattr(Useful, "sets", ("answers",))
    result = auto(callbacks=[Begun()], epochs=4 * MANY, train=mislabelled())
    assert "useful" in [each.what for each in result.tried if each.better]
    assert "other" not in [each.what for each in result.tried]


def test_the_training_is_as_if_the_choice_were_made_by_hand(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    suggested(monkeypatch, 0.001)
    begun = Begun(until=65)
    data = {"train": points(), "valid": points(120, seed=1), "batch_size": 24}
    given: dict[str, Any] = {**data, "epochs": EPOCHS}
    chosen = auto(model=model(dropout=0.3, norm=True), **given, callbacks=[begun])
    assert any(each.better for each in chosen.tried)
    strategies = [Divergence(), OneCycle(rate=begun.rate)]
    assert begun.names == [each.name for each in strategies]
    given |= {"metric": None, "strategies": strategies, "callbacks": [begun]}
    by_hand = fit(model=model(dropout=0.3, norm=True), **given)
    assert by_hand.steps == 65
    assert same(dict(chosen.weights), dict(by_hand.weights))
    assert [row.train_loss for row in chosen.history] == [r.train_loss for r in by_hand.history]


@pytest.mark.parametrize("finder", [None, LrFinder()])
def test_a_resume_does_not_try_again(
    finder: LrFinder | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, Any] = {"strategies": ["auto", finder] if finder is not None else "auto"}
    suggested(monkeypatch, 0.001)
    first = Begun(until=85)
    whole = auto(**given, callbacks=[first])
    assert first.names == ["divergence", "one_cycle"]
    if finder is not None:
        assert finder.svg().startswith("<svg")
        assert any("lr_finder: trials have begun with" in note for note in whole.notes)
    with pytest.raises(KeyboardInterrupt):
        auto(**given, checkpoint=tmp_path, every=0, callbacks=[Stop(at=55)])

    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("tried again")

    monkeypatch.setattr(trainer, "settled", never)
    begun = Begun(until=85)
    resumed = auto(**given, checkpoint=tmp_path, callbacks=[begun])
    assert same(dict(whole.weights), dict(resumed.weights))
    assert [each.what for each in resumed.tried] == [each.what for each in whole.tried]
    assert begun.names == ["divergence", "one_cycle"]


def test_what_was_chosen_has_to_go_with_what_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = Choice(taken=("schedule_free",))
    monkeypatch.setattr(trainer, "settled", lambda *_: (taken, [], Spent()))
    with pytest.raises(UsageError, match="both set the weights that are kept"):
        auto(strategies=["auto", "ema"])


def test_a_resume_keeps_what_was_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planted(monkeypatch, Useful)
    given: dict[str, Any] = {"checkpoint": tmp_path, "epochs": MANY, "train": mislabelled()}
    auto(**given, callbacks=[Begun()])
    begun = Begun()
    auto(**given, callbacks=[begun])
    assert begun.names == ["divergence", "one_cycle", "useful"]


@pytest.mark.parametrize("budget", [40.0, 300.0, 3500.0, 6000.0])
def test_trials_keep_to_their_share_of_the_time(
    budget: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted(monkeypatch, Useless, Useful)
    time, begun = Time(), Begun()
    given: dict[str, Any] = {"loss": Ticking(time), "now": time, "budget": budget, "epochs": None}
    result = auto(**given, callbacks=[begun])
    # Where nothing is tried, lr_finder has its own share before the callback.
    assert 0.0 < begun.seconds <= choose.SHARE * budget
    assert bool(result.tried) == (budget >= 3500.0)


class Quick(Strategy):
    """Its steps take half a second where others take one."""

    name = "quick"
    time: Time

    def batch(self, run: Run, batch: Any) -> None:
        self.time.s -= 0.5


class Off(Quick):
    """The same, but other gradients."""

    name = "off"

    def loss(self, run: Run, loss: torch.Tensor) -> torch.Tensor:
        return -loss


class Longer(Quick):
    """Its steps take longer."""

    name = "longer"

    def batch(self, run: Run, batch: Any) -> None:
        self.time.s += 0.5


@pytest.mark.parametrize("target", [None, 1e-9])
@pytest.mark.parametrize(("budget", "room"), [(60.0, False), (200.0, True), (400.0, True)])
def test_what_makes_steps_faster_is_taken(
    budget: float, room: bool, target: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    time, begun = Time(), Begun()
    monkeypatch.setattr(Quick, "time", time, raising=False)
    planted(monkeypatch, Off, Quick, Longer)
    rows = [each._replace(by="the time of a step") for each in choose.CANDIDATES]
    monkeypatch.setattr(choose, "CANDIDATES", tuple(rows))
    given: dict[str, Any] = {"loss": Ticking(time), "now": time, "budget": budget, "epochs": None}
    result = auto(**given, target=target, callbacks=[begun])
    told = "\n".join(result.notes)
    assert ("quick" in begun.names) == room
    assert ("quick (planted): steps 2.00 times as fast [" in told) == room
    assert "off" not in begun.names
    assert "longer" not in begun.names
    if room:
        assert "off (planted): gradients 200.0% apart: left out" in told
        assert ("longer (planted): steps 0.50 times as fast" in told) == (budget > 200.0)


class Somewhat(Quick):
    """Its steps take a little longer."""

    name = "somewhat"

    def batch(self, run: Run, batch: Any) -> None:
        self.time.s += 0.1


@pytest.mark.parametrize(("target", "trained"), [(None, False), (1e-9, True), (1e-9, False)])
def test_with_a_target_what_needs_fewer_steps_is_taken_where_they_are_not_too_slow(
    target: float | None, trained: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facts, "pretrained", lambda module: trained)
    time, begun = Time(), Begun()
    monkeypatch.setattr(Quick, "time", time, raising=False)
    planted(monkeypatch, Somewhat, Longer)
    rows = tuple(each._replace(fewer=1.35) for each in choose.CANDIDATES)
    monkeypatch.setattr(choose, "CANDIDATES", rows)
    given: dict[str, Any] = {"loss": Ticking(time), "now": time, "budget": 900.0, "epochs": None}
    result = auto(**given, target=target, callbacks=[begun])
    told = "\n".join(result.notes)
    taken = target is not None and not trained
    assert ("somewhat" in begun.names) == taken
    assert ("somewhat (planted): steps 0.91 times as fast [" in told) == taken
    assert ("longer (planted): steps 0.67 times as fast [" in told) == taken
    assert "longer" not in begun.names


def test_with_a_target_what_needs_fewer_steps_is_taken_where_there_is_no_time_to_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    time, begun = Time(), Begun()
    monkeypatch.setattr(Quick, "time", time, raising=False)
    planted(monkeypatch, Somewhat)
    rows = tuple(each._replace(fewer=1.35) for each in choose.CANDIDATES)
    monkeypatch.setattr(choose, "CANDIDATES", rows)
    given: dict[str, Any] = {"loss": Ticking(time), "now": time, "budget": 60.0, "epochs": None}
    result = auto(**given, target=1e-9, callbacks=[begun])
    assert "somewhat" in begun.names
    told = "\n".join(result.notes)
    assert "somewhat (planted): taken, with no time to see how long its steps are" in told


def test_trials_keep_to_their_share_of_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    planted(monkeypatch, Useless, Useful)
    for epochs in (2, 20, 200, 280, 1000):
        loss = Ticking(Time())
        auto(loss=loss, epochs=epochs, callbacks=[Begun()])
        assert loss.steps <= choose.SHARE * 10 * epochs


@pytest.mark.parametrize("amount", [110, 250, 400])
@pytest.mark.parametrize("end", ["budget", "steps"])
def test_what_lr_finder_does_by_itself_has_the_rest_of_that_share(
    end: str, amount: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where others have tried what makes steps faster, and not enough was left for trials of the rate."""
    time, begun = Time(), Begun()
    monkeypatch.setattr(Quick, "time", time, raising=False)
    planted(monkeypatch, Quick, Longer)
    rows = [each._replace(by="the time of a step") for each in choose.CANDIDATES]
    monkeypatch.setattr(choose, "CANDIDATES", tuple(rows))
    loss = Ticking(time)
    given: dict[str, Any] = {"loss": loss, "now": time, "epochs": None, end: amount}
    result = auto(**given, callbacks=[begun])
    assert any("lr_finder: rate" in note for note in result.notes) == (amount > 110)
    if end == "budget":
        looked = LOOKED_AT / 3  # at validation, which is no trial
        assert 0.0 < begun.seconds - looked <= choose.SHARE * amount
    else:
        assert 0 < loss.steps <= choose.SHARE * amount


def unequal() -> dict[str, Any]:
    x, y = points(1200)
    y = torch.where(torch.rand(1200, generator=torch.Generator().manual_seed(0)) < 0.9, 0, y)
    batches = list(zip(x.split(24), y.split(24), strict=True))
    return {"train": batches[:40], "valid": batches[40:]}


def test_class_prior_is_taken_where_classes_are_unequal_and_only_there() -> None:
    begun = Begun()
    result = auto(**unequal(), epochs=4, callbacks=[begun])
    assert "class_prior" in begun.names
    assert any(
        note.startswith("class_prior (one of 3 classes comes 2.") and note.endswith(": taken")
        for note in result.notes
    )
    auto(epochs=16, callbacks=[begun])
    assert "class_prior" not in begun.names
    # Weights that know better than the prior keep their bias.
    net = model()
    fit(model=net, **unequal(), epochs=30, metric=None)
    trained = auto(model=net, **unequal(), epochs=4, callbacks=[begun])
    assert "class_prior" not in begun.names
    assert any("class_prior" in note and "left out" in note for note in trained.notes)


def deep(layers: int = 8) -> nn.Module:
    torch.manual_seed(0)
    inner = [layer for _ in range(layers) for layer in (nn.Linear(16, 16), nn.Tanh())]
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), *inner, nn.Linear(16, 3))


def test_lsuv_is_tried_where_signals_fade() -> None:
    begun = Begun()
    result = auto(model=deep(12), epochs=MANY, callbacks=[begun])
    (tried,) = [each for each in result.tried if each.what == "lsuv"]
    assert "the signal's deviation goes from" in tried.why
    assert ("lsuv" in begun.names) == tried.better


def test_with_a_target_nothing_but_first_weights_is_tried() -> None:
    result = auto(model=deep(12), epochs=MANY, target=1e-9, callbacks=[Begun()])
    assert [each.what for each in result.tried] == ["lsuv"]


def test_with_a_target_the_rate_is_that_of_a_training_that_may_end_long_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    totals: list[float] = []

    def told(made: Any, total: float) -> Found:
        totals.append(total)
        return Found(0.01, 0.01, 0.01)

    monkeypatch.setattr(lr_finder, "suggestion", told)
    auto(model=deep(12), epochs=MANY, target=1e-9, callbacks=[Begun()])
    assert totals
    assert max(totals) <= LONG


def test_a_metric_that_decides_nothing_is_not_asked() -> None:
    calls = [0]

    def metric(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        calls[0] += 1
        return toys.accuracy(outputs, targets)

    class Counted:
        before = 0

        def begin(self, run: Run) -> None:
            self.before = calls[0]

    counted = Counted()
    assert auto(metric=metric, callbacks=[counted, Begun(1)]).tried
    assert (
        counted.before <= 1 + LOOKED_AT
    )  # whether it is plain accuracy, and whether it can be called


def test_a_strategy_that_is_used_again_brings_no_data_into_trials() -> None:
    for together in (Accumulation(2), BatchWarmup()):
        strategies: list[Any] = ["auto", together]
        for _ in range(2):
            begun = Begun()
            result = auto(
                train=points(),
                valid=points(120, seed=1),
                batch_size=24,
                epochs=2 * EPOCHS,
                strategies=strategies,
                callbacks=[begun],
            )
            assert not any("nothing more is tried" in note for note in result.notes)
        assert not [
            value for value in vars(together).values() if isinstance(value, (Batches, Loader))
        ]


# --- the user's own question ------------------------------------------------------------------


def test_fine_tune_or_from_scratch() -> None:
    old = model(seed=3)
    fit(model=old, train=ready(480, seed=5), epochs=20)
    asking = toys.trainer(steps=400)
    before = {name: value.clone() for name, value in asking.model.state_dict().items()}
    (tried,) = asking.compare(
        {
            "from scratch": [OneCycle(rate=0.01)],
            "fine-tune": [OneCycle(rate=0.01), Transfer(old.state_dict())],
        },
        steps=40,
    )
    assert tried.better
    assert (tried.what, tried.against) == ("fine-tune", "from scratch")
    assert same(dict(asking.model.state_dict()), before)
    (other,) = asking.compare({"sgd": [Constant(rate=0.05)], "auto": "auto"}, steps=40)
    assert other.seeds
    with pytest.raises(UsageError, match="1 variants"):
        asking.compare({"one": "auto"})


@pytest.mark.parametrize("limit", [{"steps": 400}, {"budget": "1h"}])
def test_a_rate_that_is_found_and_the_same_one_given_are_the_same(
    limit: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Peak(Strategy):
        name = "peak"

        def __deepcopy__(self, memo: Any) -> Peak:
            return self

        def step_end(self, run: Run) -> None:
            peaks.append(run.rates.peak)

    suggested(monkeypatch, 0.01)
    peaks = list[float]()
    asking = toys.trainer(**limit)
    (tried,) = asking.compare(
        {"auto": ["auto", Peak()], "given": [OneCycle(rate=0.01), Peak()]}, steps=40
    )
    assert tried.cost == tried.base
    wanted = 0.01 * horizon(40, limit.get("steps", LONG))
    assert sorted(set(peaks)) == [pytest.approx(wanted)]


def test_a_finder_of_the_users_finds_the_rate_of_trials() -> None:
    finder = LrFinder(steps=12)
    auto(strategies=["auto", finder], callbacks=[Begun()])
    assert finder.made is not None
    assert finder.made.steps == 12


def test_a_class_of_the_users_is_not_called_in_trials() -> None:
    calls: list[int] = []

    class Own(Strategy):
        name = "own"

        def begin(self, run: Run) -> None:
            calls.append(run.step)

    result = auto(strategies=["auto", Own()], callbacks=[Begun()])
    assert result.tried
    assert calls == [0]


@pytest.mark.parametrize("count", [48, 4])
def test_what_is_looked_at_first_is_not_judged_by_large_batches(count: int) -> None:
    judged: list[int] = []

    def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        if not torch.is_grad_enabled():
            judged.append(len(targets))
        return nn.functional.cross_entropy(outputs, targets)

    class Begun:
        def begin(self, run: Run) -> None:
            judged.append(0)

    valid = points(160, seed=1)
    fit(
        model=model(),
        loss=loss,
        metric=None,
        train=ready(24 * count),
        valid=[valid],
        target=0.001,
        steps=600,
        strategies=["auto", Constant(0.01)],
        callbacks=[Begun()],
    )
    before = judged[: judged.index(0) - 1]  # the last one is the look at the only batch of valid=
    # Of few batches none can be held out.
    assert before
    assert (160 in before) == (count == 4)


def test_short_trainings_of_batch_norm_have_no_batch_of_one_sample() -> None:
    asking = toys.trainer(
        model=model(norm=True),
        train=points(97),
        valid=points(120, seed=1),
        batch_size=24,
        steps=400,
    )
    variants = {"one": [OneCycle(rate=0.01)], "other": [OneCycle(rate=0.03)]}
    (tried,) = asking.compare(variants, steps=10)
    assert tried.seeds
    asking.suggestions(seconds=0.1)


def chosen_by(**given: Any) -> tuple[Choice, list[str]]:
    return toys.trainer(epochs=EPOCHS, **given).choose(Telling(quiet=True))


def test_the_rate_of_batches_that_grow_is_left_to_lr_finder() -> None:
    """Trials have batches of one size, which want another rate than the first small ones."""
    data = {"train": points(), "valid": points(120, seed=1), "batch_size": 24}
    choice, _ = chosen_by(strategies=["auto", "batch_warmup"], **data)
    assert choice.rate is None
    assert chosen_by(strategies="auto", **data)[0].rate is not None


def test_an_optimizer_of_weights_that_it_is_not_given_is_not_tried_with() -> None:
    """A copy that it knows nothing of would not learn."""
    net = model()
    own = list(net.parameters())
    choice, notes = chosen_by(
        model=net, strategies="auto", optimizer=lambda _: torch.optim.AdamW(own)
    )
    assert choice == Choice()
    assert any("of other weights than those it is given" in note for note in notes)


def test_trials_count_steps_of_as_many_batches_as_the_training_does() -> None:
    made = toys.trainer(epochs=EPOCHS, strategies=["auto", Accumulation(4)])
    train, valid = made.data()
    assert made.parts(train, valid, Clock(None, None)).total == EPOCHS * 3


def test_a_budget_of_a_few_steps_is_not_spent_before_the_first() -> None:
    time = Time()
    result = auto(loss=Ticking(time), now=time, budget=4.0, epochs=None)
    assert result.steps > 0


def test_what_cannot_be_told_by_the_loss_is_compared_by_the_metric() -> None:
    asking = toys.trainer(**unequal(), epochs=None, steps=400)
    ways = {"plain": [OneCycle(rate=0.03)], "weighted": [OneCycle(rate=0.03), "class_weights"]}
    (tried,) = asking.compare(ways, steps=30)
    assert tried.cost is not None
    assert 0.5 < tried.cost <= 1.0  # an accuracy, nine in ten being of one class
    assert tried.base is not None
    assert 0.5 < tried.base <= 1.0


def test_a_number_that_only_whole_trainings_find_is_not_compared() -> None:
    with pytest.raises(UsageError, match="finds its number before a whole training"):
        toys.trainer().compare({"plain": "auto", "more": ["auto", "accumulation"]})

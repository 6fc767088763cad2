"""Landing step by step, on a clock that the test moves; the loops that it leaves are the test's own."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from outpace.plan.countdown import Countdown
from outpace.plan.crew import KEY, TRIES, Crew
from outpace.plan.landing import Landing
from outpace.plan.longer import Longer
from outpace.plan.pace import MOST_SLOWER
from outpace.plan.safety import Saved
from outpace.plan.time_left import EXIT_S, MARGIN, MARGIN_AFTER_S
from outpace.records.plan import Landed, Progress
from outpace.seams.host import Host, Step
from outpace.seams.loader_record import Record
from outpace.seams.phases import NAMES
from tests.plan.hosts import fed_by
from tests.plan.test_crew import Failing, Store


class Run:
    """A training whose steps take as long as the test says."""

    def __init__(
        self,
        folder: Path,
        budget: float,
        *,
        land: Landed = "linear",
        ranks: int = 1,
        tell: Callable[[Progress], None] = lambda _: None,
        to_end: Callable[[Run], float] = lambda _: EXIT_S,
    ) -> None:
        self.now = self.stood = self.waited = 0.0
        self.host = Host()
        self.said: list[str] = []
        self.landing = Landing(
            self.host,
            Countdown(0.0, seconds=budget, now=lambda: self.now),
            land=land,
            checkpoint=folder / "safety.pt",
            tell=tell,
            say=lambda message, _: self.said.append(message),
            ranks=ranks,
            stood_still=self.taken,
            first_reads=lambda: self.waited,
            to_end=lambda: to_end(self),
        )

    def taken(self) -> float:
        stood, self.stood = self.stood, 0.0
        return stood

    def step(
        self, seconds: float, *, clean: bool = True, stood: float = 0.0, compiling: float = 0.0
    ) -> None:
        self.now += seconds
        self.stood = stood
        self.host.steps += 1
        phases = dict.fromkeys(NAMES, 0) | {"compiling": round(1e9 * compiling)}
        wall = round(1e9 * seconds)
        self.landing.on_step(Step(self.host.steps - 1, wall, 0, phases, 1, 1, clean=clean))


def noise(chance: random.Random) -> Iterator[float]:
    """Seconds of steps beside programs that come and go."""
    while True:
        for _ in range(chance.randint(1, 60)):
            yield 0.08 * chance.lognormvariate(0, 0.05)
        slower = chance.choice([3, 8, 20, 40])
        for _ in range(chance.choice([1, 1, 2, 3, 5, 20])):
            yield 0.08 * slower * chance.lognormvariate(0, 0.3)


@pytest.mark.parametrize("land", ["linear", "plateau"])
@pytest.mark.parametrize("budget", [40.0, pytest.param(100.0, marks=pytest.mark.slow)])
def test_a_busy_machine_is_no_reason_to_end_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, land: Landed, budget: float
) -> None:
    """Steps that stall one after the other were taken for pauses that come after each step."""
    monkeypatch.setattr(Landing, "leave", lambda landing, cut: False)
    for seed in range(50):
        run = Run(tmp_path, budget, land=land)
        for seconds in noise(random.Random(seed)):
            run.step(seconds)
            if run.landing.over:
                break
        most_s = MOST_SLOWER * EXIT_S + MARGIN * (budget - MARGIN_AFTER_S) + 0.08 * 40 * 2.5
        assert budget - most_s <= run.now, (seed, run.now)


@pytest.mark.parametrize("spell_s", [4.0, 8.0, 20.0])
def test_a_busy_spell_does_not_take_the_time_of_many_validations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spell_s: float
) -> None:
    """Steps are ten times as slow for a while; the last validation is not taken to be so."""
    monkeypatch.setattr(Landing, "leave", lambda landing, cut: False)
    run = Run(tmp_path, 120.0)
    record = Record(trains=True, length=200)
    fed_by(record, run.host)
    while not run.landing.over and run.now < 130.0:
        begins = record.given == 200
        record.given = 1 if begins else record.given + 1
        slow = 60.0 <= run.now < 60.0 + spell_s
        run.step((1.0 if slow else 0.1) + 5.0 * begins, clean=not begins)
    assert 0.85 * 120.0 < run.now < 120.0


@pytest.mark.parametrize("stall_s", [1.1, 3.0, 10.0])
def test_an_early_stall_does_not_land_a_script_that_fits(tmp_path: Path, stall_s: float) -> None:
    run = Run(tmp_path, 1200.0)
    for index in range(10_000):
        run.step(0.1 + stall_s * (index == 45))
    assert run.said == []


def test_what_is_compiled_once_more_does_not_come_with_each_epoch(tmp_path: Path) -> None:
    """An epoch's last batch, and its validation, are of other shapes: 70 s once, and 3 s of each epoch."""
    run = Run(tmp_path, 1200.0)
    run.landing.outlook.total = lambda: 12_000  # type: ignore[method-assign]
    for index in range(12_000):
        epochs, ends = divmod(index + 1, 400)
        compiling = 70.0 * (epochs == 1 and not ends)
        run.step(0.05 + 3.0 * (not ends) + compiling, clean=bool(ends), compiling=compiling)
    assert run.said == []


def test_a_script_that_is_far_too_long_goes_down_by_its_first_second(tmp_path: Path) -> None:
    """A schedule of the whole time has none of it to lose; what a few seconds tell may be wrong by 3."""
    run = Run(tmp_path, 100.0)
    run.landing.outlook.total = lambda: 100_000  # type: ignore[method-assign]
    while run.landing.descent.began is None:
        run.step(0.1)
        assert run.now < 2.5
    near = Run(tmp_path, 100.0)
    near.landing.outlook.total = lambda: 2_000  # type: ignore[method-assign]
    while near.landing.descent.began is None:
        near.step(0.1)
    assert near.now > 3.0


def test_stalls_that_come_again_and_again_are_reckoned_with(tmp_path: Path) -> None:
    """1,000 s of steps and 400 s of stalls do not fit."""
    run = Run(tmp_path, 1200.0)
    run.host.steps = 0
    monotone = [0.1 + 4.0 * (index % 100 == 99) for index in range(10_000)]
    for seconds in monotone:
        run.step(seconds)
        if run.landing.descent.began is not None:
            break
    assert run.now < 800.0


def test_a_step_that_would_not_be_over_in_time_is_not_begun(tmp_path: Path) -> None:
    run = Run(tmp_path, 20.0)
    for _ in range(50):
        run.step(7.0)
    ended = run.now
    assert ended == 14.0


@pytest.mark.parametrize(("budget", "steps"), [(20.0, 2), (60.0, 8)])
def test_ranks_begin_no_such_step_either(tmp_path: Path, budget: float, steps: int) -> None:
    run = Run(tmp_path, budget, ranks=2)
    run.landing.crew = Crew(Store(), 0)
    for _ in range(50):
        run.step(7.0)
    ended = run.now
    assert ended == 7.0 * steps


def test_a_budget_that_is_over_before_the_first_step(tmp_path: Path) -> None:
    run = Run(tmp_path, 20.0)
    run.now = 30.0
    for _ in range(50):
        run.step(1.0)
    steps = run.host.steps
    assert steps == 1
    assert any("in the 0s that are left" in message for message in run.said)
    assert [m for m in run.said if " late" in m] == [
        "even so it ends 12s late: so much more is left to do"
    ]


@pytest.mark.parametrize(("last_s", "late"), [(0.1, []), (9.0, ["6s"])])
def test_an_end_that_is_late_all_the_same_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last_s: float, late: list[str]
) -> None:
    """Epochs of 5 s and a validation of 1 s; the last step may take what was kept for the end, and more."""
    monkeypatch.setattr(Landing, "leave", lambda landing, cut: False)
    run = Run(tmp_path, 100.0)
    for index in range(1, 2000):
        validation = index % 50 == 0
        slow = run.now > 96.0
        run.step(last_s if slow else 0.1 + validation, clean=not validation)
        if run.landing.over:
            break
    told = [message for message in run.said if " late" in message]
    assert told == [f"even so it ends {s} late: so much more is left to do" for s in late]


@pytest.mark.parametrize("divided", [True, False])
def test_a_mean_over_an_epoch_that_is_left_early_is_said_to_be_too_little(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, divided: bool
) -> None:
    monkeypatch.setattr(Landing, "leave", lambda landing, cut: False)
    run = Run(tmp_path, 10.0)
    run.landing.longer = Longer(lambda: False)
    run.landing.longer.divided = divided
    run.landing.outlook.drawn = lambda: (31, 93)  # type: ignore[method-assign]
    while not run.landing.over:
        run.step(0.1)
    assert ("this epoch is left after 31 of 93 batches" in run.said) is divided


@pytest.mark.parametrize(("longer_s", "epochs"), [(20.0, [0, 1]), (0.0, [0, 1, 2, 3, 4])])
def test_a_deadline_that_passes_within_a_validation_costs_no_other(
    tmp_path: Path, longer_s: float, epochs: list[int]
) -> None:
    """Epochs of 5 s and a validation of 1 s, but the second one takes much longer."""
    run, record, validated = Run(tmp_path, 30.0), Record(trains=True, length=50), []
    fed_by(record, run.host)
    judging = 0.0
    for epoch in range(100):
        for index in range(50):
            record.given = index + 1
            run.step(0.1 + judging, clean=not judging)
            judging = 0.0
        judging = 1.0 + longer_s * (epoch == 1)
        validated.append(epoch)
    assert validated == epochs
    assert run.landing.left
    cut = any(each.startswith("this epoch is left with its first step") for each in run.said)
    assert cut is bool(longer_s)
    assert any(" late" in each for each in run.said) is bool(longer_s)


def test_a_script_that_trains_once_more_is_ended_there_too(tmp_path: Path) -> None:
    run = Run(tmp_path, 20.0)
    for _ in range(1000):
        run.step(0.1)
    first = run.host.steps
    for _ in range(1000):
        run.step(0.1)
    both = run.host.steps
    assert 150 < first < 200
    assert both == first + 1
    assert sum("the time is up" in message for message in run.said) == 1


def test_a_loop_within_one_that_cannot_be_left_ends_after_a_step_each_time(tmp_path: Path) -> None:
    run, epochs = Run(tmp_path, 20.0), []

    def train() -> None:
        while len(epochs) < 10:
            before = run.host.steps
            for _ in range(100):
                run.step(0.1)
            epochs.append(run.host.steps - before)

    train()
    assert epochs[0] == 100
    assert epochs[2:] == 8 * [1]
    told = [message for message in run.said if "cannot be left" in message]
    assert told == [
        "the loop around the epochs cannot be left: each epoch gives one more step, at rate zero"
    ]


def test_a_loop_that_asks_for_its_batches_itself_is_said_to_go_on(tmp_path: Path) -> None:
    """Its loader gives no more to a ``for`` alone."""
    run = Run(tmp_path, 20.0)
    fed_by(Record(trains=True, length=50), run.host)

    def train() -> None:
        while run.host.steps < 300:
            run.step(0.1)

    train()
    assert "the loop around the steps cannot be left: it goes on, at rate zero" in run.said


def test_it_lands_where_its_progress_cannot_be_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(_: Progress) -> None:
        raise OSError("no more room")

    run = Run(tmp_path, 20.0, tell=fails)
    for _ in range(1000):
        run.step(0.1)
    ended = run.now
    assert 15.0 < ended < 20.0
    assert capsys.readouterr().err.count("no more room") == 1


def test_a_group_at_rate_zero_tells_nothing_of_the_others(tmp_path: Path) -> None:
    run = Run(tmp_path, 20.0)
    run.now = 10.0
    run.landing.go_down()
    rates = [run.landing.changed_rate(lr, lr) for lr in (0.4, 0.0)]
    assert rates == [pytest.approx(0.4, rel=0.1), 0.0]
    assert run.landing.descent.final_rate == pytest.approx(1.0, rel=0.1)


@pytest.mark.parametrize("where", ["validation", "step"])
def test_time_that_the_process_stood_still_is_not_the_pace_of_anything(
    tmp_path: Path, where: str
) -> None:
    """Epochs of 5 s and a validation of 1 s: but for one of them the time is for steps."""
    run = Run(tmp_path, 100.0)
    for index in range(1, 2000):
        if run.landing.over:
            break
        stood = 30.0 if index == (200 if where == "validation" else 220) else 0.0
        validation = index % 50 == 0
        run.step(0.1 + validation + stood, clean=not validation, stood=stood)
    assert 96.0 < run.now < 98.5
    assert run.landing.pace.pause_s.middle == pytest.approx(1.0, rel=0.05)
    assert run.landing.pace.step_s == pytest.approx(0.1, rel=0.01)
    assert [m for m in run.said if "stood still for 30s" in m]


@pytest.mark.parametrize(("first_s", "again_s"), [(0.6, 0.0), (0.6, 0.6), (0.0, 0.6)])
def test_a_first_validation_that_waits_for_its_files(
    tmp_path: Path, first_s: float, again_s: float
) -> None:
    """Epochs of 5 s and a validation of 1 s, and what each waits for a disk: only the first may be
    less from then on.
    """
    run = Run(tmp_path, 100.0)
    for index in range(1, 121):
        validation = index % 50 == 0
        run.waited = (first_s if index == 50 else again_s) if validation else 0.0
        run.step(0.1 + validation * (1.0 + run.waited), clean=not validation)
        if index == 60:
            assert run.landing.outlook.validation() == pytest.approx(1.0, rel=0.05)
    assert run.landing.outlook.validation() == pytest.approx(1.0 + again_s, rel=0.05)


def test_what_was_met_of_it_before_the_first_step_is_of_no_step(tmp_path: Path) -> None:
    run = Run(tmp_path, 100.0)
    for index in range(100):
        run.step(0.1, stood=5.0 if index == 0 else 0.0)
    assert run.landing.pace.step_s == pytest.approx(0.1)
    assert run.landing.pace.seconds == pytest.approx(10.0)


def test_a_script_of_unknown_length_keeps_its_own_rate_until_the_fall(tmp_path: Path) -> None:
    run = Run(tmp_path, 100.0, land="plateau")
    steps = iter(int, 1)
    rates = []
    for _ in steps:
        run.step(0.1)
        rates.append(run.landing.changed_rate(0.2, 0.4))
        if run.landing.over:
            break
    began = run.landing.descent.began
    assert began is not None
    assert 0.87 < began[0] < 0.91
    assert set(rates[: began[1] - 1]) == {0.2}
    assert rates[-2] < 0.01
    assert run.now > 97.0
    assert [m for m in run.said if "is its own until the last 10 % of the time" in m]


def test_a_long_step_of_a_script_of_unknown_length_is_not_begun_late(tmp_path: Path) -> None:
    run = Run(tmp_path, 100.0, land="plateau")
    for _ in iter(int, 1):
        run.step(16.5)
        if run.landing.over:
            break
    assert run.now == 5 * 16.5


@pytest.mark.parametrize("budget", [98.0, 98.6, 100.0, 102.0, 104.0])
@pytest.mark.parametrize("seen", [True, False])
def test_a_validation_that_would_not_be_over_in_time_is_not_begun(
    tmp_path: Path, budget: float, seen: bool
) -> None:
    """Of a script without a loader: 5 s of it follow 50 steps of 0.1 s."""
    run = Run(tmp_path, budget)
    for index in itertools.count(1):
        validation = 5.0 * (index % 50 == 0)
        run.step(0.1 + validation, clean=not (validation and seen))
        if run.landing.over:
            break
    assert budget - 9.0 < run.now < budget - 1.0


@pytest.mark.parametrize("rank", [0, 1])
def test_ranks_that_nothing_announced_are_left_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rank: int
) -> None:
    """Each by its own clock, their weights would drift apart, and then they would wait for ever."""
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: rank)
    run = Run(tmp_path, 20.0)
    run.landing.outlook.total = lambda: 1000  # type: ignore[method-assign]
    for _ in range(300):
        run.step(0.1)
    assert run.landing.descent.began is None
    assert not run.landing.over
    assert run.landing.changed_rate(0.2, 0.4) == 0.2
    told = [message for message in run.said if "not brought forward" in message]
    assert len(told) == (rank == 0)


@pytest.mark.parametrize(("budget", "lands"), [(155.0, False), (140.0, True)])
def test_the_last_validation_is_reckoned_with_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, budget: float, lands: bool
) -> None:
    """Ten epochs of 10 s and a validation of 5 s fit in 155 s, with a second for the process to end."""
    monkeypatch.setattr(Landing, "leave", lambda landing, cut: False)
    run = Run(tmp_path, budget)
    record = Record(trains=True, length=100)
    fed_by(record, run.host)
    run.landing.outlook.total = lambda: 1000  # type: ignore[method-assign]
    for index in range(1000):
        begins = index > 0 and index % 100 == 0
        record.given = index % 100 + 1
        run.step(0.1 + 5.0 * begins, clean=not begins)
        if run.landing.over:
            break
    assert run.landing.descent.began is not None if lands else run.said == []
    if lands:
        assert 0.97 * budget < run.now + 5.0 + EXIT_S < budget


@pytest.mark.parametrize("stood", [0.0, 30.0])
def test_how_long_the_process_takes_to_end_is_looked_into_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stood: float
) -> None:
    """A look in which the process stood still tells nothing."""
    monkeypatch.setattr(Landing, "leave", lambda landing, cut: False)
    looked = []

    def to_end(run: Run) -> float:
        looked.append(run.now)
        run.stood = stood
        return 8.0

    run = Run(tmp_path, 100.0, to_end=to_end)
    while not run.landing.over:
        run.step(0.1)
    (at,) = looked
    exit_s = EXIT_S if stood else 8.0
    assert 0.75 * (100.0 - EXIT_S) < at < 0.85 * 100.0
    assert 98.0 - exit_s < run.now < 100.0 - exit_s


class Adafactor(torch.optim.SGD):
    """One that finds its rate itself."""

    def __init__(self) -> None:
        super().__init__([torch.nn.Parameter(torch.ones(1))])
        self.param_groups[0]["lr"] = None


@pytest.mark.parametrize("others", [False, True])
def test_a_rate_that_is_the_optimizers_own_is_not_said_to_go_down(
    tmp_path: Path, others: bool
) -> None:
    run, told = Run(tmp_path, 20.0), []
    kept = [Adafactor(), *([torch.optim.SGD([torch.ones(1)])] if others else [])]
    for each in kept:
        run.host.optimizers.add(each)
    run.landing.say = lambda message, hint: told.append((message, hint or ""))
    run.landing.go_down()
    message, hint = told[-1]
    assert ("the learning rate goes down to zero" in message) == others
    assert "Adafactor finds" in hint


def test_an_earlier_safety_checkpoint_is_told_where_the_last_one_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(Landing, "leave", lambda landing, cut: False)
    run, told = Run(tmp_path, 20.0), []
    run.landing.say = lambda message, hint: told.append((message, hint))
    optimizer = torch.optim.SGD([torch.ones(1)])
    run.host.optimizers.add(optimizer)
    run.host.steps = 120
    assert run.landing.save()
    monkeypatch.setattr("outpace.plan.landing.write_checkpoint", full)
    run.host.steps = 150
    run.landing.end()
    hint = f"the newest safety checkpoint is of step 120: {tmp_path / 'safety.pt'}"
    assert told[0] == ("no safety checkpoint was written: no space left", hint)


@pytest.mark.parametrize("writing_s", [0.1, 6.0, 60.0])
def test_what_was_just_saved_is_not_saved_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writing_s: float
) -> None:
    """Where saving takes the time that was left: the second file would be that of the first."""
    monkeypatch.setattr(Landing, "leave", lambda landing, cut: False)
    run, saved = Run(tmp_path, 60.0), list[int]()
    optimizer = torch.optim.SGD([torch.ones(1)])
    run.host.optimizers.add(optimizer)

    def write(_: Path, __: object, steps: int) -> Saved:
        run.now += writing_s
        saved.append(steps)
        return Saved(("Odd",), writing_s)

    monkeypatch.setattr("outpace.plan.landing.write_checkpoint", write)
    while not run.landing.over:
        run.step(0.5)
    assert len(saved) == len(set(saved)) == (1 if writing_s > 5.0 else 2)
    assert saved[-1] == run.host.steps
    for told in ("what was learnt is in", "without the state of Odd"):
        assert sum(told in message for message in run.said) == 1


@pytest.mark.parametrize("land", ["linear", "cosine", "scale"])
def test_the_way_down_begins_at_the_rate_that_there_was(tmp_path: Path, land: Landed) -> None:
    """Also where a long validation is to come after the last step."""
    run, record = Run(tmp_path, 60.0, land=land), Record(trains=True, length=50)
    fed_by(record, run.host)
    for index in range(101):
        record.given = index % 50 + 1
        begins = index > 0 and index % 50 == 0
        run.step(0.1 + 10.0 * begins, clean=not begins)
    if run.landing.descent.began is None:
        run.landing.go_down()
    assert run.landing.changed_rate(1.0, 1.0) == pytest.approx(1.0, abs=0.01)


def test_a_fault_of_ours_in_steering_leaves_the_forecast(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told: list[Progress] = []
    run = Run(tmp_path, 100.0, tell=told.append)

    def broken() -> None:
        raise ZeroDivisionError("ours")

    monkeypatch.setattr(run.landing, "steer", broken)
    for _ in range(200):
        run.step(0.1)
    assert capsys.readouterr().err.count("the landing seam failed (ZeroDivisionError: ours)") == 1
    assert run.landing.gave_up
    assert len(told) > 5, "it goes on telling how far it is"


def quick_and_full(index: int) -> float:
    """Seconds of an evaluation before a step: 5 s each 30 of an epoch of 170, and 60 s at its end."""
    return 60.0 * (index % 170 == 0) or 5.0 * (index % 170 % 30 == 0)


def each_fifth(index: int) -> float:
    """4 s at the end of each epoch of 60 steps, 60 s at each fifth."""
    return 60.0 * (index % 300 == 0) or 4.0 * (index % 60 == 0)


@pytest.mark.parametrize("budget", range(1040, 1320, 40))
@pytest.mark.parametrize(("pause_s", "length"), [(quick_and_full, 170), (each_fifth, 60)])
def test_the_longer_of_two_validations_is_over_in_time_too(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    pause_s: Callable[[int], float],
    length: int,
    budget: int,
) -> None:
    monkeypatch.setattr(Landing, "leave", lambda landing, cut: False)
    run, record, last_s = Run(tmp_path, budget), Record(trains=True, length=length), 0.0
    fed_by(record, run.host)
    while not run.landing.over:
        index = run.host.steps
        seconds = pause_s(index) if index else 0.0
        last_s = pause_s((index // length + 1) * length)
        record.given = index % length + 1
        run.step(1.0 + seconds, clean=not seconds)
    assert budget - 150.0 < run.now + last_s + EXIT_S < budget


@pytest.mark.parametrize("budget", [1270, 1290, 1310, 1330])
def test_a_full_evaluation_that_would_not_be_over_in_time_is_not_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, budget: int
) -> None:
    """Of a script without epochs: 5 s each 50 steps, and 60 s each 250."""
    monkeypatch.setattr(Landing, "leave", lambda landing, cut: False)
    run = Run(tmp_path, budget)
    while not run.landing.over:
        index = run.host.steps
        seconds = 0.0 if index % 50 or not index else 5.0 if index % 250 else 60.0
        run.step(1.0 + seconds, clean=not seconds)
    assert budget - 90.0 < run.now < budget - EXIT_S


@pytest.mark.parametrize(("land", "again"), [("plateau", True), ("linear", False)])
def test_a_landing_is_taken_back_while_nothing_was_changed(
    tmp_path: Path, land: Landed, again: bool
) -> None:
    """Thirty epochs of 10 s fit, but that the first one's steps take five times as long."""
    run, rates = Run(tmp_path, 600.0, land=land), set()
    run.landing.outlook.total = lambda: 3_000  # type: ignore[method-assign]
    for index in range(3_000):
        rates.add(run.landing.changed_rate(0.2, 0.2))
        run.step(0.5 if index < 100 else 0.1)
    assert run.said[0].startswith("landing: ")
    assert run.said[1:] == (["it fits again: the rate is left alone"] if again else [])
    assert (rates == {0.2}) is again
    assert not run.landing.over


@pytest.mark.parametrize("own", [True, False])
def test_a_checkpoint_that_there_is_no_time_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: bool
) -> None:
    """It takes 80 s, where 40 are left: it is written only where the script itself saves nothing."""
    monkeypatch.setattr(Landing, "leave", lambda landing, cut: False)
    monkeypatch.setattr("outpace.plan.landing.bytes_learnt", lambda _: 8 * 10**9)
    monkeypatch.setattr("outpace.plan.landing.saves", lambda _: own)
    run, saved = Run(tmp_path, 200.0), list[int]()
    optimizer = torch.optim.SGD([torch.ones(1)])
    run.host.optimizers.add(optimizer)

    def write(_: Path, __: object, steps: int) -> Saved:
        run.now += 80.0
        saved.append(steps)
        return Saved((), 80.0)

    monkeypatch.setattr("outpace.plan.landing.write_checkpoint", write)
    while not run.landing.over:
        run.step(0.5)
    assert saved == ([] if own else [run.host.steps])
    assert run.host.steps * 0.5 > 190.0
    told = "no safety checkpoint was written: there is no time to write 7,629 MiB"
    assert (told in run.said) is own


def test_the_others_have_their_orders_before_the_first_rank_saves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They wait for them no longer than the store lets them."""
    monkeypatch.setattr(Landing, "leave", lambda landing, cut: False)
    run, store, there = Run(tmp_path, 60.0, ranks=2), Store(), list[bool]()
    run.landing.crew = Crew(store, 0)
    optimizer = torch.optim.SGD([torch.ones(1)])
    run.host.optimizers.add(optimizer)

    def write(_: Path, __: object, steps: int) -> Saved:
        there.append(store.check([f"{KEY}/{steps}"]))
        return Saved((), 0.0)

    monkeypatch.setattr("outpace.plan.landing.write_checkpoint", write)
    while not run.landing.over:
        run.step(0.1)
    assert len(there) == 2
    assert there[0]


def test_ranks_keep_their_own_rates_once_one_has_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("outpace.plan.crew.AGAIN_S", 0.0)
    store = Failing(0)
    ranks = [Run(tmp_path, 60.0, ranks=2) for _ in range(2)]
    for rank, run in enumerate(ranks):
        run.landing.crew = Crew(store, rank)
        run.landing.outlook.total = lambda: 100_000  # type: ignore[method-assign]
    for step in range(400):
        store.fails = TRIES if step == 200 else store.fails
        for run in ranks:
            run.step(0.1)
        if step == 150:
            shares = [run.landing.orders.share for run in ranks]
            assert shares[0] == shares[1] is not None
    for run in ranks:
        assert run.landing.gave_up
        assert not run.landing.over
    assert ranks[0].landing.changed_rate(0.2, 0.4) == 0.2
    assert "the landing seam failed (RuntimeError: wait timeout)" in capsys.readouterr().err
    assert any("a rank has given up landing" in message for message in ranks[0].said)

"""Remedies that need new processes are tried as far as the time reaches."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from outpace.records.evidence import Evidence
from outpace.records.run import Recurring
from outpace.remedies.allocator import Allocator
from outpace.remedies.base import Remedy
from outpace.remedies.persistent_workers import PersistentWorkers
from outpace.tune import new_process
from outpace.tune.candidate import Candidate
from outpace.tune.children import tried_by_now
from outpace.tune.files import STATUS, write
from outpace.tune.new_process import (
    EPOCHS,
    FEWEST_STEPS,
    PAIRS,
    RUN_S,
    WARM_UP,
    cost_s,
    length_of,
    try_new_processes,
)
from tests.remedies.some_evidence import ALL, IMAGES, WORKERS


def test_time_that_is_used_up_is_no_negative_time(tmp_path: Path) -> None:
    for evidence in ALL.values():
        trials = try_new_processes(
            lambda *_: pytest.fail("there is no time for it"),
            evidence,
            [],
            folder=tmp_path,
            time_s=-100.0,
            only=("allocator", "wait_policy"),
            skip=(),
            redraw=True,
            seeds=3,
            tell=lambda *_: None,
        )
        if trials:
            break
    assert trials[0].reason.endswith("s would be needed, 0 are left")


@pytest.mark.parametrize(
    ("speedup", "name", "accepted"),
    [(1.08, "allocator", False), (1.15, "allocator", True), (1.08, "persistent_workers", True)],
)
def test_what_costs_memory_has_to_pay_more(
    speedup: float, name: str, accepted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def timed(_: object, remedies: list[tuple[str, object]], folder: Path, **__: object) -> object:
        step_s = 0.01 / speedup if remedies else 0.01
        noise = 1.0 + 0.001 * (len(folder.name) % 3)
        return [], [step_s * noise] * 10_000, 0

    monkeypatch.setattr(new_process, "run_for_losses", timed)
    tried = [
        try_new_processes(
            lambda *_: pytest.fail("not launched"), evidence, [], folder=tmp_path, time_s=1e6,
            only=(name,), skip=(), redraw=True, seeds=3, tell=lambda *_: None,
        )
        for evidence in ALL.values()
    ]  # fmt: skip
    trial = next(trial for trials in tried for trial in trials if trial.remedy == name)
    last = next(trials for trials in reversed(tried) if trials)
    assert tried_by_now(tmp_path) == last, "those that Ctrl-C would leave"
    assert trial.accepted == accepted
    assert trial.reason.endswith("less than 1.10x") != accepted


def of_steps(mean_s: float, *, mingled: bool = False, restarts: bool = False) -> Evidence:
    replace = msgspec.structs.replace
    return replace(
        WORKERS,
        steps=replace(WORKERS.steps, mean_s=mean_s, mingled=mingled),
        input=replace(WORKERS.input, restarts=restarts),
    )


def test_runs_of_slow_steps_have_steps_that_count() -> None:
    """Of 4 s with steps of 2 s nothing was left after the warm-up: the run had ended too soon."""
    candidate = Candidate(Allocator(), {"malloc": "keep"}, "exact", "")
    assert length_of(candidate, of_steps(0.01)).seconds == RUN_S
    slow = length_of(candidate, of_steps(2.0))
    assert (slow.seconds, slow.steps) == ((WARM_UP + FEWEST_STEPS) * 2.0, None)


@pytest.mark.parametrize("remedy", [Allocator(), PersistentWorkers()])
def test_steps_that_all_have_something_else_in_them_count(remedy: Remedy) -> None:
    """An epoch that begins in each, for one: where only others count none does."""
    candidate = Candidate(remedy, remedy.settings(WORKERS), "exact", "")
    length = length_of(candidate, of_steps(0.1, mingled=True, restarts=True))
    assert length == (RUN_S, 40, WARM_UP)


def test_what_gains_where_epochs_begin_is_timed_over_whole_epochs() -> None:
    candidate = Candidate(PersistentWorkers(), PersistentWorkers().settings(WORKERS), "exact", "")
    length = length_of(candidate, of_steps(0.1))
    assert (length.steps, length.warm_up) == (EPOCHS * 6, 6)
    assert length.seconds == pytest.approx(EPOCHS * 6 * 0.1)


def test_what_comes_between_epochs_is_a_part_of_their_time(tmp_path: Path) -> None:
    """A validation of a minute after each, in six runs of three epochs."""
    candidate = Candidate(PersistentWorkers(), PersistentWorkers().settings(WORKERS), "exact", "")
    seen = (Recurring("validation", 60.0, 3, 6, 6), Recurring("input", 2.0, 3, 0, 6, leads=True))
    facts = of_steps(0.1)
    facts = msgspec.structs.replace(facts, run=msgspec.structs.replace(facts.run, recurring=seen))
    each = facts.run.to_first_step_s + EPOCHS * (6 * 0.1 + 60 + 2)
    assert cost_s(length_of(candidate, facts), facts) == pytest.approx(each)
    (trial,) = try_new_processes(
        lambda *_: pytest.fail("there is no time for it"), facts, [], folder=tmp_path, time_s=900.0,
        only=("persistent_workers",), skip=(), redraw=True, seeds=3, tell=lambda *_: None,
    )  # fmt: skip
    assert trial.reason.startswith(f"not tried: {2 * PAIRS * each:.0f} s would be needed")


def test_a_run_that_hangs_is_no_gain(tmp_path: Path) -> None:
    def launch(entry: str, spec: Mapping[str, Any], folder: Path, env: Mapping[str, str]) -> int:
        length = length_of(Candidate(PersistentWorkers(), {}, "exact", ""), WORKERS)
        assert spec["silent_s"] == pytest.approx(60 + 3 * cost_s(length, WORKERS))
        write(folder / STATUS, {"hung": 75.0})
        return 143

    (trial,) = try_new_processes(
        *(launch, WORKERS, []), folder=tmp_path, time_s=1e6,
        only=("persistent_workers",), skip=(), redraw=True, seeds=3, tell=lambda *_: None,
    )  # fmt: skip
    assert (trial.accepted, trial.measured) == (False, None)
    assert trial.reason == "a run hung for 1m15s"


def test_ranks_are_given_all_remedies_from_their_first_step_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within a process one rank would be in an arm without the others."""
    launched: list[tuple[tuple[str, ...], int | None, float | None]] = []

    def timed(_: object, remedies: list[tuple[str, object]], __: Path, **given: Any) -> object:
        launched.append((tuple(name for name, _ in remedies), given["steps"], given["seconds"]))
        step_s = 0.01 if any(name == "bf16" for name, _ in remedies) else 0.02
        return [], [step_s * (1.0 + 0.001 * (len(launched) % 3))] * 1000, 0

    def tried(evidence: Evidence) -> dict[str, bool]:
        monkeypatch.setattr(new_process, "run_for_losses", timed)
        trials = try_new_processes(
            lambda *_: pytest.fail("not launched"), evidence, [], folder=tmp_path, time_s=1e6,
            only=("bf16", "fused_optimizer"), skip=(), redraw=True, seeds=3, tell=lambda *_: None,
        )  # fmt: skip
        return {trial.remedy: trial.accepted for trial in trials if trial.measured is not None}

    assert tried(IMAGES) == {}
    assert tried(msgspec.structs.replace(IMAGES, world=2))["bf16"]
    assert all(steps is not None and seconds is None for _, steps, seconds in launched)

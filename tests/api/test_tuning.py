"""What a tuning leaves behind, whatever comes of it."""

from __future__ import annotations

import contextlib
import errno
from pathlib import Path
from typing import Any

import msgspec
import pytest

from outpace.adapters import work
from outpace.adapters.work import Work
from outpace.api import diagnosing, tuning
from outpace.api.tuning import default_time
from outpace.errors import NotProven, RecipeError
from outpace.records.evidence import Evidence
from outpace.records.files import read_json
from outpace.records.gain import Gain
from outpace.records.machine import Ceilings
from outpace.records.session import Session
from outpace.records.target import Target
from outpace.records.trial import Proof, Trial
from outpace.tune import children
from outpace.tune.children import Tried
from outpace.tune.files import TRIALS, write
from tests.remedies.some_evidence import IMAGES

UNPROVEN = Proof(True, False, reason="no")


def nothing_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """No remedy is accepted, and the proof proves nothing."""
    monkeypatch.setattr(work, "ceilings", lambda *_: Ceilings())
    monkeypatch.setattr(tuning, "measure", lambda *_, **__: (IMAGES, 0, []))
    monkeypatch.setattr(tuning, "_try", lambda *_: ([], {}))
    monkeypatch.setattr(tuning, "_try_anew", lambda *_: [])
    monkeypatch.setattr(tuning, "_prove", lambda *_: (UNPROVEN, []))


def test_ctrl_c_in_the_trials_leaves_a_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gain = Gain(1.5, 1.4, 1.6, "measured")
    trial = Trial("bf16", {}, "numerics", gain, gain, True, "measured 1.50x")

    def cut_off(found: Work, *_: Any) -> None:
        (found.session / "trials").mkdir()
        told = {"trials": [msgspec.to_builtins(trial)], "final": {}}
        write(found.session / "trials" / TRIALS, told)
        raise KeyboardInterrupt

    monkeypatch.setattr(work, "ceilings", lambda *_: Ceilings())
    monkeypatch.setattr(tuning, "measure", lambda *_, **__: (IMAGES, 0, []))
    monkeypatch.setattr(tuning, "_try", cut_off)
    target = Target("script", "train.py", (), str(tmp_path))
    with pytest.raises(KeyboardInterrupt):
        tuning.tune(target, session=tmp_path / "s", recipe=tmp_path / "outpace.toml")
    found = read_json(tmp_path / "s" / "session.json", Session)
    assert (found.outcome, found.exit_code, found.command) == ("interrupted", 130, "tune")
    assert found.trials == (trial,)
    assert found.steps.count == IMAGES.steps.count


@pytest.mark.parametrize(
    ("name", "force", "said"),
    [
        ("folder", True, "is a folder"),
        ("mine.toml", False, "exists already"),
        ("mine.toml/fast.toml", True, "mine.toml is no folder"),
        ("mine.toml/deep/fast.toml", False, "mine.toml is no folder"),
    ],
)
def test_a_recipe_that_could_not_be_written_is_known_before(
    name: str, force: bool, said: str, tmp_path: Path
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "mine.toml").write_text("mine")
    target = Target("script", "train.py", (), str(tmp_path))
    with pytest.raises(RecipeError, match=said):
        tuning.tune(target, session=tmp_path / "s", recipe=tmp_path / name, force=force)
    assert not (tmp_path / "s").exists()


def test_a_folder_that_cannot_be_written_is_known_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: False)  # root may write anywhere
    target = Target("script", "train.py", (), str(tmp_path))
    with pytest.raises(RecipeError, match="is read-only here"):
        tuning.tune(target, session=tmp_path / "s", recipe=tmp_path / "new" / "fast.toml")
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("require", [False, True])
def test_a_recipe_that_none_takes_the_place_of_is_set_aside(
    require: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`outpace run` is not to apply what this tuning did not find."""
    recipe = tmp_path / "outpace.toml"
    recipe.write_text("old")
    nothing_found(monkeypatch)
    target = Target("script", "train.py", (), str(tmp_path))
    given: dict[str, Any] = {"session": tmp_path / "s", "recipe": recipe, "force": True}
    if require:
        with pytest.raises(NotProven):
            tuning.tune(target, **given, require_proof=True)
    else:
        tuning.tune(target, **given)
    assert not recipe.exists()
    assert (tmp_path / "outpace.toml.old").read_text() == "old"
    found = read_json(tmp_path / "s" / "session.json", Session)
    assert any("outpace.toml.old now" in note for note in found.notes)
    recipe.write_text("newer")
    given["session"] = tmp_path / "s2"
    with contextlib.suppress(NotProven):
        tuning.tune(target, **given, require_proof=require)
    assert (tmp_path / "outpace.toml.old").read_text() == "old"
    assert (tmp_path / "outpace.toml-2.old").read_text() == "newer"


@pytest.mark.parametrize("require", [False, True])
def test_a_recipe_that_cannot_be_set_aside_costs_no_tuning(
    require: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = tmp_path / "outpace.toml"
    recipe.write_text("old")

    def refused(path: Path, _: Path) -> None:
        raise OSError(errno.EPERM, "Operation not permitted", str(path))

    nothing_found(monkeypatch)
    monkeypatch.setattr(Path, "replace", refused)
    target = Target("script", "train.py", (), str(tmp_path))
    given: dict[str, Any] = {"session": tmp_path / "s", "recipe": recipe, "force": True}
    with contextlib.suppress(NotProven):
        tuning.tune(target, **given, require_proof=require)
    found = read_json(tmp_path / "s" / "session.json", Session)
    assert (
        f"{recipe} is an earlier recipe, and could not be set aside: Operation not permitted"
        in (found.notes)
    )


def test_what_is_not_proven_is_of_this_tuning_where_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An earlier session is in the folder still."""

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    nothing_found(monkeypatch)
    monkeypatch.setattr(diagnosing, "write_json", full)
    target = Target("script", "train.py", (), str(tmp_path))
    with pytest.raises(NotProven) as told:
        tuning.tune(
            target, session=tmp_path / "s", recipe=tmp_path / "outpace.toml", require_proof=True
        )
    assert told.value.session.steps.count == IMAGES.steps.count
    assert told.value.session.proof == UNPROVEN
    assert any("cannot be kept" in note for note in told.value.session.notes)


def test_a_recipe_that_came_meanwhile_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = tmp_path / "outpace.toml"
    gain = Gain(2.0, 1.9, 2.1, "measured")
    trial = Trial("bf16", {}, "numerics", gain, gain, True, "it is faster")
    monkeypatch.setattr(work, "ceilings", lambda *_: Ceilings())
    monkeypatch.setattr(tuning, "measure", lambda *_, **__: (IMAGES, 0, []))
    monkeypatch.setattr(tuning, "_try", lambda *_: ([trial], {}))
    monkeypatch.setattr(tuning, "_try_anew", lambda *_: [trial])

    def prove(*_: Any) -> Any:
        recipe.write_text("another's")
        return Proof(True, True), [trial]

    monkeypatch.setattr(tuning, "_prove", prove)
    target = Target("script", "train.py", (), str(tmp_path))
    found = tuning.tune(target, session=tmp_path / "s", recipe=recipe)
    assert recipe.read_text() == "another's"
    assert found.recipe == str(tmp_path / "outpace-2.toml")
    assert "bf16" in (tmp_path / "outpace-2.toml").read_text()
    assert any("is another recipe by now" in note for note in found.notes)


@pytest.mark.parametrize(
    ("compared", "proven"), [(True, 1), (False, 1), (False, 2)], ids=["changed", "cut off", "all"]
)
def test_a_recipe_that_was_not_compared_as_a_whole_gains_by_its_trials(
    compared: bool, proven: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """480 of 600 s are steps: twice as fast ones are no run of half the time."""

    def trial(name: str, keeps: Any, speedup: float) -> Trial:
        gain = Gain(speedup, speedup, speedup, "measured")
        return Trial(name, {}, keeps, gain, gain, True, "it is faster")

    exact, other = trial("set_to_none", "exact", 2.0), trial("bf16", "numerics", 1.5)
    both = {"recipe": {"gain": msgspec.to_builtins(Gain(3.0, 3.0, 3.0, "measured"))}}
    left = [exact, other if proven == 2 else msgspec.structs.replace(other, accepted=False)]
    monkeypatch.setattr(work, "ceilings", lambda *_: Ceilings())
    monkeypatch.setattr(tuning, "measure", lambda *_, **__: (IMAGES, 0, []))
    monkeypatch.setattr(tuning, "_try", lambda *_: ([exact, other], both if compared else {}))
    monkeypatch.setattr(tuning, "_try_anew", lambda *_: [exact, other])
    monkeypatch.setattr(tuning, "_prove", lambda *_: (Proof(True, True), left))
    target = Target("script", "train.py", (), str(tmp_path))
    found = tuning.tune(target, session=tmp_path / "s", recipe=tmp_path / "outpace.toml")
    assert found.speedup is not None
    of_steps = 2.0 * 1.5 if proven == 2 else 2.0
    assert found.speedup.speedup == pytest.approx(600 / (120 + 480 / of_steps))
    assert found.speedup.how == "predicted"


@pytest.mark.parametrize("proven", [True, False])
def test_what_was_added_in_new_processes_leaves_what_was_compared(
    proven: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole recipe was 5.5x, its last trial 1.1x in the place of another remedy."""

    def trial(name: str, speedup: float, *, accepted: bool = True) -> Trial:
        gain = Gain(speedup, speedup, speedup, "measured")
        return Trial(name, {}, "exact", gain, gain, accepted, "it is faster")

    before, added = trial("set_to_none", 1.1), trial("wait_policy", 1.2)
    whole = {"recipe": {"gain": msgspec.to_builtins(Gain(5.5, 5.5, 5.5, "measured"))}}
    left = [trial("set_to_none", 1.1, accepted=proven), added]
    monkeypatch.setattr(work, "ceilings", lambda *_: Ceilings())
    monkeypatch.setattr(tuning, "measure", lambda *_, **__: (IMAGES, 0, []))
    monkeypatch.setattr(tuning, "_try", lambda *_: ([before], whole))
    monkeypatch.setattr(tuning, "_try_anew", lambda *_: [before, added])
    monkeypatch.setattr(tuning, "_prove", lambda *_: (Proof(True, True), left))
    target = Target("script", "train.py", (), str(tmp_path))
    found = tuning.tune(target, session=tmp_path / "s", recipe=tmp_path / "outpace.toml")
    assert found.speedup is not None
    of_steps = 5.5 * 1.2 if proven else 1.2
    assert found.speedup.speedup == pytest.approx(600 / (120 + 480 / of_steps))
    assert found.speedup.how == "predicted"


@pytest.mark.parametrize(
    ("speedup", "why"), [(0.98, "slower: 0.984x"), (1.01, "no faster: 1.008x"), (1.02, "")]
)
def test_a_recipe_that_makes_the_whole_run_no_faster_is_not_written(
    speedup: float, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gain = Gain(1.2, 1.1, 1.3, "measured")
    trial = Trial("bf16", {}, "numerics", gain, gain, True, "it is faster")
    whole = {"recipe": {"gain": msgspec.to_builtins(Gain(speedup, 0.9, 1.1, "measured"))}}
    monkeypatch.setattr(work, "ceilings", lambda *_: Ceilings())
    monkeypatch.setattr(tuning, "measure", lambda *_, **__: (IMAGES, 0, []))
    monkeypatch.setattr(tuning, "_try", lambda *_: ([trial], whole))
    monkeypatch.setattr(tuning, "_try_anew", lambda *_: [trial])
    monkeypatch.setattr(tuning, "_prove", lambda *_: (Proof(True, True), [trial]))
    target = Target("script", "train.py", (), str(tmp_path))
    path = tmp_path / "outpace.toml"
    found = tuning.tune(target, session=tmp_path / "s", recipe=path)
    assert path.exists() == (not why)
    assert [t.accepted for t in found.trials] == [not why]
    assert found.trials[0].reason.endswith(why or "it is faster")


def test_a_recipe_that_cannot_be_written_leaves_the_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gain = Gain(2.0, 1.9, 2.1, "measured")
    trial = Trial("bf16", {}, "numerics", gain, gain, True, "it is faster")

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "outpace.toml")

    monkeypatch.setattr(work, "ceilings", lambda *_: Ceilings())
    monkeypatch.setattr(tuning, "measure", lambda *_, **__: (IMAGES, 0, []))
    monkeypatch.setattr(tuning, "_try", lambda *_: ([trial], {}))
    monkeypatch.setattr(tuning, "_try_anew", lambda *_: [trial])
    monkeypatch.setattr(tuning, "_prove", lambda *_: (Proof(True, True), [trial]))
    monkeypatch.setattr(tuning, "write_recipe", full)
    target = Target("script", "train.py", (), str(tmp_path))
    with pytest.raises(RecipeError, match="cannot be written: No space left"):
        tuning.tune(target, session=tmp_path / "s", recipe=tmp_path / "outpace.toml")
    found = read_json(tmp_path / "s" / "session.json", Session)
    assert found.trials == (trial,)
    assert (found.recipe, found.recipe_record) == (None, None)


@pytest.mark.parametrize(("time_s", "brief"), [(60.0, 24.0), (140.0, 56.0), (200.0, None)])
def test_a_short_time_leaves_some_after_the_diagnosis(
    time_s: float, brief: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float | None] = []

    def measured(work: Work, seconds: float | None, *_: Any, **__: Any) -> Any:
        asked.append(seconds)
        return IMAGES, 1, []

    monkeypatch.setattr(work, "ceilings", lambda *_: Ceilings())
    monkeypatch.setattr(tuning, "measure", measured)
    target = Target("script", "train.py", (), str(tmp_path))
    tuning.tune(target, session=tmp_path / "s", recipe=tmp_path / "r.toml", time_s=time_s)
    assert asked == [brief and pytest.approx(brief)]


def slow_steps(step_s: float) -> Evidence:
    steps = msgspec.structs.replace(IMAGES.steps, mean_s=step_s)
    run = msgspec.structs.replace(IMAGES.run, estimated_s=60.0, recurring=())
    return msgspec.structs.replace(IMAGES, steps=steps, run=run)


@pytest.mark.parametrize(
    ("step_s", "least", "most"),
    [(0.001, 180, 180), (0.3, 250, 600), (0.6, 400, 600), (9.0, 180, 180)],
)
def test_tuning_takes_as_long_as_its_proof_needs(step_s: float, least: float, most: float) -> None:
    """But where that is longer than tuning is to take, a part of it is of no use."""
    assert least <= default_time(slow_steps(step_s), 60.0, 3) <= most


def test_in_the_time_that_tuning_takes_by_itself_other_random_numbers_can_be_proven(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def tried(launch: Any, spec: dict[str, Any], folder: Path) -> Tried:
        asked.append((spec["redraw"], spec["time_s"]))
        return Tried([], {})

    monkeypatch.setattr(work, "ceilings", lambda *_: Ceilings())
    monkeypatch.setattr(tuning, "measure", lambda *_, **__: (slow_steps(0.3), 0, []))
    monkeypatch.setattr(children, "try_remedies", tried)
    monkeypatch.setattr(tuning, "_try_anew", lambda *_: [])
    target = Target("script", "train.py", (), str(tmp_path))
    tuning.tune(target, session=tmp_path / "s", recipe=tmp_path / "r.toml")
    ((redraw, time_s),) = asked
    assert redraw
    assert time_s > tuning.LEAST_S * tuning.TRIAL_SHARE


@pytest.mark.parametrize("redraw", [False, True])
def test_where_there_is_no_time_to_prove_other_random_numbers_that_is_said(
    redraw: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = msgspec.structs.replace(IMAGES.input, deterministic=False)
    facts = msgspec.structs.replace(IMAGES, input=data)

    def tried(launch: Any, spec: dict[str, Any], folder: Path) -> Tried:
        return Tried([], {})

    monkeypatch.setattr(children, "try_remedies", tried)
    monkeypatch.setattr(work, "ceilings", lambda *_: Ceilings())
    here = Work(Target("script", "train.py", (), str(tmp_path)), tmp_path, "inherit")
    trials, _ = tuning._try(here, facts, 1000.0, (), (), redraw, 3, False)
    assert bool(trials) is not redraw
    assert not any(t.was_tried for t in trials)
    assert all(t.reason.endswith(": more --time tries it") for t in trials)
    assert {t.remedy for t in trials} <= {"loader_workers", "fetch_threads", "prefetch"}


@pytest.mark.parametrize(
    ("start_s", "tried_for"), [(0.0, 35.0), (24.0, 28.0), (30.0, 20.0), (85.0, None)]
)
def test_trials_leave_room_in_the_time_that_was_given(
    start_s: float, tried_for: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For the script's own start, and for the shortest proof: two runs, each with a start."""
    asked: list[float] = []

    def tried(launch: Any, spec: dict[str, Any], folder: Path) -> Tried:
        asked.append(spec["time_s"])
        return Tried([], {})

    monkeypatch.setattr(children, "try_remedies", tried)
    monkeypatch.setattr(work, "ceilings", lambda *_: Ceilings())
    run = msgspec.structs.replace(IMAGES.run, startup_s=start_s, recurring=())
    steps = msgspec.structs.replace(IMAGES.steps, mean_s=1e-3)
    facts = msgspec.structs.replace(IMAGES, run=run, steps=steps)
    here = Work(Target("script", "train.py", (), str(tmp_path)), tmp_path, "inherit")
    trials, _ = tuning._try(here, facts, 100.0, (), (), False, 3, True)
    assert asked == ([] if tried_for is None else [pytest.approx(tried_for, abs=1.0)])
    if tried_for is None:
        assert trials
        assert all("the script takes 1m25s to begin" in each.reason for each in trials)


def test_a_script_that_is_changed_meanwhile_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing_found(monkeypatch)
    (tmp_path / "mine").mkdir()
    script = tmp_path / "mine/train.py"
    script.write_text("import torch\n")

    def edited(*_: Any) -> tuple[list[Trial], dict[str, Any]]:
        script.write_text("import torch, numpy\n")
        return [], {}

    monkeypatch.setattr(tuning, "_try", edited)
    target = Target("script", "train.py", (), str(tmp_path / "mine"))
    given = {"session": tmp_path / "s", "recipe": tmp_path / "r.toml"}
    found = tuning.tune(target, **given)
    assert any("train.py was changed while it was tuned" in note for note in found.notes)
    assert found.diff == ""
    monkeypatch.setattr(tuning, "_try", lambda *_: ([], {}))
    given["session"] = tmp_path / "t"
    found = tuning.tune(target, **given)
    assert not any("was changed" in note for note in found.notes)

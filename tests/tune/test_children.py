"""Processes that measure: what came of them is told, whatever it is."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from outpace.errors import OutpaceError
from outpace.records.arm import Arm
from outpace.records.compute import ByHand
from outpace.records.evidence import Evidence
from outpace.records.files import read_json, write_json
from outpace.records.gain import Gain
from outpace.records.input import LATER_EPOCHS
from outpace.records.trial import Trial
from outpace.tune.children import join, measure_training, total_gain, tried_by_now, try_remedies
from outpace.tune.files import CONTESTS, EVIDENCE, MARKER, STATUS, TRIALS, write
from tests.remedies.some_evidence import EMPTY, IMAGES


def test_what_starts_a_target_does_not_wait_for_torch() -> None:
    """It takes a second or two to import, on every use."""
    code = "import sys, outpace.api.diagnosing, outpace.tune.children; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_failure_of_ours_in_the_trials_is_told(tmp_path: Path) -> None:
    def launch(entry: str, spec: Mapping[str, Any], folder: Path, env: Mapping[str, str]) -> int:
        folder.mkdir(exist_ok=True)
        failed = msgspec.structs.replace(EMPTY, notes=("the loader seam failed: NameError",))
        write_json(folder / EVIDENCE, failed)
        return 0

    tried = try_remedies(launch, {"time_s": 1.0}, tmp_path / "trials")
    assert tried.trials == []
    assert tried.notes == ("in the trials, the loader seam failed: NameError",)


def compared(name: str, speedup: float) -> dict[str, Any]:
    gain = Gain(speedup, speedup, speedup)
    return {name: msgspec.to_builtins(Arm(name, 9, 1.0, 1.0, gain, gain, None, "as_is"))}


def test_the_whole_run_gains_less_than_its_steps() -> None:
    """480 of 600 s are steps; the rest stays as it is."""
    gain = total_gain(IMAGES, compared("recipe", 2.0))
    assert gain is not None
    assert gain.speedup == pytest.approx(600 / (600 - 480 + 480 / 2))


def test_a_cold_first_epoch_and_taking_memory_count() -> None:
    """One epoch of five is no faster, and 4,500 images are put into fresh memory once."""
    gain = total_gain(IMAGES, {**compared("recipe", 2.0), **compared("cold", 1.0)})
    assert gain is not None
    steps = 480 * (1 / 5 + 4 / 5 / 2)
    assert gain.speedup == pytest.approx(600 / (600 - 480 + steps + 4500 * 2e-4))


def test_starts_of_epochs_stay_as_they_are() -> None:
    """200 of the 480 s that are no validation and no checkpoint are workers that start."""
    starts = msgspec.structs.replace(IMAGES.run, starts_s=200.0)
    gain = total_gain(msgspec.structs.replace(IMAGES, run=starts), compared("recipe", 2.0))
    assert gain is not None
    assert gain.speedup == pytest.approx(600 / (600 - 280 + 280 / 2))


def test_compiling_comes_to_the_run() -> None:
    gain = total_gain(IMAGES, {**compared("recipe", 2.0), "compiling_s": 30.0})
    assert gain is not None
    assert gain.speedup == pytest.approx(600 / (600 - 480 + 30 + 480 / 2))
    assert gain.how == "predicted"


def test_images_that_are_not_kept_are_decoded_as_before() -> None:
    final = {**compared("recipe", 4.0), **compared("cold", 1.0), "kept": 0.25}
    gain = total_gain(IMAGES, final)
    assert gain is not None
    later = 0.25 / 4 + 0.75
    steps = 480 * (1 / 5 + 4 / 5 * later)
    assert gain.speedup == pytest.approx(600 / (600 - 480 + steps + 0.25 * 4500 * 2e-4))


def test_a_run_whose_epochs_are_unknown_is_not_taken_for_one_epoch() -> None:
    """As of a loop over steps: what is kept after the first epoch is worth something."""
    unknown = msgspec.structs.replace(
        IMAGES, input=msgspec.structs.replace(IMAGES.input, epochs=None)
    )
    gain = total_gain(unknown, {**compared("recipe", 2.0), **compared("cold", 1.0)})
    assert gain is not None
    first = 1 / LATER_EPOCHS
    steps = 480 * (first + (1 - first) / 2)
    assert gain.speedup == pytest.approx(600 / (600 - 480 + steps + 4500 * 2e-4))
    assert gain.speedup > 1.2


def test_of_a_run_of_unknown_length_only_the_part_seen_pays_for_keeping() -> None:
    """200,000 images take 40 s to keep, in ten epochs of which one part in 521 was seen."""
    unknown = msgspec.structs.replace(
        IMAGES,
        input=msgspec.structs.replace(IMAGES.input, epochs=None, samples=200_000),
        run=msgspec.structs.replace(IMAGES.run, total_steps=None, epoch_steps=200_000 / 64),
    )
    assert unknown.steps.count == 60
    gain = total_gain(unknown, {**compared("recipe", 2.0), **compared("cold", 1.0)})
    assert gain is not None
    steps = 480 * (0.1 + 0.9 / 2)
    assert gain.speedup == pytest.approx(600 / (600 - 480 + steps + 40 * 60 / (10 * 200_000 / 64)))


def test_whole_epochs_that_are_faster_leave_the_start_as_it_was() -> None:
    """596 of 600 s come epoch by epoch, validations and workers' starts with them."""
    gain = total_gain(IMAGES, {**compared("recipe", 2.0), **compared("epochs", 3.0)})
    assert gain is not None
    assert gain.speedup == pytest.approx(600 / (4 + (596 - 480 + 480 / 2) / 3))


def test_nothing_compared_gives_no_gain() -> None:
    assert total_gain(IMAGES, {}) is None


def test_a_run_that_was_seen_whole_is_joined_with_what_later_runs_measured() -> None:
    """A short script is run again for its arms: there it is watched for a few steps only."""
    replace = msgspec.structs.replace
    first = replace(
        IMAGES,
        input=replace(IMAGES.input, places=(("train.py:51", 0.9),), deterministic=None),
        compute=replace(IMAGES.compute, optimizer_s=4e-3, by_hand=ByHand(4e-3, 900, "train.py:40")),
        memory=replace(IMAGES.memory, retained_name="losses", peak_bytes=0),
        arms=(),
    )
    last = replace(
        IMAGES,
        steps=replace(IMAGES.steps, count=4),
        input=replace(IMAGES.input, places=(), parse_s=0.0, deterministic=True),
        compute=replace(IMAGES.compute, optimizer_s=9e-3, by_hand=ByHand(9e-3, 900, "train.py:40")),
        memory=replace(IMAGES.memory, retained_name=None, peak_bytes=1 << 30),
    )
    joined = join(first, last)
    assert joined.steps == first.steps
    assert joined.input.places == first.input.places
    assert joined.input.parse_s == first.input.parse_s
    assert joined.input.deterministic is True
    assert joined.compute.by_hand == first.compute.by_hand
    assert joined.compute.optimizer_s == first.compute.optimizer_s
    assert (joined.memory.retained_name, joined.memory.peak_bytes) == ("losses", 1 << 30)
    assert joined.arms == last.arms


def test_what_was_joined_is_what_trials_go_by(tmp_path: Path) -> None:
    replace = msgspec.structs.replace
    runs = [
        replace(
            IMAGES,
            run=replace(IMAGES.run, finished=True),
            input=replace(IMAGES.input, interrupted=interrupted),
        )
        for interrupted in (True, False)
    ]
    left = [replace(each, arms=each.arms[: 1 + i]) for i, each in enumerate(runs)]

    def launch(entry: str, spec: Mapping[str, Any], folder: Path, env: Mapping[str, str]) -> int:
        write_json(folder / EVIDENCE, left.pop(0) if len(left) > 1 else left[0])
        return 0

    found = measure_training(launch, {"time_s": 1000.0}, tmp_path)
    assert len(left) == 1, "it was run again"
    assert found.evidence is not None
    assert found.evidence.input.interrupted
    assert read_json(tmp_path / EVIDENCE, Evidence) == found.evidence


def test_a_target_that_fails_when_it_is_run_again_was_measured_the_first_time(
    tmp_path: Path,
) -> None:
    codes = [0, 1]

    def launch(entry: str, spec: Mapping[str, Any], folder: Path, env: Mapping[str, str]) -> int:
        if codes[0] == 0:
            run = msgspec.structs.replace(IMAGES.run, finished=True)
            write_json(folder / EVIDENCE, msgspec.structs.replace(IMAGES, run=run))
        return codes.pop(0)

    found = measure_training(launch, {"time_s": 1000.0}, tmp_path)
    assert (found.exit_code, codes) == (0, [])
    assert found.evidence is not None
    assert found.evidence.steps == IMAGES.steps
    assert "exit code 1 when it was run again" in found.notes[0]


def test_the_end_of_the_process_is_in_the_ledger(tmp_path: Path) -> None:
    """It comes after the target's last line, where the evidence is written."""

    def launch(entry: str, spec: Mapping[str, Any], folder: Path, env: Mapping[str, str]) -> int:
        run = msgspec.structs.replace(IMAGES.run, finished=True, estimated_s=600.0)
        write_json(folder / EVIDENCE, msgspec.structs.replace(IMAGES, run=run))
        long_ago = time.time() - 40
        os.utime(folder / EVIDENCE, (long_ago, long_ago))
        return 0

    evidence = measure_training(launch, {"time_s": 0.0}, tmp_path).evidence
    assert evidence is not None
    ending = next(row.seconds for row in evidence.ledger if row.name == "ending")
    assert 40 <= ending < 100
    assert evidence.run.estimated_s == pytest.approx(600 + ending)
    assert sum(row.share for row in evidence.ledger) == pytest.approx(1)
    assert ending == pytest.approx(
        sum(row.seconds for row in evidence.ledger) - sum(row.seconds for row in IMAGES.ledger)
    )


def test_an_interrupt_of_a_later_run_leaves_what_the_first_one_measured(tmp_path: Path) -> None:
    runs = []

    def launch(entry: str, spec: Mapping[str, Any], folder: Path, env: Mapping[str, str]) -> int:
        runs.append(entry)
        if len(runs) > 1:
            raise KeyboardInterrupt
        run = msgspec.structs.replace(IMAGES.run, finished=True)
        write_json(folder / EVIDENCE, msgspec.structs.replace(IMAGES, run=run))
        return 0

    found = measure_training(launch, {"time_s": 1000.0}, tmp_path)
    assert (found.exit_code, len(runs)) == (130, 2)
    assert found.evidence is not None
    assert found.evidence.steps == IMAGES.steps


def test_what_was_compared_of_another_script_in_the_folder_is_let_go(tmp_path: Path) -> None:
    write(tmp_path / CONTESTS, {"bf16": {"pairs": [[1.0, 2.0]]}})
    seen = []

    def launch(entry: str, spec: Mapping[str, Any], folder: Path, env: Mapping[str, str]) -> int:
        seen.append((folder / CONTESTS).exists())
        write_json(folder / EVIDENCE, IMAGES)
        return 0

    measure_training(launch, {"time_s": 1000.0}, tmp_path)
    assert seen[0] is False


def test_trials_of_an_earlier_session_in_the_folder_are_not_those_of_this_one(
    tmp_path: Path,
) -> None:
    gain = Gain(9.0, 8.0, 10.0, "measured")
    trial = Trial("bf16", {}, "numerics", gain, gain, True, "measured long ago")
    told = {"trials": [msgspec.to_builtins(trial)], "final": {"recipe": {}}}
    write(tmp_path / TRIALS, told)
    assert tried_by_now(tmp_path) == [trial]
    found = try_remedies(lambda *_: 0, {"time_s": 5.0}, tmp_path)
    assert (found.trials, found.final) == ([], {})


def test_a_target_that_fails_has_failed(tmp_path: Path) -> None:
    codes = [7, 0]
    found = measure_training(lambda *_: codes.pop(0), {"time_s": 1000.0}, tmp_path)
    assert (found.exit_code, found.notes, codes) == (7, [], [0])


def test_batches_of_another_size_that_a_script_fails_on_are_tried_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What it printed is explained, and neither half nor double ones are given to it again."""
    excluded: list[dict[str, str]] = []

    def launch(entry: str, spec: Mapping[str, Any], folder: Path, env: Mapping[str, str]) -> int:
        excluded.append(dict(spec["excluded"]))
        write_json(folder / EVIDENCE, IMAGES)
        if not spec["excluded"]:
            write(folder / MARKER, {"arm": "batch_double"})
            return 1
        return 0

    found = measure_training(launch, {"time_s": 1000.0}, tmp_path)
    assert (found.exit_code, len(excluded)) == (0, 2)
    assert set(excluded[1]) == {"batch_half", "batch_double"}
    assert "exit code 1 in an experiment, batch_double; it is run again" in capsys.readouterr().err
    (note,) = found.notes
    assert note.startswith("the script failed with a batch's half, or with two batches made one")


def test_ranks_are_compared_within_one_run(tmp_path: Path) -> None:
    """Another run, on a busier machine, would make of its first rank a fast one."""
    runs = []

    def launch(entry: str, spec: Mapping[str, Any], folder: Path, env: Mapping[str, str]) -> int:
        runs.append(entry)
        steps = msgspec.structs.replace(IMAGES.steps, mean_s=0.1 * len(runs))
        arms = tuple(
            Arm(
                "communication_free",
                3,
                1.0,
                1.0,
                Gain(1.3, 1.2, 1.4),
                Gain(1.3, 1.2, 1.4),
                None,
                "as_is",
            )
            for _ in runs
        )
        run = msgspec.structs.replace(IMAGES.run, finished=True)
        seen = msgspec.structs.replace(IMAGES, run=run, steps=steps, arms=arms, world=2)
        (folder / "rank-1").mkdir(exist_ok=True)
        for place in (folder, folder / "rank-1"):
            write_json(place / EVIDENCE, seen)
        return 0

    found = measure_training(launch, {"time_s": 1000.0}, tmp_path)
    assert found.evidence is not None
    assert [rank.step_s for rank in found.evidence.ranks] == [found.evidence.steps.mean_s] * 2
    assert len(runs) == 1


def test_ctrl_c_in_an_arm_is_no_fault_of_the_arm(tmp_path: Path) -> None:
    runs = []

    def launch(entry: str, spec: Mapping[str, Any], folder: Path, env: Mapping[str, str]) -> int:
        runs.append(entry)
        write_json(folder / EVIDENCE, IMAGES)
        write(folder / STATUS, {"over": False})
        write(folder / MARKER, {"arm": "bf16"})
        return 130

    found = measure_training(launch, {"time_s": 1000.0}, tmp_path)
    assert (len(runs), found.exit_code, found.notes) == (1, 130, [])
    assert found.evidence is not None


def test_a_target_that_fails_when_remedies_are_tried_is_told(tmp_path: Path) -> None:
    found = try_remedies(lambda *_: 1, {"time_s": 5.0}, tmp_path)
    assert found.trials == []
    (note,) = found.notes
    assert "exit code 1 when it was run again to try remedies" in note


@pytest.mark.parametrize("arm", ["recipe", "accepted", "without"])
def test_a_recipe_that_a_target_dies_of_is_none(tmp_path: Path, arm: str) -> None:
    """There is nothing to leave out of another run."""
    gain = Gain(2.0, 1.9, 2.1, "measured")
    trial = Trial("bf16", {}, "numerics", gain, gain, True, "measured 2.00x [1.90, 2.10]")
    runs = []

    def launch(entry: str, spec: Mapping[str, Any], folder: Path, env: Mapping[str, str]) -> int:
        runs.append(entry)
        write(folder / TRIALS, {"trials": [msgspec.to_builtins(trial)], "final": {"recipe": {}}})
        write(folder / MARKER, {"arm": arm})
        return 1

    found = try_remedies(launch, {"time_s": 1000.0}, tmp_path)
    assert len(runs) == 1
    assert found.final == {}
    assert [one.accepted for one in found.trials] == [False]
    assert "exit code 1 under all that was accepted" in found.trials[0].reason


def test_a_remedy_that_a_target_dies_of_late_in_its_trial_is_not_accepted(tmp_path: Path) -> None:
    """It had paid by then; what was accepted before stays."""
    gain = Gain(2.0, 1.9, 2.1, "measured")
    before, dies = (
        Trial(name, {}, "numerics", gain, gain, True, "measured 2.00x [1.90, 2.10]")
        for name in ("channels_last", "bf16")
    )
    runs = []

    def launch(entry: str, spec: Mapping[str, Any], folder: Path, env: Mapping[str, str]) -> int:
        runs.append(dict(spec["excluded"]))
        if spec["excluded"]:
            write(folder / STATUS, {"finished": False})
            return 0
        trials = [msgspec.to_builtins(trial) for trial in (before, dies)]
        write(folder / TRIALS, {"trials": trials, "final": {}})
        write(folder / MARKER, {"arm": "bf16"})
        return 1

    found = try_remedies(launch, {"time_s": 1000.0}, tmp_path)
    assert (len(runs), found.excluded) == (2, ("bf16",))
    assert [one.accepted for one in found.trials] == [True, False]
    assert "exit code 1 under this remedy" in found.trials[1].reason


@pytest.mark.parametrize("arm", ["loader_workers", "accepted"])
def test_a_remedy_that_a_target_hangs_in_is_left_out(tmp_path: Path, arm: str) -> None:
    """As workers do that were forked while a thread of the data set's held a lock."""
    runs: list[dict[str, Any]] = []

    def launch(entry: str, spec: Mapping[str, Any], folder: Path, env: Mapping[str, str]) -> int:
        runs.append(dict(spec))
        if spec["excluded"]:
            write(folder / STATUS, {"finished": False})
            return 0
        write(folder / MARKER, {"arm": arm})
        write(folder / STATUS, {"hung": 90.0})
        return 143

    found = try_remedies(launch, {"time_s": 1000.0, "silent_s": 90.0}, tmp_path)
    assert [one["silent_s"] for one in runs] == [90.0] * len(runs)
    (note,) = found.notes
    if arm == "accepted":
        assert (len(runs), found.failed) == (1, True)
        assert note.startswith("the target hung for 1m30s when it was run again to try remedies")
    else:
        assert (len(runs), found.excluded) == (2, (arm,))
        assert note == f"{arm}: the process hung for 1m30s under this remedy"


def test_a_remedy_that_a_target_dies_of_is_told_when_the_time_is_up(tmp_path: Path) -> None:
    runs = []

    def launch(entry: str, spec: Mapping[str, Any], folder: Path, env: Mapping[str, str]) -> int:
        runs.append(dict(spec["excluded"]))
        write(folder / MARKER, {"arm": "bf16"})
        return 139

    found = try_remedies(launch, {"time_s": -1.0}, tmp_path)
    assert runs == [{}]
    assert found.notes == ("bf16: the process ended with exit code 139 under this remedy",)


@pytest.mark.parametrize("altered", [True, False])
def test_what_a_script_makes_of_an_altered_training_is_no_failure(
    altered: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its arms are not to blame where it has come to its end; where it broke off they are."""
    excluded: list[dict[str, str]] = []

    def launch(entry: str, spec: Mapping[str, Any], folder: Path, env: Mapping[str, str]) -> int:
        excluded.append(dict(spec["excluded"]))
        run = msgspec.structs.replace(IMAGES.run, finished=altered)
        write_json(folder / EVIDENCE, msgspec.structs.replace(IMAGES, run=run))
        write(folder / STATUS, {"finished": altered, "over": altered, "changed": True})
        write(folder / MARKER, {"arm": "bf16"})
        return 0 if spec["excluded"] else 1

    found = measure_training(launch, {"time_s": 1000.0}, tmp_path)
    assert found.exit_code == 0
    assert found.evidence is not None
    if altered:
        assert excluded == [{}, {}]
        (note,) = found.notes
        assert note.startswith("the target ended with exit code 1 after experiments had changed")
        assert capsys.readouterr().err == ""
    else:
        assert [list(one) for one in excluded] == [[], ["bf16"]]


def test_an_altered_training_goes_on_being_tried(tmp_path: Path) -> None:
    runs = []

    def launch(entry: str, spec: Mapping[str, Any], folder: Path, env: Mapping[str, str]) -> int:
        runs.append(dict(spec["excluded"]))
        write(folder / STATUS, {"finished": True, "over": True, "changed": True})
        write(folder / MARKER, {"arm": "bf16"})
        return 1

    found = try_remedies(launch, {"time_s": 1000.0}, tmp_path)
    assert runs == [{}, {}]
    (note,) = found.notes
    assert "after experiments had changed its training" in note


def test_a_script_that_fails_after_a_training_as_it_is_has_failed(tmp_path: Path) -> None:
    """Watching it less closely changes nothing of it."""
    runs = []

    def launch(entry: str, spec: Mapping[str, Any], folder: Path, env: Mapping[str, str]) -> int:
        runs.append(entry)
        write_json(folder / EVIDENCE, IMAGES)
        write(folder / STATUS, {"finished": True, "over": True, "changed": False})
        write(folder / MARKER, {"arm": "seams_off"})
        return 5

    found = measure_training(launch, {"time_s": 1000.0}, tmp_path)
    assert (found.exit_code, len(runs), found.notes) == (5, 1, [])


def test_what_was_seen_of_earlier_workers_is_not_taken_for_that_of_new_ones(tmp_path: Path) -> None:
    """As of the training before it, or of the script before it was mended."""
    (tmp_path / "rank-1").mkdir()
    old = [tmp_path / "worker-0-123.json", tmp_path / "rank-1" / "worker-1-124.json"]
    for each in old:
        each.write_text("[]")
    left = []

    def launch(entry: str, spec: Mapping[str, Any], folder: Path, env: Mapping[str, str]) -> int:
        left.extend(folder.rglob("worker-*"))
        return 7

    measure_training(launch, {"time_s": 1.0}, tmp_path)
    assert left == []


def test_a_fault_of_ours_is_no_target_without_a_training(tmp_path: Path) -> None:
    def launch(entry: str, spec: Mapping[str, Any], folder: Path, env: Mapping[str, str]) -> int:
        write(folder / STATUS, {"broken": "OSError('no space')"})
        return 0

    with pytest.raises(OutpaceError, match=r"nothing could be measured.*no space") as found:
        measure_training(launch, {"time_s": 1.0}, tmp_path)
    assert found.value.exit_code == 2


@pytest.mark.parametrize(("chosen", "runs"), [(1000.0, 3), (0.0, 1)])
def test_a_script_is_run_again_for_as_long_as_its_process_chose(
    tmp_path: Path, chosen: float, runs: int
) -> None:
    """Nobody named a time; with changes of the model it is more than without."""
    rounds = iter(range(1, 9))

    def launch(entry: str, spec: Mapping[str, Any], folder: Path, env: Mapping[str, str]) -> int:
        seen = next(rounds)
        arm = msgspec.structs.replace(IMAGES.arms[0], rounds=min(seen, 2))
        run = msgspec.structs.replace(IMAGES.run, finished=True)
        write_json(folder / EVIDENCE, msgspec.structs.replace(IMAGES, run=run, arms=(arm,)))
        write(folder / CONTESTS, {"contests": {}, "complete": False, "time_s": chosen})
        return 0

    measure_training(launch, {"time_s": None}, tmp_path)
    assert next(rounds) == runs + 1

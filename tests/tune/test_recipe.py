"""What the trials that were accepted give together, where the whole recipe was not compared; their patch."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from outpace.records.gain import Gain
from outpace.records.target import Target
from outpace.records.trial import Settings, Trial
from outpace.tune.recipe import by_trials, diff_of, on_top
from tests.remedies.some_evidence import IMAGES


def trial(name: str, speedup: float, settings: Settings | None = None) -> Trial:
    gain = Gain(speedup, 0.9 * speedup, 1.1 * speedup, "measured")
    return Trial(name, settings or {}, "exact", gain, gain, True, "measured")


SOONER = trial("set_to_none", 1.5)
KEPT = trial("cache_samples", 4.0, {"limit_mib": 64})
LASTING = trial("persistent_workers", 3.0, {"workers": 2, "batches": 2})


def speedups(accepted: list[Trial]) -> dict[str, Any]:
    found = by_trials(accepted)
    return {name: part["gain"].speedup for name, part in found.items() if name != "compiling_s"}


def test_gains_are_multiplied() -> None:
    assert speedups([SOONER, SOONER]) == {"recipe": 2.25, "epochs": 1.0}
    gain = by_trials([SOONER])["recipe"]["gain"]
    assert gain == Gain(1.5, pytest.approx(1.35), pytest.approx(1.65), "predicted")


def test_what_keeps_samples_gives_nothing_in_the_first_epoch() -> None:
    assert speedups([SOONER, KEPT]) == {"recipe": 6.0, "epochs": 1.0, "cold": 1.5}


def test_compiling_is_paid_for() -> None:
    assert by_trials([SOONER])["compiling_s"] == 0.0
    assert by_trials([SOONER, trial("compile_model", 1.1)])["compiling_s"] > 0.0


def test_gains_of_whole_epochs_are_no_gains_of_steps() -> None:
    assert speedups([SOONER, LASTING]) == {"recipe": 1.5, "epochs": 3.0}


def test_what_was_compared_as_a_whole_counts_beneath_what_came_after_it() -> None:
    """Its trials' gains alone would be less: a rival's was over what it took the place of."""
    whole = {
        name: {"gain": msgspec.to_builtins(Gain(speedup, speedup, speedup, "measured"))}
        for name, speedup in (("recipe", 5.5), ("cold", 1.1))
    }
    found = on_top({**whole, "kept": 0.5}, [trial("allocator", 1.2, {"malloc": "keep"}), LASTING])
    told = {name: found[name]["gain"].speedup for name in ("recipe", "cold", "epochs")}
    assert told == pytest.approx({"recipe": 5.5 * 1.2, "cold": 1.1 * 1.2, "epochs": 3.0})
    assert (found["recipe"]["gain"].how, found["kept"]) == ("predicted", 0.5)


@pytest.mark.parametrize("name", ["train.py", "./train.py", "{here}/train.py", "sub/my train.py"])
@pytest.mark.parametrize("before", ["", "\ufeff", "x = 1\n\f\ny = '\u2028'\n"])
def test_a_diff_is_a_patch_under_any_name(name: str, before: str, tmp_path: Path) -> None:
    name = name.format(here=tmp_path)
    script = tmp_path / name
    script.parent.mkdir(exist_ok=True)
    script.write_text(f"{before}optimizer.zero_grad(set_to_none=False)\nmain()\n", encoding="utf-8")
    wanted = script.read_bytes().replace(b"False", b"True")
    patch = diff_of(Target("script", name, (), str(tmp_path)), IMAGES, [SOONER])[0]
    if shutil.which("patch"):
        subprocess.run(
            ["patch", "-p1", "--dry-run"], input=patch.encode(), cwd=tmp_path, check=True
        )
    subprocess.run(["git", "apply", "-"], input=patch.encode(), cwd=tmp_path, check=True)
    assert script.read_bytes() == wanted

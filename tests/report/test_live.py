"""The picture of a session under way."""

from __future__ import annotations

import math
import os
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from outpace.records.gain import Gain
from outpace.report.live import CURVE, Seen, curve, newest, of_experiments, picture


def shown(seen: Seen | None, losses: list[float] | None = None, silent_s: float = 0.0) -> str:
    console = Console(width=100, color_system=None)
    with console.capture() as captured:
        console.print(picture(".outpace/x", seen, losses or [], silent_s))
    return captured.get()


def test_a_phase_its_gains_and_its_losses() -> None:
    gains = {"batch_double": Gain(0.5, 0.45, 0.55, "measured")}
    text = shown(Seen("experiments", 0.5, "compute, round 3", gains), [2.0, 1.0])
    assert " 50 %  compute, round 3" in text
    assert "twice the batch" in text
    assert "0.50× (0.45–0.55)" in text
    assert "█▁  2 → 1" in text
    assert "nothing new" not in text


def test_silence_is_told() -> None:
    assert "nothing new for 40 s" in shown(Seen("trials", 0.1), silent_s=40)
    assert "nothing was told yet" in shown(None)


def test_a_process_that_measures_is_read() -> None:
    told = {"phase": "p", "done": 3, "total": 2, "note": "n", "gains": {"bf16": [2, 1, 3]}}
    seen = of_experiments(told)
    assert seen == Seen("p", 1.0, "n", {"bf16": Gain(2, 1, 3, "measured")})
    assert of_experiments({**told, "total": 0}).share == 0


@given(st.lists(st.floats(-1e6, 1e6) | st.just(math.nan), min_size=1, max_size=300))
def test_a_curve_fits_its_width_and_has_its_lowest_point(losses: list[float]) -> None:
    drawn = curve(losses)
    assert 1 <= len(drawn) <= CURVE
    assert ("▁" in drawn) == (drawn.strip() != "")


def test_losses_that_are_next_to_each_other() -> None:
    assert curve([0.0, 5e-324]) == "▁█"
    assert curve([1.0, 1.0]) == "▁▁"


def test_what_the_target_writes_is_not_taken_for_ours(tmp_path: Path) -> None:
    ours = tmp_path / "s" / "progress.json"
    its_own = tmp_path / "s" / "scratch" / "home" / "progress.json"
    for path, when in ((ours, 100), (its_own, 200)):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
        os.utime(path, (when, when))
    assert newest(tmp_path) == (ours, 100)

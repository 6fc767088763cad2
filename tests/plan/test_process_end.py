"""How long a process takes to end, by one look of the garbage collector."""

from __future__ import annotations

import gc
import time

import pytest

from outpace.plan.process_end import ELSE_S, LOOKS, seconds_to_end


@pytest.mark.parametrize("look_s", [0.0, 0.1, 3.0])
def test_it_is_reckoned_by_a_look_as_it_is_now(
    monkeypatch: pytest.MonkeyPatch, look_s: float
) -> None:
    clock = [5.0]

    def collect() -> int:
        clock[0] += look_s
        return 0

    monkeypatch.setattr(gc, "collect", collect)
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    assert seconds_to_end() == pytest.approx(LOOKS * look_s + ELSE_S)

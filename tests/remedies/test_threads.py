"""Another number of threads: what it gains beside its input is what was measured beside that."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest

from outpace.records.arm import FED
from outpace.remedies.room import ways
from outpace.remedies.threads import Threads
from tests.remedies.some_evidence import IMAGES, WORKERS, arm

replace = msgspec.structs.replace


def test_batches_that_cost_nothing_are_nothing_to_measure_beside() -> None:
    free = replace(IMAGES, input=replace(IMAGES.input, wait_s=0.001))
    assert Threads().fed_arms(free) == {}
    assert Threads().fed_arms(IMAGES)


def test_what_was_measured_beside_input_is_predicted() -> None:
    one, arms = Threads(), Threads().fed_arms(WORKERS)
    assert arms == {
        n + FED: dataclasses.replace(s, free_input=False) for n, s in one.arm(WORKERS).items()
    }
    measured = arm("threads_2" + FED, 0.6, 0.5, "as_is")
    beside = replace(WORKERS, arms=(*WORKERS.arms, measured))
    assert one.predict(WORKERS, {"threads": 2}).speedup > 0.9
    gain = one.predict(beside, {"threads": 2})
    assert gain.speedup == pytest.approx(0.6)
    assert gain.how == "predicted"


def test_fewer_threads_are_not_advised_beside_other_programs() -> None:
    """They would do harm once these are gone."""
    alone = replace(
        IMAGES,
        machine=replace(IMAGES.machine, cores=2),
        compute=replace(IMAGES.compute, threads=2),
    )
    beside = replace(alone, run=replace(IMAGES.run, others_cores=0.9))
    assert Threads().counts(alone) == [1]
    assert {"compute_threads": 1} in ways(alone, 1)
    refused = Threads().applies(beside)
    assert not refused.yes
    assert "0.9 of 2 cores" in refused.reason
    assert ways(beside, 1) == [{"passive": True}]
    crowd = replace(beside, compute=replace(IMAGES.compute, threads=8))
    assert Threads().counts(crowd) == [1, 2]

"""Memory over the batch size: lines through what was measured, and what would make room."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outpace.errors import TargetError
from outpace.plan.hardware import device
from outpace.plan.room import CONTEXT_BYTES, law_of, memory_plan, step_flops
from outpace.records.evidence import ByKind
from outpace.records.plan import Sizes, StepSize

MB = 1_000_000


def size(batch: int, activation: int = MB, *, weights: int = 10 * MB) -> StepSize:
    """A step whose activations are in proportion to its batch; Adam, gradients freed in between."""
    kinds = ByKind(
        parameters=weights,
        gradients=weights,
        optimizer=2 * weights,
        activations=batch * activation,
        other=batch * 1000,
    )
    return StepSize(
        batch=batch,
        entry=3 * weights,
        learning=weights + batch * activation,
        optimizer=2 * weights,
        data=batch * 1000,
        kinds=kinds,
    )


def sizes(*steps: StepSize, **more: StepSize) -> Sizes:
    return Sizes(
        device="cpu",
        steps=steps,
        bf16=more.get("bf16"),
        checkpointed=more.get("checkpointed"),
        layers=(),
        flops=9e9,
        flops_forward=3e9,
        step_s=0.1,
        forward_s=0.03,
    )


@given(st.integers(1, 400), st.integers(1, 400), st.integers(0, MB))
def test_what_is_a_line_is_found(small: int, more: int, activation: int) -> None:
    found = sizes(size(small, activation), size(small + more, activation))
    law = law_of(found)
    for batch in (small, small + more, 7 * (small + more)):
        assert law.peak(batch) == pytest.approx(size(batch, activation).peak, rel=1e-6, abs=2)


@given(st.integers(40 * MB, 10_000 * MB))
def test_the_largest_batch_is_the_last_that_fits(limit: int) -> None:
    law = law_of(sizes(size(8), size(16)))
    largest = law.largest(limit)
    assert largest == 0 or law.peak(largest) <= limit
    assert law.peak(largest + 1) > limit


def test_the_optimizers_step_may_be_the_peak() -> None:
    law = law_of(sizes(size(1), size(2)))
    assert law.peak(1) == 3 * 10 * MB + 20 * MB + 1000


def test_one_batch_size_alone_is_taken_to_be_in_proportion() -> None:
    law = law_of(sizes(size(16)))
    assert law.peak(32) == pytest.approx(size(32).peak, rel=0.01)


def test_nothing_measured() -> None:
    with pytest.raises(TargetError, match="no step's memory"):
        law_of(sizes())


def test_kinds_add_up_to_the_peak() -> None:
    found = sizes(size(16), size(8))
    for batch in (None, 4, 64):
        plan = memory_plan(found, batch, None, 1, None)
        kinds = plan.by_kind
        total = sum(getattr(kinds, name) for name in kinds.__struct_fields__)
        assert total == pytest.approx(plan.peak_bytes, rel=0.15)
        assert plan.how == ("measured" if batch is None else "predicted")
        assert plan.fits is None


def test_a_device_and_what_makes_room_on_it() -> None:
    found = sizes(size(16), size(8), bf16=size(16, MB // 2), checkpointed=size(16, MB // 8))
    limit = round(device("T4").memory_gb * 1e9)
    plan = memory_plan(found, 20_000, device("T4"), 8, None)
    assert plan.device == "T4"
    assert plan.limit_bytes is not None
    assert plan.limit_bytes < limit
    assert plan.fits is False
    assert plan.largest_batch is not None
    assert law_of(found).peak(plan.largest_batch) <= plan.limit_bytes
    rooms = {room.change: room for room in plan.changes}
    assert rooms["bf16"].peak_bytes == pytest.approx(plan.peak_bytes / 2, rel=0.05)
    assert rooms["bf16"].fits is True
    assert rooms["checkpoint each block"].time == pytest.approx(1.3)
    assert rooms["accumulate 2 batches of 10000"].peak_bytes < 0.55 * plan.peak_bytes
    # States of 4 x 10 MB: ZeRO 3 over 8 keeps an eighth of them.
    saved = plan.peak_bytes - rooms["ZeRO 3 over 8"].peak_bytes
    assert saved == pytest.approx(4 * 10 * MB * 7 / 8)


@pytest.mark.parametrize("buffers", [0, 4096])
def test_gradients_are_kept_from_one_accumulated_batch_to_the_next(buffers: int) -> None:
    """Whatever small things besides the model's states last from step to step."""
    steps = [msgspec.structs.replace(s, entry=s.entry + buffers) for s in (size(16), size(8))]
    found = sizes(*steps)
    rooms = {room.change: room for room in memory_plan(found, 100, None, 1, None).changes}
    of_half = law_of(found).peak(50)
    assert rooms["accumulate 2 batches of 50"].peak_bytes == of_half + 10 * MB


def test_a_context_takes_its_part_of_the_accelerator_that_is_here_too() -> None:
    here = sizes(size(16), size(8))
    there = msgspec.structs.replace(here, device="cuda")
    assert memory_plan(here, None, None, 1, 10**10).limit_bytes == 10**10
    assert memory_plan(there, None, None, 1, 10**10).limit_bytes == 10**10 - CONTEXT_BYTES


def test_what_is_computed_again_counts_for_the_hardware_alone() -> None:
    step = step_flops(12e9, 3e9, 0.1, 200e9)
    assert (step.model, step.hardware) == (9e9, 12e9)
    assert step.mfu == pytest.approx(0.45)
    assert step.hfu == pytest.approx(0.6)
    assert step_flops(9e9, 3e9, 0.1, None).mfu is None

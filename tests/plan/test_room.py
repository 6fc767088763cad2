"""Memory over the batch size: lines through what was measured, and what would make room."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outpace.errors import TargetError
from outpace.plan.hardware import CONTEXT_BYTES, device
from outpace.plan.room import LESS, law_of, memory_plan, next_to_try, step_flops
from outpace.records.memory import ByKind
from outpace.records.plan import Layer, Plan, Sizes, StepSize
from outpace.report.plan import memory_lines

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
        learnt=weights,
        kinds=kinds,
    )


def sizes(*steps: StepSize, limit: int | None = None, **more: StepSize) -> Sizes:
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
        limit=limit,
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
        plan = memory_plan(found, batch, None, 1)
        kinds = plan.by_kind
        total = sum(getattr(kinds, name) for name in kinds.__struct_fields__)
        assert total == pytest.approx(plan.peak_bytes, rel=0.15)
        assert plan.how == ("measured" if batch is None else "predicted")
        assert plan.fits is None


def test_a_device_and_what_makes_room_on_it() -> None:
    found = sizes(size(16), size(8), bf16=size(16, MB // 2), checkpointed=size(16, MB // 8))
    limit = round(device("T4").memory_gb * 1e9)
    plan = memory_plan(found, 20_000, device("T4"), 8)
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
    rooms = {room.change: room for room in memory_plan(found, 100, None, 1).changes}
    of_half = law_of(found).peak(50)
    assert rooms["accumulate 2 batches of 50"].peak_bytes == of_half + 10 * MB


def test_a_context_takes_its_part_of_another_accelerator_alone() -> None:
    """Of the one that is here it was taken already, as were libraries and the data."""
    found = sizes(size(16), size(8), limit=10**10)
    here, there = (memory_plan(found, None, where, 1) for where in (None, device("T4")))
    assert here.limit_bytes == 10**10
    assert there.limit_bytes == round(device("T4").memory_gb * 1e9) - CONTEXT_BYTES
    assert (here.how, there.how) == ("measured", "predicted")


def test_what_is_frozen_has_no_gradients() -> None:
    """A hundred to one is frozen, as under LoRA; the gradients are made in the step."""

    def adapted(batch: int) -> StepSize:
        kinds = ByKind(parameters=101 * MB, optimizer=2 * MB, activations=batch * MB)
        return StepSize(batch, 103 * MB, MB + batch * MB, 2 * MB, 0, MB, kinds)

    alone = law_of(sizes(adapted(16)))
    assert alone.peak(160) == adapted(160).peak
    rooms = {r.change: r.peak_bytes for r in memory_plan(sizes(adapted(16)), None, None, 4).changes}
    peak = adapted(16).peak
    assert rooms["ZeRO 1 over 4"] == pytest.approx(peak - 1.5 * MB)
    assert "ZeRO 2 over 4" not in rooms or rooms["ZeRO 2 over 4"] >= peak - 2.25 * MB
    assert rooms["ZeRO 3 over 4"] >= peak - 78 * MB
    assert rooms["accumulate 2 batches of 8"] == adapted(8).peak + MB


def test_what_is_there_whatever_the_batch_stays() -> None:
    """A data set in one tensor, of which each batch is a part."""

    def seen(batch: int) -> StepSize:
        step = size(batch)
        kinds = msgspec.structs.replace(step.kinds, other=500 * MB)
        return msgspec.structs.replace(step, data=500 * MB, kinds=kinds)

    found = sizes(seen(8), seen(16))
    assert memory_plan(found, 64, None, 1).peak_bytes == pytest.approx(seen(64).peak, rel=1e-6)
    assert memory_plan(found, 64, None, 1).by_kind.other == 500 * MB


def test_what_is_computed_again_counts_for_the_hardware_alone() -> None:
    step = step_flops(12e9, 3e9, 0.1, 200e9)
    assert (step.model, step.hardware) == (9e9, 12e9)
    assert step.mfu == pytest.approx(0.45)
    assert step.hfu == pytest.approx(0.6)
    assert step_flops(9e9, 3e9, 0.1, None).mfu is None


def test_what_layers_keep_is_of_the_batch_that_was_asked_about() -> None:
    found = msgspec.structs.replace(sizes(size(8), size(16)), layers=(Layer("head", 8 * MB),))
    own, wide = (memory_plan(found, batch, None, 1) for batch in (None, 64))
    assert [own.layers[0].bytes, wide.layers[0].bytes] == [8 * MB, 64 * MB]
    flops = step_flops(9e9, 3e9, 0.1, None)
    words = ["\n".join(memory_lines(Plan(memory=each, flops=flops), "x")) for each in (own, wide)]
    assert "kept for the backward pass, as measured: head 7.63 MiB" in words[0]
    assert "as measured with 8 samples, in proportion: head 61.0 MiB" in words[1]


def test_no_sample_of_an_odd_batch_is_dropped() -> None:
    found = sizes(size(8), size(16))
    rooms = {room.change: room for room in memory_plan(found, 31, None, 1).changes}
    kept = 10 * MB
    assert rooms["accumulate 2 batches of 15 or 16"].peak_bytes == law_of(found).peak(16) + kept


def test_pieces_that_cannot_be_used_take_room_on_a_gpu() -> None:
    """They grow with the batch; a batch fits only where they find room too."""
    one, two = (msgspec.structs.replace(size(batch), pieces=batch * MB // 2) for batch in (8, 16))
    limit = 400 * MB
    without = memory_plan(sizes(size(8), size(16), limit=limit), None, None, 1)
    found = memory_plan(sizes(one, two, limit=limit), None, None, 1)
    assert found.largest_batch == pytest.approx(without.largest_batch / 1.5, abs=1)
    assert found.peak_bytes == without.peak_bytes
    at_most = memory_plan(sizes(one, two, limit=limit), found.largest_batch, None, 1)
    beyond = memory_plan(sizes(one, two, limit=limit), found.largest_batch + 1, None, 1)
    assert (at_most.fits, beyond.fits) == (True, False)
    on_gpu = msgspec.structs.replace(sizes(one, two, limit=limit), device="cuda")
    assert memory_plan(on_gpu, None, None, 1).largest_batch < found.largest_batch


def on_gpu(*steps: StepSize, **known: int) -> Sizes:
    return msgspec.structs.replace(
        sizes(*steps, limit=1000 * MB), device="cuda", may_try=True, **known
    )


def test_a_gpu_is_tried_with_the_largest_batch_that_is_told() -> None:
    """Until one that is hardly smaller ran."""
    found = on_gpu(size(8), size(16))
    batch = next_to_try(found)
    assert batch == memory_plan(found, None, None, 1).largest_batch
    assert batch is not None
    assert next_to_try(found, most=100) == 100
    assert next_to_try(on_gpu(size(8), size(16), size(batch), fitted=batch)) is None
    assert next_to_try(sizes(size(8), size(16), limit=1000 * MB)) is None
    assert next_to_try(on_gpu()) is None


def test_a_try_tells_of_the_next() -> None:
    """A step that takes more for small batches: what fits is more than they tell."""
    wide = [msgspec.structs.replace(size(n), pieces=n * MB) for n in (8, 16)]
    first = next_to_try(on_gpu(*wide))
    assert first is not None
    then = next_to_try(on_gpu(*wide, size(first), fitted=first))
    assert then is not None
    assert then > 1.5 * first


def test_a_batch_that_did_not_fit_is_told_by_none() -> None:
    steps = size(8), size(16)
    told = memory_plan(on_gpu(*steps), None, None, 1).largest_batch
    assert told is not None
    failed = on_gpu(*steps, failed=told)
    half = next_to_try(failed)
    assert half == told // 2
    plan = memory_plan(failed, told, None, 1)
    assert (plan.fits, plan.largest_batch) == (False, 16)
    from_there = on_gpu(*steps, size(half), fitted=half, failed=told)
    assert next_to_try(from_there) == int(LESS * told)
    assert memory_plan(from_there, half, None, 1).fits


def test_a_batch_that_was_tried_is_told() -> None:
    steps = size(8), size(16)
    told = next_to_try(on_gpu(*steps))
    assert told is not None
    ran = int(LESS * told)
    found = on_gpu(*steps, size(ran), fitted=ran, failed=told)
    assert next_to_try(found) is None
    plan = memory_plan(found, ran, None, 1)
    assert (plan.fits, plan.largest_batch, plan.largest_tried) == (True, ran, True)
    assert memory_plan(found, ran + 1, None, 1).fits is False
    lines = list(memory_lines(Plan(memory=plan, flops=step_flops(9e9, 3e9, 0.1, 1e12)), "x.py"))
    assert f"largest batch that fits: {ran:,}, tried" in lines
    elsewhere = memory_plan(found, None, device("A100-40GB"), 1)
    assert elsewhere.largest_batch is not None
    assert elsewhere.largest_batch > told
    assert not elsewhere.largest_tried


def test_a_change_fits_only_where_what_cannot_be_used_finds_room_too() -> None:
    one, two = (msgspec.structs.replace(size(batch), pieces=batch * MB // 2) for batch in (8, 16))
    limit = 400 * MB
    found = sizes(one, two, limit=limit)
    largest = memory_plan(found, None, None, 1).largest_batch
    assert largest is not None
    for batch in range(2, 3 * largest, 2):
        rooms = {room.change: room for room in memory_plan(found, batch, None, 1).changes}
        room = rooms.get(f"accumulate 2 batches of {batch // 2}")
        if room is not None and room.fits:
            assert batch // 2 <= largest


def test_what_ran_fits() -> None:
    """However near it comes to what tensors are reckoned to have of a GPU."""
    found = on_gpu(size(16), size(8))
    near = msgspec.structs.replace(found, limit=round(1.02 * size(16).peak), may_try=False)
    plan = memory_plan(near, None, None, 1)
    assert (plan.how, plan.fits, plan.largest_batch) == ("measured", True, 16)
    assert memory_plan(near, 17, None, 1).fits is False


def test_parts_of_a_batch_fit_only_where_as_much_was_tried() -> None:
    steps = size(8), size(16)
    told = next_to_try(on_gpu(*steps))
    assert told is not None
    ran = int(LESS * told)
    found = on_gpu(*steps, size(ran), fitted=ran, failed=told)
    for samples, fits in ((ran, True), (ran + 1, False)):
        rooms = {room.change: room for room in memory_plan(found, 2 * samples, None, 1).changes}
        assert rooms[f"accumulate 2 batches of {samples}"].fits is fits

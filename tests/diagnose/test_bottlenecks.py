"""From evidence to findings: what is gained counts, and what gains nothing is not said."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outpace.diagnose.bottlenecks import findings
from outpace.diagnose.costs import (
    HELD_UP,
    LEAST_OPERATORS,
    RUN_TO_RUN,
    calling_seconds,
    ceiling_seconds,
    compute_cost,
    moving_seconds,
    of_step,
)
from outpace.diagnose.ranks import input_of_all, straggles_by_input
from outpace.diagnose.rows_of_run import outside
from outpace.records.arm import FED, ONE_THREAD, Arm
from outpace.records.compute import ByHand, Calls, Dearest, Operators
from outpace.records.evidence import Evidence, Rank, Sync
from outpace.records.finding import Finding
from outpace.records.gain import Gain
from outpace.records.ledger import Row
from outpace.records.machine import Ceilings
from outpace.records.memory import ByKind, Memory
from outpace.records.run import Recurring
from outpace.remedies.float32 import Float32
from outpace.remedies.persistent_workers import PersistentWorkers
from outpace.remedies.slice_batches import SliceBatches
from tests.remedies.some_evidence import ALL, EMPTY, IMAGES, arm

replace = msgspec.structs.replace


def with_input(**facts: Any) -> Evidence:
    return replace(IMAGES, input=replace(IMAGES.input, **facts))


def causes(evidence: Evidence) -> list[tuple[str, str | None]]:
    return [(f.bound, f.cause) for f in findings(evidence)]


def test_nothing_seen_nothing_said() -> None:
    assert findings(EMPTY) == []


@pytest.mark.parametrize(
    ("facts", "cause"),
    [
        ({}, "parse"),
        ({"decode_s": 0.0, "images": None, "parse_s": 0.2}, "parse"),
        ({"decode_s": 0.0, "images": None, "storage_s": 0.2, "fetch_cpu_s": 0.02}, "storage"),
        ({"decode_s": 0.0, "images": None, "collate_s": 0.2}, "collate"),
        ({"decode_s": 0.0, "images": None}, "augment"),
        ({"decode_s": 0.0, "images": None, "sliceable": True}, "collate"),
    ],
)
def test_the_input_is_told_apart(facts: dict[str, Any], cause: str) -> None:
    assert causes(with_input(**facts))[0] == ("io", cause)


@pytest.mark.parametrize(
    ("device", "workers", "high", "told"),
    [
        ("cpu", 0, 1.9, True),
        ("cpu", 2, 2.5, True),
        ("cpu", 2, 1.05, False),  # that much is decided
        ("cuda", 0, 1.9, False),
        ("cuda", 2, 2.5, False),
    ],
)
def test_what_was_waited_for_tells_where_the_arm_decides_nothing(
    device: str, workers: int, high: float, told: bool
) -> None:
    """The training's thread waits 160 of 336 ms for its batch, whatever else the machine does."""
    gain = Gain(min(1.7, high), 0.4, high)
    undecided = Arm("input_free", 5, 0.1, 0.1, gain, Gain(2.1, 1.7, 2.6), None, "as_is")
    busy = with_input(workers=workers, wait_s=0.16, decode_s=0.0, images=None, parse_s=0.2)
    arms = (undecided, *(one for one in busy.arms if one.name != "input_free"))
    compute = replace(busy.compute, device=device)
    found = [f for f in findings(replace(busy, arms=arms, compute=compute)) if f.bound == "io"]
    assert bool(found) == told
    if told:
        assert found[0].gain.how == "predicted"
        assert found[0].gain.low > 1.0


def test_items_of_a_table_are_laid_at_the_loader() -> None:
    """A library takes them one by one: what the script can change is the loader's line."""
    facts = {"decode_s": 0.0, "images": None, "sliceable": True, "where": "train.py:20"}
    assert findings(with_input(**facts))[0].where == "train.py:20"


def test_a_wide_arm_does_not_outweigh_what_was_waited_for() -> None:
    """A batch takes 16 of 320 ms; without it a step was anything from 1.2 to 9 times as fast."""
    wide = Arm("input_free", 5, 0.1, 0.1, Gain(2.1, 1.2, 9.0), Gain(1.1, 1.0, 1.2), None, "as_is")
    busy = with_input(workers=0, wait_s=0.016, decode_s=0.0, images=None, parse_s=0.2)
    found = [f for f in findings(replace(busy, arms=(wide,))) if f.bound == "io"]
    assert 1.02 < found[0].gain.speedup <= 1 / (1 - 0.016 / busy.steps.mean_s) < 1.06
    assert found[0].gain.high > 1.2


def test_a_loader_made_for_each_epoch_starts_its_workers_each_time() -> None:
    facts = {"decode_s": 0.0, "images": None, "fetch_s": 0.05, "fetch_cpu_s": 0.008, "workers": 16}
    for anew in (False, True):
        evidence = with_input(**facts, epoch_start_s=9.0, batches=10, anew=anew)
        told = next(f for f in findings(evidence) if f.cause == "ipc")
        assert "workers to start with each epoch" in told.reason
        assert ("made anew" in told.reason) == anew
        assert PersistentWorkers().applies(evidence).yes != anew


def test_copies_to_the_device_are_told_by_their_line() -> None:
    free = arm("transfer_free", 1.5, 0.2, "as_is")
    evidence = replace(IMAGES, arms=(free,), transfers=(Sync("to", 2.0, 0.02, "train.py:30"),))
    (found,) = (f for f in findings(evidence) if f.cause == "transfer")
    assert found.where == "train.py:30"


def test_a_batch_that_is_made_over_in_the_loop_is_told() -> None:
    """Of a step of 100 ms, in which nothing waits for the loader."""
    evidence = with_input(wait_s=0.0, reworked_s=0.06, reworked_where="train.py:9")
    told = next(f for f in findings(evidence) if f.where == "train.py:9")
    assert (told.bound, told.cause) == ("io", "augment")
    assert told.gain.speedup == pytest.approx(1 / (1 - 0.06 / evidence.steps.mean_s), rel=0.01)
    assert "60.0 of the" in told.reason
    asked = with_input(
        wait_s=0.0, reworked_s=0.06, reworked_where="train.py:9", reworked_by_reading=True
    )
    told = next(f for f in findings(asked) if f.where == "train.py:9")
    assert (told.bound, told.cause) == ("io", "storage")
    assert "waiting for them" in told.reason


def test_only_starts_are_told_where_nothing_else_is_waited_for() -> None:
    facts = {
        "decode_s": 0.0,
        "images": None,
        "fetch_s": 0.05,
        "fetch_cpu_s": 0.008,
        "workers": 2,
        "ipc_s": 0.01,
    }
    slower = Arm("input_free", 9, 0.3, 0.3, Gain(0.9, 0.85, 0.95), Gain(1, 1, 1), None, "as_is")
    evidence = replace(with_input(**facts, epoch_start_s=9.0, batches=10), arms=(slower,))
    told = next(f for f in findings(evidence) if f.cause == "ipc")
    assert told.reason == "a step waits 900.0 ms for workers to start with each epoch"
    parsed = facts | {"ipc_s": 0.0, "parse_s": 0.05}  # no part of a batch is the workers' own
    evidence = replace(with_input(**parsed, epoch_start_s=9.0, batches=10), arms=(slower,))
    told = next(f for f in findings(evidence) if f.cause == "ipc")
    assert told.reason == "a step waits 900.0 ms for workers to start with each epoch"


@pytest.mark.parametrize(("batches", "persistent"), [(71, False), (71, True), (1, False)])
def test_an_iterator_for_each_batch_is_laid_at_the_workers(batches: int, persistent: bool) -> None:
    """Of a step's 120 ms 100 go to workers that start for its batch, which takes them 8 ms to make."""
    data = with_input(
        decode_s=0.0, images=None, fetch_s=8e-3, fetch_cpu_s=8e-3, collate_s=0.0, workers=2, wait_s=0.1,
        epoch_start_s=0.1, restarts=True, batches=batches, persistent=persistent, where="train.py:20",
    )  # fmt: skip
    steps = replace(IMAGES.steps, mean_s=0.12, mingled=True)
    free = (arm("input_free", 6.0, 0.02, "as_is"),)
    evidence = replace(data, steps=steps, arms=free)
    told = findings(evidence)[0]
    assert (told.bound, told.cause, told.where) == ("io", "ipc", "train.py:20")
    assert told.gain.speedup > 3.0
    said = "begins anew 2 workers" if persistent else "starts and ends 2 workers"
    assert told.reason.startswith("a step waits 94.8 of its 120.0 ms because the input")
    assert f"{said} for each batch" in told.reason
    assert ("next() of one that is kept" in told.reason) == (batches > 1)
    assert PersistentWorkers().applies(evidence).yes != persistent
    assert persistent or PersistentWorkers().predict(evidence).speedup > 3.0
    assert evidence.paging_s == 0.0 < IMAGES.paging_s, "fresh pages are those of the forks"


def test_an_order_for_each_batch_is_laid_where_it_is_drawn() -> None:
    """Of a step's 100 ms 90 go to an iterator over all samples that is made for its batch, and 2 to that."""
    data = with_input(
        decode_s=0.0, images=None, fetch_s=2e-3, fetch_cpu_s=2e-3, collate_s=1e-3, workers=0, wait_s=0.092,
        restarts=True, batches=1000, where="train.py:20", samples=64_000, slice_s=1e-4, sliceable=True,
    )  # fmt: skip
    steps = replace(IMAGES.steps, mean_s=0.1, mingled=True)
    free = (arm("input_free", 12.5, 0.008, "as_is"),)
    ledger = (Row("input", 92.0, 0.92, "train.py:31"),)
    evidence = replace(data, steps=steps, arms=free, ledger=ledger)
    told = next(one for one in findings(evidence) if one.cause == "collate")
    assert told.where == "train.py:31"
    assert told.gain.speedup > 8.0
    assert "puts all 64,000 samples in order for each batch" in told.reason
    assert SliceBatches().predict(evidence).speedup < 1.1, "each batch has its own iterator still"
    plain = replace(evidence, input=replace(evidence.input, restarts=False))
    assert "in order" not in " ".join(one.reason for one in findings(plain))


def test_calls_for_each_row_are_told_though_no_batch_size_shows_their_cost() -> None:
    """8,000 calls of 10 us: half of the rows would need half of them."""
    spent = (Operators("mm", 8000, 80e-3, 1e5, 1e4), Operators("addmm", 10, 10e-3, 1e9, 1e6))
    compute = replace(IMAGES.compute, forward_s=30e-3, backward_s=60e-3, optimizer_s=0.0, spent=spent,
                      operations=2700, tensors=20, fixed=(0.02, 0.0, 0.05), flops=2e10)  # fmt: skip
    steps = replace(IMAGES.steps, mean_s=90e-3)
    own = replace(IMAGES.input, kind="lines", wait_s=0.0, fetch_s=0.0, workers=0)
    seen = replace(IMAGES, compute=compute, steps=steps, input=own, arms=())
    assert "dispatch" not in [one.cause for one in findings(seen)]
    by_rows = replace(seen, compute=replace(compute, called_by_rows=0.99))
    told = next(one for one in findings(by_rows) if one.cause == "dispatch")
    assert "for each row of a batch anew" in told.reason
    assert told.gain.low < 5.0 < told.gain.high
    assert 0.5 * 80e-3 < calling_seconds(by_rows) < 80e-3


def test_reading_is_told_apart_from_waiting() -> None:
    facts = {"decode_s": 0.0, "images": None, "fetch_cpu_s": 0.2}
    read, waited = with_input(**facts, read_s=0.2), with_input(**facts, storage_s=0.2)
    assert {findings(one)[0].cause for one in (read, waited)} == {"storage"}
    assert "reads from files or a database" in findings(read)[0].reason
    assert "off the CPU" in findings(waited)[0].reason
    lines = replace(waited, input=replace(waited.input, kind="lines"))
    assert "reads data, or waits for them" in findings(lines)[0].reason


def test_steps_whose_time_is_not_known_gain_nothing() -> None:
    steps = replace(IMAGES.steps, count=1, mean_s=0.0, median_s=0.0)
    assert of_step(replace(IMAGES, steps=steps), 0.1, 0.0, 0.2).gain.speedup == 1.0
    findings(replace(IMAGES, steps=steps))


def test_what_is_told_beside_another_program_may_differ_more_in_another_run() -> None:
    threaded = replace(IMAGES, compute=replace(IMAGES.compute, threads=2))
    beside = replace(threaded, run=replace(threaded.run, others_cores=0.9))

    def gain(evidence: Evidence) -> Gain:
        return next(f.gain for f in findings(evidence) if f.cause == "validation")

    quiet, told = gain(threaded), gain(beside)
    assert told.speedup == quiet.speedup
    assert (quiet.low - 1) / (told.low - 1) == pytest.approx(HELD_UP / RUN_TO_RUN)
    assert (told.high - 1) / (quiet.high - 1) == pytest.approx(HELD_UP / RUN_TO_RUN)


def test_workers_that_others_hold_up_are_not_laid_at_the_workers() -> None:
    """Two workers compute 0.2 s for a batch, and take 1.2 s beside programs that use the cores."""
    facts = {"decode_s": 0.15, "images": None, "fetch_cpu_s": 0.2, "workers": 2}
    quiet, busy = with_input(**facts, fetch_s=0.2), with_input(**facts, fetch_s=1.2)
    for one, told in ((quiet, True), (busy, False)):
        two_cores = replace(one.machine, cores=2)
        slow = replace(one, machine=two_cores, steps=replace(one.steps, mean_s=0.6))
        assert (("io", "ipc") in causes(slow)) == told, causes(slow)


def test_a_collate_function_is_told_by_its_line() -> None:
    """Though slices would give the same batches without it."""
    facts = {"decode_s": 0.0, "images": None, "sliceable": True, "where": "train.py:20"}
    own = with_input(**facts, collate_s=0.2, kind_places={"own_collate": "train.py:9"})
    assert (findings(own)[0].cause, findings(own)[0].where) == ("collate", "train.py:9")


def test_what_making_batches_cannot_explain_is_laid_at_the_workers() -> None:
    """Workers that need 8 ms of CPU time for a batch, and a step that waits 100 ms longer."""
    quick = {"decode_s": 0.0, "images": None, "fetch_s": 0.05, "fetch_cpu_s": 0.008}
    crowd = with_input(**quick, collate_s=0.04, workers=16, where="train.py:20")
    told = findings(crowd)[0]
    assert (told.cause, told.where) == ("ipc", "train.py:20")
    slow = with_input(**quick | {"fetch_s": 0.4, "fetch_cpu_s": 0.4}, collate_s=0.35, workers=2)
    assert causes(slow)[0] == ("io", "collate")
    assert ("io", "ipc") not in causes(slow)
    sooner_here = replace(slow, input=replace(slow.input, made_here_s=0.008))
    assert causes(sooner_here)[0] == ("io", "ipc"), (
        "a batch takes a worker longer than the training"
    )


def test_starting_workers_with_each_epoch_is_laid_at_them() -> None:
    quick = {"decode_s": 0.0, "images": None, "fetch_s": 0.05, "fetch_cpu_s": 0.008}
    crowd = with_input(**quick, collate_s=0.04, workers=16, batches=10)
    slow = with_input(**quick, collate_s=0.04, workers=16, batches=10, epoch_start_s=2.0)
    told, worse = findings(crowd)[0], findings(slow)[0]
    assert (told.cause, worse.cause) == ("ipc", "ipc")
    assert worse.gain.speedup > 1.3 * told.gain.speedup
    assert "200.0 ms for workers to start" in worse.reason
    assert "forked" not in worse.reason
    assert worse.where == "train.py:138"
    forked = with_input(**quick, workers=16, batches=10, epoch_start_s=2.0, forked_s=1.5)
    assert "copy memory that a forked worker shares" in findings(forked)[0].reason


def test_what_takes_most_of_the_run_is_the_bound() -> None:
    rows = tuple(
        replace(row, seconds=4000.0, share=0.87) if row.name == "validation" else row
        for row in IMAGES.ledger
    )
    assert causes(replace(IMAGES, ledger=rows))[0] == ("outside", "validation")


@pytest.mark.parametrize("reached", [0.25, 0.5, 0.75])
def test_operations_may_reach_the_machines_ceiling_and_no_more(reached: float) -> None:
    """94 of 200 ms are operations; an arm without input clocked a step of 100 ms."""
    assert IMAGES.machine.ceilings is not None
    best = IMAGES.machine.ceilings.matmul_flops["float32"]
    facts = replace(
        with_input(wait_s=0.1, fetch_s=0.1, decode_s=0.0, images=None),
        steps=replace(IMAGES.steps, mean_s=0.2, median_s=0.2),
        compute=replace(IMAGES.compute, flops=reached * best * 0.1, fixed=(0.0, 0.0, 0.0)),
        arms=tuple(a for a in IMAGES.arms if a.name == "input_free"),
    )
    told = next(f.gain for f in findings(facts) if f.cause == "arithmetic")
    assert told.low <= told.speedup <= told.high
    assert told.speedup == pytest.approx(0.2 / (0.2 - max(0.0, 0.094 - 0.1 * reached)))


@pytest.mark.parametrize(("input_s", "first"), [(0.01, "compute"), (0.15, "io")])
def test_computing_at_the_machines_ceiling_is_the_bound_where_it_takes_most(
    input_s: float, first: str
) -> None:
    """Little would be gained by another input, nothing by quicker operations."""
    assert IMAGES.machine.ceilings is not None
    best = IMAGES.machine.ceilings.matmul_flops["float32"]
    whole = 0.1 + input_s
    facts = replace(
        with_input(wait_s=input_s, fetch_s=input_s, decode_s=0.0, images=None, parse_s=0.0),
        steps=replace(IMAGES.steps, mean_s=whole, median_s=whole),
        ledger=(Row("input", input_s, input_s / whole), Row("forward", 0.1, 0.1 / whole)),
        compute=replace(IMAGES.compute, flops=best * 0.1, fixed=(0.0, 0.0, 0.0)),
        arms=(),
    )
    found = findings(facts)
    assert found[0].bound == first
    assert ("io", "augment") in causes(facts)
    told = [f.gain.is_gain for f in found if f.cause == "arithmetic"]
    assert told == ([False] if first == "compute" else [])


@pytest.mark.parametrize("startup_s", [0.0, 0.3])
@pytest.mark.parametrize(("speedup", "first"), [(1.6, "compute"), (2.7, "io")])
def test_computing_that_workers_slow_down_is_the_inputs(
    speedup: float, first: str, startup_s: float
) -> None:
    """By the clock a step computes for 80 of 100 ms; without its input it would take less than that. A start
    that takes most of a short run changes nothing.
    """
    assert IMAGES.machine.ceilings is not None
    best = IMAGES.machine.ceilings.matmul_flops["float32"]
    parts = {"input": 0.02, "forward": 0.08, "startup": startup_s}
    facts = replace(
        with_input(workers=1, wait_s=0.02, fetch_s=0.09, decode_s=0.0, images=None),
        steps=replace(IMAGES.steps, mean_s=0.1, median_s=0.1),
        run=replace(IMAGES.run, startup_s=startup_s, loading_s=startup_s),
        ledger=tuple(Row(name, s, s / (0.1 + startup_s)) for name, s in parts.items()),
        compute=replace(IMAGES.compute, flops=0.02 * best, fixed=(0.0, 0.0, 0.0)),
        arms=(arm("input_free", speedup, 0.1 / speedup, "as_is"),),
    )
    assert {"io", "compute"} <= {bound for bound, _ in causes(facts)}
    of_steps = [bound for bound, _ in causes(facts) if bound != "outside"]
    assert of_steps[0] == first


@pytest.mark.parametrize(
    ("forward_s", "startup_s", "first"),
    [(0.045, 0.0, "io"), (0.1, 0.0, "compute"), (0.1, 0.1, "compute"), (0.045, 0.1, "io")],
)
def test_what_would_gain_most_comes_first_where_computing_takes_less_than_half(
    forward_s: float, startup_s: float, first: str
) -> None:
    """40 ms of input, operations at 0.7 of the ceiling, 10 ms elsewhere; a start counts once."""
    assert IMAGES.machine.ceilings is not None
    best = IMAGES.machine.ceilings.matmul_flops["float32"]
    parts = {"input": 0.04, "forward": forward_s, "elsewhere": 0.01, "startup": startup_s}
    total = sum(parts.values())
    step = total - startup_s
    facts = replace(
        with_input(wait_s=0.04, fetch_s=0.04, decode_s=0.0, images=None, parse_s=0.0),
        run=replace(IMAGES.run, startup_s=startup_s, loading_s=startup_s),
        steps=replace(IMAGES.steps, mean_s=step, median_s=step),
        ledger=tuple(Row(name, seconds, seconds / total) for name, seconds in parts.items()),
        compute=replace(
            IMAGES.compute,
            flops=0.7 * best * forward_s,
            fixed=(0.0, 0.0, 0.0),
            forward_s=forward_s,
            backward_s=0.0,
            optimizer_s=0.0,
        ),
        arms=(),
    )
    assert {("io", "augment"), ("compute", "arithmetic")} <= {*causes(facts)}
    assert causes(facts)[0][0] == first


@pytest.mark.parametrize(
    ("device", "ranks", "told"),
    [("cpu", 1, 0.5), ("cuda", 1, 0.2), ("cpu", 2, 0.2)],
)
def test_calls_of_tensors_are_told_where_they_wait_for_nothing(
    device: str, ranks: int, told: float
) -> None:
    """A ``.tolist()`` beside what else is done on its line; elsewhere they wait for a GPU, or for ranks."""
    here, free = "train.py:9", Gain(1.0, 0.9, 1.1, "measured")
    rows = (("forward", 0.5, None), ("sync", 0.3, here), ("elsewhere", 0.2, here))
    facts = replace(
        IMAGES,
        ledger=tuple(Row(name, 10 * share, share, where) for name, share, where in rows),
        compute=replace(IMAGES.compute, device=device),
        ranks=tuple(Rank(rank, 0.1, free, 0.001) for rank in range(ranks)) if ranks > 1 else (),
        world=ranks,
    )
    found = [f for f in findings(facts) if f.cause == "other"]
    assert [f.where for f in found] == [here]
    assert found[0].gain.speedup == pytest.approx(1 / (1 - told))
    assert f"takes {10 * told:.1f} s, {100 * told:.0f} % of the run" in found[0].reason


def test_other_threads_gain_no_more_than_they_did() -> None:
    """Steps were slower while arms were compared than while the training was watched."""
    arms = (*(a for a in IMAGES.arms if a.name == "input_free"), arm("threads_1", 5.0, 0.1))
    slow = tuple(replace(a, seconds=0.5) if a.name == "input_free" else a for a in arms)
    quick = replace(with_input(wait_s=0.01), arms=slow)
    told = next(f for f in findings(quick) if f.cause == "threads")
    assert told.gain.speedup <= 5.0 * 1.001


def test_accumulated_batches_are_made_one_after_the_other() -> None:
    """Four batches a step take four times as long to parse; none of that is passing them on."""
    steps = replace(IMAGES.steps, mean_s=0.4, micro_steps=4)
    arms = (arm("input_free", 5.0, 0.08, "as_is"),)
    data = replace(
        IMAGES.input, workers=2, fetch_s=0.2, fetch_cpu_s=0.2, wait_s=0.08, decode_s=0.0,
        images=None, parse_s=0.18, ipc_s=0.0,
    )  # fmt: skip
    machine = replace(IMAGES.machine, cores=2)
    evidence = replace(IMAGES, machine=machine, steps=steps, input=data, arms=arms)
    assert causes(evidence)[0] == ("io", "parse")
    assert "ipc" not in [cause for _, cause in causes(evidence)]


def test_half_precision_has_a_ceiling_of_its_own() -> None:
    """Under autocast the weights stay in float32: products are as fast as those of bfloat16."""
    rates = {"float32": 1e12, "bfloat16": 4e12}
    machine = replace(IMAGES.machine, ceilings=Ceilings(rates, 1e10, 1e-6))
    single = replace(IMAGES, machine=machine, compute=replace(IMAGES.compute, flops=4e10))
    half = replace(single, compute=replace(single.compute, autocast="bfloat16"))
    assert ceiling_seconds(single) == pytest.approx(0.04)
    assert ceiling_seconds(half) == pytest.approx(0.01)


def test_float32_on_a_gpu_may_be_computed_in_tf32() -> None:
    """At this precision a step would else be told to take less than the least that there is."""
    rates = {"float32": 50e12, "bfloat16": 800e12, "tf32": 400e12}
    machine = replace(IMAGES.machine, ceilings=Ceilings(rates, 1e12, 1e-6))
    compute = replace(IMAGES.compute, flops=4e12, device="cuda")
    assert ceiling_seconds(replace(IMAGES, machine=machine, compute=compute)) == pytest.approx(0.01)
    on_cpu = replace(compute, device="cpu")
    assert ceiling_seconds(replace(IMAGES, machine=machine, compute=on_cpu)) == pytest.approx(0.08)


def test_starts_of_epochs_are_no_faster_for_a_faster_step() -> None:
    """Three seconds of starting workers to one of steps: half of a step is an eighth of the run."""
    rows = (Row("input", 3.2, 0.8), Row("forward", 0.8, 0.2))
    starts = replace(IMAGES.run, starts_s=3.0)
    evidence = replace(IMAGES, ledger=rows, run=starts)
    whole = evidence.steps.mean_s
    assert of_step(evidence, 0.5 * whole, 0.4 * whole, 0.6 * whole).run_share == pytest.approx(
        0.125
    )
    beside = of_step(evidence, 4 * whole, whole, 4 * whole, beside=3 * whole)
    assert beside.run_share == pytest.approx(1.0)


def test_threads_are_told_as_they_are_beside_workers() -> None:
    """With the workers at rest more threads gain; with them at work there are no cores for more."""
    free = tuple(a for a in IMAGES.arms if a.name == "input_free")
    beside = with_input(workers=1, kind="loader")

    def told(gain: float) -> list[Finding]:
        at_work = arm("threads_2" + FED, gain, 0.3 / gain, "as_is")
        arms = (*free, arm("threads_2", 1.7, 0.06), at_work)
        return [f for f in findings(replace(beside, arms=arms)) if f.cause == "threads"]

    assert not told(0.8)
    assert told(1.4)[0].gain.speedup == pytest.approx(1.4)
    # The arm's own median may be of slower moments than the step's: what the rounds tell is said.
    slow = msgspec.structs.replace(
        arm("threads_1" + FED, 1.6, 0.9, "as_is"), name="threads_1" + FED
    )
    (found,) = (f for f in findings(replace(beside, arms=(*free, slow))) if f.cause == "threads")
    assert found.reason.startswith("with 1 thread instead of ")
    assert "takes 200.0 instead of 320.0 ms" in found.reason
    unmeasured = (*free, arm("threads_2", 1.7, 0.06))
    assert "threads" not in [c for _, c in causes(replace(beside, arms=unmeasured))]


def test_threads_where_batches_cost_next_to_nothing() -> None:
    """Then they are tried with input free alone, which counts even if input took a little more later."""
    free = tuple(a for a in IMAGES.arms if a.name == "input_free")
    evidence = with_input(workers=0, kind="loader", wait_s=0.06 * IMAGES.steps.mean_s)
    assert evidence.makes_batches
    assert ("compute", "threads") in causes(
        replace(evidence, arms=(*free, arm("threads_2", 1.7, 0.06)))
    )


@pytest.mark.parametrize(
    ("now", "count", "others_cores", "is_told"),
    [(2, 1, 0.0, True), (2, 1, 1.0, False), (8, 2, 1.0, True), (1, 2, 1.0, True)],
    ids=["alone", "beside a program", "more than cores", "fewer than cores"],
)
def test_threads_that_wait_for_a_core_that_others_take(
    now: int, count: int, others_cores: float, is_told: bool
) -> None:
    """Fewer of them are quicker beside another program, whatever the script is like."""
    free = tuple(a for a in IMAGES.arms if a.name == "input_free")
    evidence = replace(
        IMAGES,
        machine=replace(IMAGES.machine, cores=2),
        run=replace(IMAGES.run, others_cores=others_cores),
        compute=replace(IMAGES.compute, threads=now),
        input=replace(IMAGES.input, wait_s=0.0),
        arms=(*free, arm(f"threads_{count}", 1.7, 0.06)),
    )
    assert (("compute", "threads") in causes(evidence)) == is_told


def beside_a_program(seconds: float, error: float = 0.05) -> Evidence:
    """Two threads, one of which has no core now and then; one takes ``seconds`` for the step of 20 ms."""
    speedup = 0.02 / seconds
    gain = Gain(speedup, speedup * (1 - error), speedup * (1 + error))
    return replace(
        EMPTY,
        machine=replace(IMAGES.machine, cores=2),
        run=replace(IMAGES.run, others_cores=0.8),
        steps=replace(IMAGES.steps, mean_s=0.02, median_s=0.02),
        compute=replace(IMAGES.compute, threads=2, forward_s=0.005, backward_s=0.013, optimizer_s=0.002,
                        flops=1e8),
        ledger=(Row("forward", 30.0, 0.3), Row("backward", 70.0, 0.7)),
        arms=(replace(arm(ONE_THREAD, speedup, seconds, "as_is"), gain=gain),),
    )  # fmt: skip


def test_threads_that_another_program_holds_up() -> None:
    """That is told, and is no computing of the model's."""
    evidence = beside_a_program(0.005)
    assert compute_cost(evidence) == pytest.approx(0.005)
    told = {found.cause: found for found in findings(evidence)}
    assert told["threads"].gain.speedup == pytest.approx(4.0)
    assert "other programs keep 0.8 of 2 busy" in told["threads"].reason
    assert "with one thread a step takes 5.0 instead of 20.0 ms" in told["threads"].reason
    assert next(iter(told)) == "threads"


def test_threads_that_are_not_held_up_are_not_told() -> None:
    """Nor those of whom it cannot be known."""
    assert "threads" not in {found.cause for found in findings(beside_a_program(0.03))}
    assert "threads" not in {found.cause for found in findings(beside_a_program(0.015, 0.5))}


def test_nothing_is_promised_of_threads_that_may_be_held_up() -> None:
    """Where one thread was not timed, as rounds took too long for that."""
    evidence = replace(beside_a_program(0.005), arms=())
    evidence = replace(evidence, compute=replace(evidence.compute, flops=2e9))
    (found,) = (f for f in findings(evidence) if f.cause == "arithmetic")
    assert found.gain.speedup == found.gain.low == 1.0
    assert found.gain.high > 1.5  # but it may be that they wait for none
    assert "wait for cores that other programs use was not measured" in found.reason
    alone = replace(evidence, run=replace(evidence.run, others_cores=0.0))
    on_device = replace(evidence, compute=replace(evidence.compute, device="cuda"))
    for surely in (alone, on_device):
        (found,) = (f for f in findings(surely) if f.cause == "arithmetic")
        assert found.gain.speedup > 1.5


def computing(cause: str = "arithmetic", **facts: Any) -> Finding:
    """What is told of a training that computes for 100 ms a step, 10 of them in its optimizer."""
    compute = replace(
        IMAGES.compute,
        **{"forward_s": 0.03, "backward_s": 0.06, "optimizer_s": 0.01, "flops": 4e9, **facts},
    )
    steps = replace(IMAGES.steps, mean_s=0.1, median_s=0.1)
    free = replace(EMPTY, machine=IMAGES.machine, steps=steps, compute=compute,
                   ledger=(Row("forward", 30.0, 0.3), Row("backward", 70.0, 0.7)))  # fmt: skip
    return next(f for f in findings(free) if f.cause == cause)


def test_what_gains_nothing_is_not_told_before_what_the_training_computes() -> None:
    """Of 100 ms of computing without a product an arm took more than it spared."""
    compute = replace(
        IMAGES.compute, forward_s=0.03, backward_s=0.06, optimizer_s=0.01, flops=2e7, unused=1
    )
    slower = replace(
        EMPTY,
        machine=IMAGES.machine,
        steps=replace(IMAGES.steps, mean_s=0.1, median_s=0.1),
        compute=replace(compute, unused_where="train.py:9"),
        ledger=(Row("forward", 30.0, 0.3), Row("backward", 70.0, 0.7)),
        arms=(arm("no_unused_gradients", 0.92, 0.109, "as_is"),),
    )
    (found,) = findings(slower)
    assert found.where != "train.py:9"
    assert compute_cost(slower) == compute_cost(replace(slower, arms=())), "it adds nothing either"


def test_a_compilation_is_of_the_run() -> None:
    compiled = (Row("forward", 50.0, 0.5), Row("compiling", 50.0, 0.5))
    found = findings(replace(IMAGES, ledger=compiled, arms=()))
    assert {f.cause: f.gain_of for f in found if f.bound == "compute"}["dispatch"] == "run"
    assert {f.gain_of for f in found if f.bound == "io"} == {"steps"}


def test_what_a_ceiling_promises_is_not_measured() -> None:
    found = computing()
    assert found.gain.how == "predicted"
    assert "22 % of this machine's ceiling, at which the rest would be gained" in found.reason


def test_what_is_no_matrix_product_is_not_promised() -> None:
    """Sorting, a transform, what is in caches: how soon that could be done nobody knows."""
    found = computing(flops=2e7)
    assert "products and convolutions need 0.1 ms of that at this machine's ceiling" in found.reason
    assert "would be gained" not in found.reason
    assert found.gain == Gain(1.0, 1.0, 1.0, "predicted")


def test_nothing_is_promised_of_a_format_whose_ceiling_is_not_known() -> None:
    found = computing(dtype="float16")
    assert "how far they are from this machine's ceiling was not measured" in found.reason
    assert not found.gain.is_gain


def test_operators_that_were_not_counted_promise_nothing() -> None:
    """As under several ranks."""
    found = computing(operations=0, flops=0.0)
    assert (found.gain.speedup, found.gain.high) == (1.0, 1.0)
    assert found.reason.endswith("was not measured")


def test_float64_is_told() -> None:
    found = computing(dtype="float64")
    assert "in float64: float32, for the model and for its input" in found.reason
    assert 1.3 < found.gain.speedup < 2.0


def test_rows_of_embeddings_that_are_stepped_for_nothing() -> None:
    """Nine tenths of the parameters, of which the optimizer takes 60 ms and their gradients 10."""
    made = Operators("embedding_dense_backward", 1, 0.01, 0.0, 1e8)
    facts = {
        "forward_s": 0.01,
        "backward_s": 0.02,
        "optimizer_s": 0.06,
        "optimizer_where": "t.py:9",
    }
    untouched = {"learnt_bytes": 10**8, "untouched_bytes": 9e7, "spent": (made,)}
    compute = replace(IMAGES.compute, fixed=None, moving_s=0.0, **facts, **untouched)
    steps, data = replace(IMAGES.steps, mean_s=0.09), replace(IMAGES.input, wait_s=0.0)
    seen = replace(IMAGES, compute=compute, steps=steps, input=data, arms=())
    first = next(f for f in findings(seen) if f.cause == "arithmetic")
    assert first.where == "t.py:9"
    assert "90 % of the parameters are rows of embeddings" in first.reason
    assert first.gain.speedup == pytest.approx(0.09 / (0.09 - 0.9 * 0.07), rel=0.02)
    far = replace(seen, compute=replace(compute, moving_s=0.05, updating_moving_s=0.05))
    moved = [f for f in findings(far) if f.cause == "bandwidth"]
    assert not moved, "what is moved of these rows is told once"
    gpu = replace(seen, compute=replace(compute, device="cuda"))
    assert "rows of embeddings" not in str(findings(gpu)), "there it is only launched"
    dense = replace(seen, compute=replace(compute, untouched_bytes=0.0))
    assert "rows of embeddings" not in str(findings(dense))


def test_an_optimizer_that_takes_long_is_named() -> None:
    facts = {"forward_s": 0.01, "backward_s": 0.02, "optimizer_s": 0.07, "optimizer": "SparseAdam"}
    mostly = computing(**facts, optimizer_where="train.py:9")
    assert ", 70.0 of them in the step of SparseAdam: 22 %" in mostly.reason
    assert mostly.where == "train.py:9"
    assert computing(optimizer_where="train.py:9").where == IMAGES.compute.where
    assert "in the step of" not in computing(optimizer="SparseAdam").reason


def test_a_loop_that_calls_most_operators_is_named() -> None:
    """Also where what they compute takes longer than to call them."""
    calls = Calls("Reader.forward", "train.py:17", 900)
    facts = {"operations": 1000, "calls": calls}
    said = "operators are called for a forward pass, 900 of them in Reader.forward (train.py:17)"
    assert said in computing(**facts).reason
    assert said not in computing(**{**facts, "operations": 2000}).reason, "less than half"
    assert "called" not in computing(operations=20, calls=replace(calls, operators=18)).reason
    compute = replace(IMAGES.compute, fixed=(0.96, 0.85, 1.06), **facts)
    (loop,) = (f for f in findings(replace(IMAGES, compute=compute)) if f.cause == "dispatch")
    assert (
        "1000 operators a forward pass, 900 of them in Reader.forward (train.py:17), each"
        in loop.reason
    )
    assert loop.where == compute.where
    within = replace(compute, calls=replace(calls, in_loop=True))
    (loop,) = (f for f in findings(replace(IMAGES, compute=within)) if f.cause == "dispatch")
    assert loop.where == "train.py:17"
    assert "900 of them in a loop in Reader.forward (train.py:17), each" in loop.reason
    for slower, said in ((1.25, True), (1.9, False)):
        arms = (*IMAGES.arms, arm("batch_double", 1 / slower, 0.1))
        seen = replace(IMAGES, compute=compute, arms=arms)
        (loop,) = (f for f in findings(seen) if f.cause == "dispatch")
        assert ("with twice the batch it takes 1.25 times as long" in loop.reason) is said
    steps = replace(IMAGES.steps, micro_steps=16, batch_size=4)
    for limit, norms, said in ((2**40, False, True), (2**40, True, False), (2**20, False, False)):
        memory = replace(IMAGES.memory, limit_bytes=limit)
        own = replace(compute, batch_norm_training=norms)
        seen = replace(IMAGES, compute=own, steps=steps, memory=memory)
        (loop,) = (f for f in findings(seen) if f.cause == "dispatch")
        assert ("a step has 16 batches of 4" in loop.reason) is said


def test_a_list_of_losses_is_none() -> None:
    """Some hundred bytes a step, each loss a tensor without its graph."""
    memory = Memory(
        growth_bytes_step=390.0,
        growth_low=387.0,
        retained_where="train.py:12",
        retained_name="history",
        rss_bytes=2**29,
        limit_bytes=2**34,
    )
    assert findings(replace(IMAGES, memory=memory)) == findings(IMAGES)


def test_a_list_that_keeps_graphs_is_a_leak() -> None:
    memory = replace(
        IMAGES.memory,
        growth_bytes_step=5e6,
        growth_low=4e6,
        retained_name="losses",
        retained_where="train.py:12",
    )
    found = [f for f in findings(replace(IMAGES, memory=memory)) if f.bound == "memory"]
    assert [(f.cause, f.where) for f in found] == [("leak", "train.py:12")]


@pytest.mark.parametrize(
    ("total", "said"),
    [
        (100_000, "it will not last to the end of the run"),
        (600, None),
        (None, "it lasts for 3,000 more steps"),
    ],
)
def test_how_long_memory_that_grows_will_last(total: int | None, said: str | None) -> None:
    memory = replace(
        IMAGES.memory,
        growth_bytes_step=2e6,
        growth_low=1e6,
        rss_bytes=10**9,
        limit_bytes=7 * 10**9,
    )
    run, steps = replace(IMAGES.run, total_steps=total), replace(IMAGES.steps, count=100)
    facts = replace(IMAGES, memory=memory, run=run, steps=steps)
    (reason,) = (f.reason for f in findings(facts) if f.cause == "leak")
    assert reason.startswith("memory grows by 1.91 MiB a step")
    assert reason.endswith(said if said is not None else "a step")


@pytest.mark.parametrize(
    ("again_s", "count", "micro", "told"),
    [(None, 40, 1, 1), (0.001, 40, 1, 0), (0.001, 300, 1, 1), (0.001, 40, 16, 0)],
)
def test_a_data_set_that_keeps_its_samples_is_full_after_an_epoch(
    again_s: float | None, count: int, micro: int, told: int
) -> None:
    """Which has as many steps as batches, or fewer: those that the memory does not last for are more."""
    memory = replace(
        IMAGES.memory, growth_bytes_step=2e6, growth_low=1e6, rss_bytes=10**9, limit_bytes=7 * 10**9
    )
    facts = replace(
        IMAGES,
        memory=memory,
        run=replace(IMAGES.run, total_steps=100_000),
        steps=replace(IMAGES.steps, count=count, micro_steps=micro),
        input=replace(IMAGES.input, again_s=again_s, batches=188 if micro == 1 else 20_000),
    )
    assert sum(f.cause == "leak" for f in findings(facts)) == told


@pytest.mark.parametrize(
    ("data", "count", "limit", "told"),
    [
        (True, 40, 7 * 10**9, 0),
        (False, 40, 7 * 10**9, 1),
        (True, 300, 7 * 10**9, 1),
        (True, 40, 11 * 10**8, 1),
    ],
    ids=["within an epoch", "graphs", "beyond it", "too much for one"],
)
def test_outputs_of_an_epoch_may_be_let_go_at_its_end(
    data: bool, count: int, limit: int, told: int
) -> None:
    """What is kept without graphs, as to judge an epoch by all of them."""
    memory = replace(
        IMAGES.memory,
        growth_bytes_step=2e6,
        growth_low=1e6,
        rss_bytes=10**9,
        limit_bytes=limit,
        retained_name="outs",
        retained_where="train.py:12",
        retained_data=data,
    )
    facts = replace(
        IMAGES,
        memory=memory,
        run=replace(IMAGES.run, total_steps=100_000),
        steps=replace(IMAGES.steps, count=count),
        input=replace(IMAGES.input, batches=188),
    )
    assert sum(f.cause == "leak" for f in findings(facts)) == told


@pytest.mark.parametrize(
    ("room", "told"), [(None, 1), (3e9, 0), (8e9, 1)], ids=["a leak", "it fits", "too large"]
)
def test_memory_that_was_taken_before_is_filled_and_grows_no_more(
    room: float | None, told: int
) -> None:
    """As a replay buffer that was made of zeros."""
    memory = replace(
        IMAGES.memory,
        growth_bytes_step=2e6,
        growth_low=1e6,
        growth_seen_by="rss",
        growth_room=room,
        rss_bytes=10**9,
        limit_bytes=7 * 10**9,
    )
    run = replace(IMAGES.run, total_steps=100_000)
    facts = replace(IMAGES, memory=memory, run=run)
    assert sum(f.cause == "leak" for f in findings(facts)) == told


def test_how_long_the_machines_memory_will_last_beside_a_gpu() -> None:
    """What grows is not on the GPU: 10 of the machine's 13 GB are left."""
    memory = replace(
        IMAGES.memory, growth_bytes_step=2e6, growth_low=1e6, growth_seen_by="heap",
        rss_bytes=3 * 10**9, limit_bytes=80 * 10**9, peak_bytes=55 * 10**9, beside_bytes=5 * 10**9,
    )  # fmt: skip
    run, steps = replace(IMAGES.run, total_steps=None), replace(IMAGES.steps, count=1000)
    compute = replace(IMAGES.compute, device="cuda")
    machine = replace(IMAGES.machine, memory_bytes=13 * 10**9)
    facts = replace(IMAGES, memory=memory, run=run, steps=steps, compute=compute, machine=machine)
    (reason,) = (f.reason for f in findings(facts) if f.cause == "leak")
    assert reason.endswith("it lasts for 5,000 more steps")


def test_how_long_a_gpus_memory_will_last() -> None:
    """20 of its 80 GB are left; how large the process is in the machine's own says nothing of that."""
    memory = replace(
        IMAGES.memory, growth_bytes_step=2e6, growth_low=1e6, rss_bytes=3 * 10**9,
        limit_bytes=80 * 10**9, peak_bytes=55 * 10**9, beside_bytes=5 * 10**9,
    )  # fmt: skip
    run, steps = replace(IMAGES.run, total_steps=None), replace(IMAGES.steps, count=1000)
    compute = replace(IMAGES.compute, device="cuda")
    facts = replace(IMAGES, memory=memory, run=run, steps=steps, compute=compute)
    (reason,) = (f.reason for f in findings(facts) if f.cause == "leak")
    assert reason.endswith("it lasts for 10,000 more steps")


@given(
    wait=st.floats(0, 10),
    decode=st.floats(0, 10),
    storage=st.floats(0, 10),
    validation=st.floats(0, 1e4),
)
def test_every_finding_excludes_no_gain(
    wait: float, decode: float, storage: float, validation: float
) -> None:
    facts = with_input(
        wait_s=wait, fetch_s=wait, fetch_cpu_s=wait, decode_s=decode, storage_s=storage
    )
    facts = replace(facts, ledger=(*IMAGES.ledger[:3], Row("validation", validation, 0.1)))
    found = findings(facts)
    for position, finding in enumerate(found):
        gain = finding.gain
        said_anyway = finding.bound == "memory" or (finding.cause == "arithmetic" and not position)
        assert said_anyway or gain.low > 1.0
        assert gain.low <= gain.speedup <= gain.high
        assert 0.0 <= finding.share <= 1.0
        assert finding.reason
    bounds = [f.bound for f in found]
    assert [b for i, b in enumerate(bounds) if i == 0 or bounds[i - 1] != b] == list(
        dict.fromkeys(bounds)
    ), "the findings of a bound stand together"


@pytest.mark.parametrize("name", sorted(ALL))
def test_every_kind_of_training_gives_plain_findings(name: str) -> None:
    for finding in findings(ALL[name]):
        assert "nan" not in finding.reason.lower().split()
        assert not finding.reason.endswith(".")


def test_moving_memory_is_told_from_arithmetic() -> None:
    assert IMAGES.machine.ceilings is not None
    ceilings = replace(IMAGES.machine.ceilings, memory_bytes_s=20e9)
    facts = replace(
        IMAGES,
        machine=replace(IMAGES.machine, ceilings=ceilings),
        input=replace(IMAGES.input, wait_s=0.0),
        steps=replace(IMAGES.steps, mean_s=0.1, cpu_s=0.1),
        ledger=(Row("forward", 90.0, 0.9),),
        compute=replace(IMAGES.compute, flops=1e9, moved_bytes=1.2e9),  # 60 of 94 ms
        arms=(),
    )
    told = findings(facts)
    assert (told[0].bound, told[0].cause) == ("memory", "bandwidth")
    assert "60 of" in told[0].reason
    assert ("compute", "arithmetic") in causes(facts)
    little = replace(facts, compute=replace(facts.compute, moved_bytes=0.1e9))
    assert causes(little)[0][0] == "compute"
    assert ("memory", "bandwidth") not in causes(little)


def test_what_operators_that_move_memory_took_is_told() -> None:
    """Of 94 ms counted operators take 80, those 50; half of the pages filled are theirs."""
    spent = (Operators("mul", 9, 0.05, 0.0, 1e8), Operators("mm", 3, 0.03, 1e9, 1e7))
    compute = replace(
        IMAGES.compute, forward_s=0.04, backward_s=0.04, optimizer_s=0.014, spent=spent, moving_s=0.05,
        system_s=0.0, moved_bytes=9e8, fresh_bytes=50 * 4096.0, page_faults=100.0,
    )  # fmt: skip
    facts = replace(
        IMAGES, input=replace(IMAGES.input, wait_s=0.0), compute=compute, arms=(),
        steps=replace(IMAGES.steps, mean_s=0.1, cpu_s=0.1),
    )  # fmt: skip
    assert moving_seconds(facts) == pytest.approx(0.05), "filling pages takes no time"
    paged = replace(facts, compute=replace(compute, system_s=0.02))
    assert moving_seconds(paged) == pytest.approx(0.05 + min(0.014, 0.5 * paged.paging_s))
    slow = replace(facts, compute=replace(compute, spent=(*spent, Operators("mm", 1, 0.108, 0, 0))))
    assert moving_seconds(slow) == pytest.approx(0.05 / 2), "the counted step took twice as long"
    gpu = replace(facts, compute=replace(compute, device="cuda"))
    assert gpu.machine.ceilings is not None
    assert moving_seconds(gpu) == pytest.approx(
        min(0.094, 9e8 / gpu.machine.ceilings.memory_bytes_s)
    )


def test_importing_torch_is_no_loss() -> None:
    """Of 40 s before the first step 30 are torch's: a run of 100 s could do without 10."""
    ledger = (Row("startup", 40.0, 0.4, "train.py:3"), Row("forward", 60.0, 0.6))
    run = replace(IMAGES.run, startup_s=40.0, loading_s=30.0)
    told = {f.cause: f for f in findings(replace(IMAGES, run=run, ledger=ledger))}
    assert told["startup"].gain.speedup == pytest.approx(100 / 90)
    all_of_it = replace(run, loading_s=40.0)
    assert "startup" not in {
        f.cause for f in findings(replace(IMAGES, run=all_of_it, ledger=ledger))
    }
    endless = replace(run, finished=False, total_steps=None, estimated_s=None)
    assert "startup" not in {
        f.cause for f in findings(replace(IMAGES, run=endless, ledger=ledger))
    }, "of a run of days it may be nothing"


def test_a_step_that_is_all_calls_is_bound_by_compute() -> None:
    """Of 2 ms of compute nothing depends on the batch: one operator a tensor is left in any case."""
    compute = replace(IMAGES.compute, forward_s=1e-3, backward_s=1e-3, optimizer_s=0.0,
                      operations=400, fixed=(1.0, 0.95, 1.05))  # fmt: skip
    ledger = (Row("forward", 50.0, 0.45), Row("backward", 50.0, 0.45), Row("logging", 9.0, 0.1))
    steps = replace(IMAGES.steps, mean_s=2.2e-3)
    own = replace(IMAGES.input, kind="lines", wait_s=0.0, fetch_s=0.0, workers=0)
    told = findings(
        replace(IMAGES, compute=compute, ledger=ledger, steps=steps, input=own, arms=())
    )
    assert (told[0].bound, told[0].cause) == ("compute", "dispatch")
    least = (40 + LEAST_OPERATORS) / (400 + 40 * 8 / 3 + 1)
    assert told[0].gain.speedup == pytest.approx(2.2 / (2.2 - 1.8 * (1 - least)))


def test_half_precision_on_a_machine_without_units_for_it() -> None:
    """Of a step of 100 ms products take 90, and would take 1 to 10 in float32: it was called the ceiling."""
    rates = {"float32": 2e11, "bfloat16": 1.4e9}
    machine = replace(IMAGES.machine, ceilings=replace(IMAGES.machine.ceilings, matmul_flops=rates))
    spent = (
        Operators("convolution", 10, 0.09, 2e7, 1e6),
        Operators("relu", 10, 0.01, 0.0, 1e6),
    )
    compute = replace(IMAGES.compute, autocast="bfloat16", flops=2e8, spent=spent, fixed=None,
                      forward_s=0.06, backward_s=0.03, optimizer_s=0.01)  # fmt: skip
    own = replace(IMAGES.input, kind="lines", wait_s=0.0, fetch_s=0.0, workers=0)
    ledger = (Row("forward", 60.0, 0.6), Row("backward", 30.0, 0.3), Row("optimizer", 10.0, 0.1))
    seen = replace(IMAGES, machine=machine, compute=compute, input=own, ledger=ledger, arms=(),
                   steps=replace(IMAGES.steps, mean_s=0.1))  # fmt: skip
    told = next(f for f in findings(seen) if f.cause == "arithmetic")
    assert "in bfloat16, which this machine has no units for: it makes" in told.reason
    assert told.reason.endswith("143 times as slowly as in float32")
    assert told.gain.speedup == pytest.approx(0.1 / (0.1 - (0.09 - 0.003)), rel=0.05)
    assert Float32().predict(seen).speedup == pytest.approx(told.gain.speedup, rel=0.2)
    tried = replace(seen, arms=(arm("float32", 5.0, 0.02, "as_is"),))
    assert next(f for f in findings(tried) if f.cause == "arithmetic").gain.how == "measured"
    rates["bfloat16"] = 3e11
    faster = replace(machine, ceilings=replace(machine.ceilings, matmul_flops=rates))
    told = next(f for f in findings(replace(seen, machine=faster)) if f.cause == "arithmetic")
    assert "no units" not in told.reason


def test_anomaly_detection_is_laid_where_it_was_turned_on() -> None:
    """A step of 10 ms takes 4 without it: those 6 are no arithmetic."""
    compute = replace(IMAGES.compute, forward_s=6e-3, backward_s=3e-3, optimizer_s=1e-3,
                      anomaly_detection=True, anomaly_where="train.py:7")  # fmt: skip
    ledger = (Row("forward", 60.0, 0.6), Row("backward", 30.0, 0.3), Row("optimizer", 10.0, 0.1))
    own = replace(IMAGES.input, kind="lines", wait_s=0.0, fetch_s=0.0, workers=0)
    steps = replace(IMAGES.steps, mean_s=10e-3)
    off = arm("no_anomaly_detection", 2.5, 4e-3, "as_is")
    seen = replace(IMAGES, compute=compute, ledger=ledger, input=own, arms=(off,), steps=steps)
    told = findings(seen)
    first = told[0]
    assert (first.bound, first.cause, first.where) == ("compute", "dispatch", "train.py:7")
    assert first.gain.speedup == pytest.approx(2.5)
    assert compute_cost(seen) == pytest.approx(4e-3)
    assert compute_cost(replace(seen, arms=())) == pytest.approx(10e-3)


def only_computing(arms: tuple[Arm, ...] = (), **facts: Any) -> Evidence:
    """A step of 10 ms that only computes: forward 3, backward 6, optimizer 1."""
    times = {"forward_s": 3e-3, "backward_s": 6e-3, "optimizer_s": 1e-3}
    compute = replace(IMAGES.compute, **{**times, **facts})
    shares = {"forward": compute.forward_s, "backward": compute.backward_s}
    shares["optimizer"] = compute.optimizer_s
    ledger = tuple(Row(name, 1e4 * seconds, 100 * seconds) for name, seconds in shares.items())
    own = replace(IMAGES.input, kind="lines", wait_s=0.0, fetch_s=0.0, workers=0)
    steps = replace(IMAGES.steps, mean_s=10e-3)
    return replace(IMAGES, compute=compute, ledger=ledger, input=own, arms=arms, steps=steps)


def test_activations_computed_again_are_laid_where_the_script_asks_for_it() -> None:
    """A step of 10 ms takes 8 with all of them kept."""
    kept = arm("keep_activations", 1.25, 8e-3, "as_is")
    seen = only_computing((kept,), recomputed_where="train.py:9", recomputed_bytes=2**30)
    first = next(one for one in findings(seen) if one.where == "train.py:9")
    assert (first.bound, first.cause) == ("compute", "arithmetic")
    assert first.gain.speedup == pytest.approx(1.25)
    assert "1.00 GiB" in first.reason
    assert compute_cost(seen) == pytest.approx(8e-3)


def test_activations_computed_again_that_no_arm_has_tried() -> None:
    """Of a step of 10 ms 2 go to what is computed twice, if memory has room for all of them."""
    spent = (Operators("mm", 10, 5e-3, 1e9, 1e6),)
    again = {"recomputed_where": "train.py:9", "recomputed_bytes": 2**30, "recomputed_s": 1e-3}
    memory = replace(IMAGES.memory, peak_bytes=2**30, beside_bytes=0, limit_bytes=3 * 2**30)
    seen = replace(only_computing(spent=spent, **again), memory=memory)
    first = next(one for one in findings(seen) if one.where == "train.py:9")
    assert (first.bound, first.cause, first.gain.how) == ("compute", "arithmetic", "predicted")
    assert first.gain.speedup == pytest.approx(10 / 8)
    assert compute_cost(seen) == pytest.approx(8e-3)
    tight = replace(seen, memory=replace(memory, limit_bytes=2 * 2**30))
    assert all(one.where != "train.py:9" for one in findings(tight))


def test_a_part_of_a_model_in_float64_is_laid_where_it_begins() -> None:
    """Of a step of 10 ms 5 are computed in it, of which two fifths would be gone."""
    spent = (Operators("mm", 10, 5e-3, 1e9, 1e6),)
    seen = only_computing(spent=spent, double_s=2.5e-3, double_where="train.py:9")
    first = next(one for one in findings(seen) if one.where == "train.py:9")
    assert (first.bound, first.cause) == ("compute", "arithmetic")
    assert first.gain.speedup == pytest.approx(10 / 8)
    assert "float64" in first.reason
    whole = replace(seen, compute=replace(seen.compute, dtype="float64"))
    assert all(one.where != "train.py:9" for one in findings(whole))
    tried = replace(seen.compute, double_spared=0.8, double_by="Turned.table")
    surer = next(one for one in findings(replace(seen, compute=tried)) if one.where == "train.py:9")
    assert surer.gain.speedup == pytest.approx(10 / 6)
    assert "by Turned.table" in surer.reason
    assert "in 20% of that time, as tried" in surer.reason


def test_slices_in_a_loop_are_laid_at_their_line() -> None:
    """Of a step of 10 ms their gradients take half; of next to nothing nothing is told."""
    spent = (Operators("mm", 10, 5e-3, 1e9, 1e6),)
    seen = only_computing(spent=spent, sliced_s=2.5e-3, sliced=64, sliced_where="train.py:9")
    first = next(one for one in findings(seen) if one.where == "train.py:9")
    assert (first.bound, first.cause) == ("compute", "arithmetic")
    assert first.gain.speedup == pytest.approx(10 / 5)
    assert "takes 64 slices of one tensor" in first.reason
    little = replace(seen, compute=replace(seen.compute, sliced_s=2.5e-4))
    assert all(one.where != "train.py:9" for one in findings(little))


def test_gradients_that_are_zeroed_are_laid_at_their_models_call() -> None:
    seen = only_computing(zeroed_s=2e-3, zeroed_where="train.py:9", zeroed_of="Generator")
    first = next(one for one in findings(seen) if one.where == "train.py:9")
    assert (first.bound, first.cause) == ("compute", "arithmetic")
    assert first.gain.speedup == pytest.approx(10 / 8)
    assert "Generator" in first.reason
    assert compute_cost(seen) == pytest.approx(8e-3)


def test_what_a_teacher_gives_in_each_epoch_anew_is_laid_at_its_call() -> None:
    """Of a step of 10 ms 4 are a teacher's; in one of four epochs they have to be."""
    seen = only_computing(frozen_s=4e-3, frozen_where="train.py:9", frozen_of="Teacher")

    def told(**facts: Any) -> list[Finding]:
        data = replace(
            seen.input, **{"kind": "loader", "deterministic": True, "epochs": 4, **facts}
        )
        found = findings(replace(seen, input=data))
        return [one for one in found if one.where == "train.py:9"]

    (first,) = told()
    assert (first.bound, first.cause) == ("compute", "arithmetic")
    assert first.gain.speedup == pytest.approx(10 / 7)
    assert "Teacher never changes" in first.reason
    for facts in (
        {"deterministic": False},
        {"deterministic": None},
        {"epochs": 1},
        {"kind": "lines"},
    ):
        assert not told(**facts)


def test_a_call_for_a_metric_is_laid_at_its_line() -> None:
    """Of a step of 10 ms 3 are a second forward pass, of which nothing is learnt."""
    seen = only_computing(forward_s=6e-3, backward_s=3e-3, again_s=3e-3, again_where="train.py:12")
    first = next(one for one in findings(seen) if one.where == "train.py:12")
    assert (first.bound, first.cause) == ("compute", "arithmetic")
    assert first.gain.speedup == pytest.approx(10 / 7)
    assert "3.0 of 10.0 ms" in first.reason
    assert compute_cost(seen) == pytest.approx(7e-3)


@pytest.mark.parametrize("beside", [True, False])
@pytest.mark.parametrize(("share", "where"), [(0.1, None), (0.4, None), (0.6, "train.py:20")])
def test_the_line_that_computes_most_is_named(
    share: float, where: str | None, beside: bool
) -> None:
    dearest = Dearest("train.py:20", "_linalg_svd", share, beside)
    compute = replace(IMAGES.compute, dearest=dearest, fixed=(0.1, 0.05, 0.15), flops=4e8,
                      forward_s=6e-3, backward_s=4e-3, optimizer_s=0.0)  # fmt: skip
    ledger = (Row("forward", 60.0, 0.6), Row("backward", 40.0, 0.4))
    own = replace(IMAGES.input, kind="lines", wait_s=0.0, fetch_s=0.0, workers=0)
    steps = replace(IMAGES.steps, mean_s=10e-3)
    seen = replace(IMAGES, compute=compute, ledger=ledger, input=own, arms=(), steps=steps)
    told = next(f for f in findings(seen) if f.cause == "arithmetic")
    assert told.where == (where or IMAGES.compute.where)
    assert ("linalg_svd at train.py:20" in told.reason) is (share > 0.3)
    assert ("no model's" in told.reason) is (beside and share > 0.3)
    inside = replace(dearest, function="Net.<locals>.solve")
    told = next(
        f
        for f in findings(replace(seen, compute=replace(compute, dearest=inside)))
        if f.cause == "arithmetic"
    )
    assert ("in Net.solve, the most linalg_svd at train.py:20" in told.reason) is (share > 0.3)


def test_an_optimizer_written_out_is_laid_at_its_lines() -> None:
    """Of 10 ms a step 4 go to 900 operators that cost 4 us each; what is beyond that is arithmetic."""
    by_hand = ByHand(4e-3, 900, "train.py:40")
    compute = replace(
        IMAGES.compute, forward_s=3e-3, backward_s=3e-3, optimizer_s=4e-3, by_hand=by_hand
    )
    ledger = (Row("forward", 30.0, 0.3), Row("backward", 30.0, 0.3), Row("optimizer", 40.0, 0.4))
    ceilings = replace(IMAGES.machine.ceilings, dispatch_s=2e-6)
    own = replace(IMAGES.input, kind="lines", wait_s=0.0, fetch_s=0.0, workers=0)
    seen = replace(IMAGES, compute=compute, ledger=ledger, input=own, arms=(),
                   steps=replace(IMAGES.steps, mean_s=10e-3),
                   machine=replace(IMAGES.machine, ceilings=ceilings))  # fmt: skip
    told = [f for f in findings(seen) if f.where == "train.py:40"]
    assert [(f.bound, f.cause) for f in told] == [("compute", "dispatch")]
    spared = 4 * (1 - 40 / 900)  # one for each tensor is left
    assert told[0].gain.speedup == pytest.approx(10 / (10 - spared))
    few = replace(compute, by_hand=ByHand(4e-3, 10, "train.py:40"))
    assert "train.py:40" not in {f.where for f in findings(replace(seen, compute=few))}


def test_memory_that_is_nearly_full_is_told() -> None:
    """Of 2 GiB a step's tensors take 1.5: whether that is near depends on what else is there."""
    memory = replace(IMAGES.memory, peak_bytes=3 << 29, limit_bytes=2 << 30, beside_bytes=3 << 28)
    assert ("memory", "capacity") in causes(replace(IMAGES, memory=memory))
    alone = replace(memory, beside_bytes=0)
    assert ("memory", "capacity") not in causes(replace(IMAGES, memory=alone))


def test_a_larger_batch_needs_more_of_what_a_step_makes() -> None:
    kinds = ByKind(parameters=2 << 28, activations=1 << 28, other=1 << 28)
    memory = Memory(peak_bytes=1 << 30, by_kind=kinds, limit_bytes=4 << 30, beside_bytes=1 << 30)
    assert memory.full == pytest.approx(0.5)
    assert memory.full_at(2.0) == pytest.approx(0.625)
    assert memory.full_at(0.5) == pytest.approx(0.4375)
    assert Memory().full_at(2.0) == 0.0


def paced(step_s: float, own_s: list[float], input_s: list[float]) -> Evidence:
    """Ranks that train together, and what each needs for a step of its own."""
    ranks = tuple(
        Rank(
            index,
            step_s,
            Gain(step_s / own, 0.98 * step_s / own, 1.02 * step_s / own, "measured"),
            waits,
            "train.py:7",
            "train.py:9",
        )
        for index, (own, waits) in enumerate(zip(own_s, input_s, strict=True))
    )
    steps = replace(IMAGES.steps, mean_s=step_s)
    clocked = step_s - input_s[0]
    compute = replace(IMAGES.compute, forward_s=0.0, backward_s=clocked, optimizer_s=0.0)
    data = replace(IMAGES.input, wait_s=input_s[0], workers=0)
    return replace(
        IMAGES, world=len(ranks), ranks=ranks, steps=steps, compute=compute, input=data, arms=()
    )


def test_a_rank_that_waits_for_its_batches_holds_up_the_others() -> None:
    told = findings(paced(0.10, [0.02, 0.095], [0.0, 0.075]))
    found = {f.cause: f for f in told}
    assert told[0].bound == "communication"
    assert found["straggler"].where == "train.py:7"
    assert found["straggler"].gain.speedup == pytest.approx(0.10 / 0.025)
    assert "rank 1" in found["straggler"].reason
    assert "allreduce" in found


def test_what_a_rank_waits_for_its_batches_is_clocked() -> None:
    """At its own pace a rank computes without another beside it, and is faster than they are together."""
    found = {f.cause: f for f in findings(paced(0.10, [0.02, 0.095], [0.0, 0.06]))}
    assert found["straggler"].gain.speedup == pytest.approx(0.10 / 0.04)
    assert found["straggler"].gain.low < found["straggler"].gain.speedup


def test_what_a_rank_waits_for_its_batches_ends_at_the_next_slowest() -> None:
    """Without its input the first of three would take 50 ms, and the second as long as before."""
    found = {f.cause: f for f in findings(paced(0.112, [0.11, 0.09, 0.05], [0.06, 0.04, 0.0]))}
    assert found["straggler"].gain.speedup == pytest.approx(0.112 / 0.092)


def test_input_that_no_other_rank_waits_for_gains_nothing() -> None:
    """This one reads for 40 of its 60 ms, and then waits for one that computes for 100."""
    told = findings(paced(0.102, [0.06, 0.1], [0.04, 0.0]))
    assert "io" not in {f.bound for f in told}
    alike = findings(paced(0.102, [0.1, 0.1], [0.04, 0.04]))
    assert next(f for f in alike if f.bound == "io").gain.speedup > 1.3


@given(st.lists(st.tuples(st.floats(0.01, 1.0), st.floats(0.0, 1.0)), min_size=2, max_size=5))
def test_no_more_of_input_is_told_than_all_ranks_would_gain(
    paces: list[tuple[float, float]],
) -> None:
    own, waits = [each for each, _ in paces], [each * part for each, part in paces]
    facts = paced(max(own), own, waits)
    spared = max(own) - max(each - wait for each, wait in zip(own, waits, strict=True))
    assert straggles_by_input(facts) + input_of_all(facts) <= spared + 1e-9


def test_a_rank_with_more_work_could_share_it() -> None:
    found = {f.cause: f for f in findings(paced(0.10, [0.06, 0.10], [0.0, 0.0]))}
    assert found["straggler"].where == "train.py:9"
    assert found["straggler"].gain.speedup == pytest.approx(0.10 / 0.08)
    assert "allreduce" not in found


def test_exchanging_gradients_beyond_the_backward_pass() -> None:
    found = {f.cause: f for f in findings(paced(0.10, [0.05, 0.05], [0.0, 0.0]))}
    assert found["allreduce"].gain.speedup == pytest.approx(2.0)
    assert "straggler" not in found


def test_collectives_of_the_scripts_own_are_said() -> None:
    """Where these cost time the gradients may be next to nothing."""
    facts = paced(0.10, [0.05, 0.05], [0.0, 0.0])
    # Of an adapter, not of all that it is in.
    own = replace(facts.compute, parameters=7 * 10**9, learnt_bytes=280_000)
    own = replace(own, exchange_where="train.py:23")
    (found,) = (f for f in findings(replace(facts, compute=own)) if f.cause == "allreduce")
    assert found.where == "train.py:23"
    assert "without exchanging 273 KiB of gradients, and without the collectives" in found.reason


def test_ranks_that_do_not_wait_for_each_other() -> None:
    """The first takes 60 ms a step whatever the second does, which takes 100."""
    told = findings(paced(0.06, [0.06, 0.10], [0.0, 0.0]))
    assert not any(f.bound == "communication" for f in told)


def test_one_rank_alone_waits_for_none() -> None:
    assert not any(f.bound == "communication" for f in findings(IMAGES))


def test_arithmetic_on_nothing_is_told_by_what_it_costs() -> None:
    """Where 60 % is padding, that is what could be gained, not the distance to the ceiling."""
    times = {"forward_s": 0.03, "backward_s": 0.06, "optimizer_s": 0.0, "fixed": None}
    compute = replace(IMAGES.compute, **times)
    steps = replace(IMAGES.steps, mean_s=0.10)
    data = replace(IMAGES.input, wait_s=0.0)
    plain = replace(IMAGES, compute=compute, steps=steps, input=data, arms=())
    padded = replace(plain, compute=replace(compute, padding=0.6))
    found = {f.cause: f for f in findings(padded)}["arithmetic"]
    assert found.gain.speedup == pytest.approx(1 / (1 - 0.6 * 0.9), rel=0.02)
    assert "60 % of its positions are padding: batches of sequences of one length" in found.reason
    cut = replace(plain, compute=replace(compute, padding=0.6, trimmed=0.4))
    found = {f.cause: f for f in findings(cut)}["arithmetic"]
    assert found.gain.speedup == pytest.approx(1 / (1 - 0.4 * 0.9), rel=0.02)
    assert found.gain.high > 1 / (1 - 0.6 * 0.9)
    assert "60 % of its positions are padding, 40 % beyond the longest sequence" in found.reason
    empty = replace(plain, compute=replace(compute, flops=1e9, empty=0.9))
    assert (
        "90 % of it multiplies by zeros"
        in {f.cause: f for f in findings(empty)}["arithmetic"].reason
    )
    several = replace(empty, compute=replace(empty.compute, empty_several=True))
    assert "a sparse tensor" in {f.cause: f for f in findings(several)}["arithmetic"].reason
    beside = replace(compute, flops=1e9, sequence_flops=0.25e9, padding=0.8)
    found = {f.cause: f for f in findings(replace(plain, compute=beside))}["arithmetic"]
    assert found.gain.speedup == pytest.approx(1 / (1 - 0.25 * 0.8 * 0.9), rel=0.02)
    few = replace(plain, compute=replace(compute, flops=2e9, padding=0.05))
    assert "padding" not in {f.cause: f for f in findings(few)}["arithmetic"].reason


def test_workers_that_come_to_own_what_they_read() -> None:
    growing = with_input(workers=2, worker_growth_bytes=1e6, places=(("train.py:5", 1.0),))
    told = next(f for f in findings(growing) if f.cause == "leak")
    assert told.where == "train.py:5"
    assert "reference counts" in told.reason
    assert ("memory", "leak") not in causes(with_input(workers=2))


def test_the_line_is_that_of_the_cause() -> None:
    """Most time goes to line 9, which is not what parses."""
    lines = {"parse": "train.py:5", "storage": "train.py:3"}
    facts = {"decode_s": 0.0, "images": None, "parse_s": 0.2, "kind_places": lines}
    told = findings(with_input(**facts, places=(("train.py:9", 0.6), ("train.py:5", 0.4))))
    assert (told[0].cause, told[0].where) == ("parse", "train.py:5")


def test_reading_counts_as_storage_where_it_takes_the_cpu_too() -> None:
    """Small files in the page cache: no waiting, but opening and reading."""
    facts = {"decode_s": 0.0, "images": None, "storage_s": 0.0, "read_s": 0.2}
    assert causes(with_input(**facts))[0] == ("io", "storage")


def test_what_came_once_is_told_at_most() -> None:
    """A validation after the first of 250 steps may come each 250, or each 1,000 of 100,000."""
    came = Recurring("validation", 10.0, 1, 0, 250.0, sure=False)
    run = replace(IMAGES.run, total_steps=100_000, recurring=(came,))
    rows = (Row("backward", 20_000.0, 0.83), Row("validation", 4000.0, 0.17))
    evidence = replace(IMAGES, run=run, ledger=rows)
    (told,) = outside("validation")(evidence)
    assert "at most: it came once so far" in told.reason
    assert told.cost.low < 0.01 * told.cost.seconds
    assert told.cost.how == "predicted"
    assert not [each for each in findings(evidence) if each.cause == "validation"]
    (sure,) = outside("validation")(replace(evidence, run=replace(run, recurring=())))
    assert "at most" not in sure.reason
    assert sure.cost.low > 0.9 * sure.cost.seconds


def test_workers_that_could_not_be_looked_into_are_not_said_to_transform() -> None:
    evidence = with_input(
        workers=2, fetch_s=0.0, ipc_s=0.0, collate_s=0.0, storage_s=0.0, parse_s=0.0
    )
    reasons = [each.reason for each in findings(evidence) if each.bound == "io"]
    assert reasons
    assert all("could not be looked into" in reason for reason in reasons)


def test_calls_that_give_the_same_are_told_at_their_line() -> None:
    told = computing(alike=3, alike_share=0.6, alike_where="pinn.py:44")
    assert (told.cause, told.where) == ("arithmetic", "pinn.py:44")
    assert told.reason.startswith("3 of the model's calls in a step give what another one gave")
    assert told.gain.speedup == pytest.approx(1 / (1 - 0.75 * 0.6 * 0.09 / 0.1), rel=0.01)


def test_only_matrix_products_are_held_against_the_machines_ceiling() -> None:
    """How soon a sort or a sum could be done is not known."""
    products = Operators("mm", 4, 0.02, 1e9, 1e6)
    others = (Operators("topk", 1, 0.05, 0.0, 4e6), Operators("sum", 1, 0.03, 0.0, 8e6))
    all_products = computing(spent=(msgspec.structs.replace(products, seconds=0.1),), flops=4e9)
    told = computing(spent=(products, *others), flops=4e9)
    assert told.cause == all_products.cause == "arithmetic"
    assert told.gain.speedup < 1.25 < all_products.gain.speedup
    assert "of the other operations topk, sum take longest" in told.reason


def test_moving_memory_is_told_at_the_line_that_moves_most() -> None:
    moves = {"moving_s": 0.05, "moved_bytes": 1e9, "spent": (Operators("mul", 9, 0.09, 0.0, 1e8),)}
    for share, where in ((0.8, "loss.py:7"), (0.3, IMAGES.compute.where)):
        mover = Dearest("loss.py:7", "mul", share, beside=True)
        assert computing("bandwidth", mover=mover, **moves).where == where
    loss = Dearest("loss.py:9", "logsumexp", 0.8, beside=True)
    assert computing("bandwidth", dearest=loss, **moves).where == "loss.py:9"


def test_scores_of_targets_that_are_ignored_are_laid_at_their_loss() -> None:
    """Of a step of 10 ms half are scores, of which four fifths are ignored."""
    spent = (Operators("mm", 10, 5e-3, 1e9, 1e6),)
    facts = {"ignored": 0.8, "ignored_s": 2e-3, "ignored_where": "train.py:9"}
    seen = only_computing(spent=spent, **facts)
    first = next(one for one in findings(seen) if one.where == "train.py:9")
    assert (first.bound, first.cause) == ("compute", "arithmetic")
    assert first.gain.speedup == pytest.approx(10 / 6)
    assert "ignores 80 % of its targets" in first.reason
    assert compute_cost(seen) == pytest.approx(6e-3)
    for other in ({"ignored": 0.3}, {"padding": 0.7}, {"ignored_s": 1e-4}):
        less = replace(seen, compute=replace(seen.compute, **other))
        assert all(one.where != "train.py:9" for one in findings(less)), other

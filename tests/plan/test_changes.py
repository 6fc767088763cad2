"""What another model, batch or machine would make of a training's steps."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from outpace.plan.changes import Change, changes
from outpace.plan.forecast import options
from outpace.plan.hardware import devices
from outpace.records.arm import Arm
from outpace.records.compute import Compute
from outpace.records.evidence import Evidence, Steps
from outpace.records.gain import Gain
from outpace.records.input import Input
from outpace.records.machine import Ceilings, Machine
from outpace.records.memory import Memory
from outpace.records.plan import Estimate

COMPUTE = Compute(
    forward_s=0.03,
    backward_s=0.055,
    optimizer_s=0.005,
    learnt_bytes=4_000_000,
    flops=10e9,
    operations=100,
    parts={"blocks.0": "Block", "blocks.1": "Block", "blocks.2": "Block", "blocks.3": "Block"},
)


def arm(name: str, speedup: float) -> Arm:
    gain = Gain(speedup, 0.9 * speedup, 1.1 * speedup, "measured")
    return Arm(name, 9, 0.1 / speedup, 0.1 / speedup, gain, gain, base="input_free")


def evidence(*arms: Arm, **source: float) -> Evidence:
    """Steps of 100 ms that compute 10 GFLOP in 90 of them, on a machine of 200 GFLOP/s."""
    machine = Machine("x", "Linux", "cpu", 2, 8 << 30)
    machine = replace(machine, ceilings=Ceilings({"float32": 200e9}))
    return Evidence(
        machine=machine,
        steps=Steps(count=100, median_s=0.1, mean_s=0.1),
        compute=COMPUTE,
        input=Input(kind="loader", batch_size=32, **source),  # type: ignore[arg-type]
        arms=(arm("input_free", 1 / 0.9), *arms),
    )


def named(found: Evidence) -> dict[str, Change]:
    return {change.name: change for change in changes(found)}


def test_a_part_left_out_is_told_by_its_name_and_of_the_whole_step() -> None:
    found = named(evidence(arm("without blocks.3", 1.2)))
    # 90 of 100 ms are computing, and become 75.
    assert abs(found["without blocks.3 (Block)"].speedup - 100 / 85) < 1e-9
    half = found["2 of 4 Block fewer"]
    assert half.how == "predicted"
    assert abs(half.speedup - 100 / 70) < 1e-9


def test_an_arm_of_whole_steps_is_of_whole_steps() -> None:
    """Where the script makes its batches in lines of its own, no arm has its input free."""
    whole = replace(arm("without blocks.3", 1.25), base="as_is")
    found = named(evidence(whole, wait_s=0.04))
    assert abs(found["without blocks.3 (Block)"].speedup - 1.25) < 1e-9
    assert abs(found["2 of 4 Block fewer"].speedup - 100 / 60) < 1e-9


def test_less_compute_gives_nothing_where_workers_are_waited_for() -> None:
    found = named(evidence(arm("without dropout", 1.5), workers=2, wait_s=0.05))
    assert found["without dropout"].speedup == 1.0


@pytest.mark.parametrize(
    ("source", "most"),
    [
        ({"wait_s": 0.05}, 1.0),
        # 80 ms of computing and 80 of waiting for a batch, made by two side by side.
        ({"fetch_s": 0.3, "fetch_cpu_s": 0.08, "storage_s": 0.08}, 100 / 80),
    ],
)
def test_no_step_is_shorter_than_its_batches_take_the_workers(
    source: dict[str, float], most: float
) -> None:
    arms = (arm("without blocks.3", 1.6), arm("relu", 2.0), arm("batch_double", 1.0))
    found = evidence(*arms, workers=2, **source)
    images = replace(found.compute, any_size=True, convolutions=2)
    told = named(replace(found, compute=images))
    told = {name: change for name, change in told.items() if change.count == 1}
    for name in (
        "without blocks.3 (Block)",
        "2 of 4 Block fewer",
        "ReLU for its activations",
        "a batch of 64 in half of the steps",
        "images from half their size up",
        "on one H100-SXM",
    ):
        assert told[name].speedup == pytest.approx(most), name
    assert max(change.high for change in told.values()) == pytest.approx(most)
    free = named(evidence(*arms, **{**source, "wait_s": 0.0}))
    assert free["on one H100-SXM"].speedup > 2


def test_memory_that_is_filled_anew_is_in_the_limits() -> None:
    """10 of the 90 ms that are computing: in a process of its own none of them, or twice as many."""
    found = evidence(arm("without blocks.3", 1.2), arm("batch_double", 0.6))
    paging = replace(found.compute, system_s=0.01, page_faults=10_000.0, threads=1)
    told, doubted = named(found), named(replace(found, compute=paging))
    for name in ("without blocks.3 (Block)", "a batch of 64 in half of the steps"):
        assert doubted[name].speedup == told[name].speedup
        assert 100 / doubted[name].low == pytest.approx(100 / told[name].low + 10)
        assert 100 / doubted[name].high == pytest.approx(100 / told[name].high - 10)


def test_relu_is_told_with_what_it_is_for() -> None:
    found = evidence(arm("relu", 1.2))
    assert "ReLU for its activations" in named(found)
    classes = replace(found.compute, dear=("GELU", "SiLU"))
    assert "ReLU for GELU and SiLU" in named(replace(found, compute=classes))


def test_a_batch_twice_as_large() -> None:
    found = named(evidence(arm("batch_double", 1 / 1.6)))
    change = found["a batch of 64 in half of the steps"]
    # 10 ms that are not computing stay, and half of 1.6 times 90 ms.
    assert abs(change.speedup - 100 / (10 + 0.5 * 1.6 * 90)) < 1e-9
    assert change.low < change.speedup < change.high


def test_machines_exchange_their_gradients() -> None:
    found = named(evidence())
    two = found["2 machines like this one, at 10 Gbit/s"]
    exchange = 2 * (4e6 / 2 / 1.25e9 + 50e-6)
    assert abs(two.speedup - 2 * 0.1 / (0.1 + exchange)) < 1e-9
    assert two.count == 2
    four = found["4 machines like this one, at 10 Gbit/s"]
    assert two.speedup < four.speedup < 4


def test_a_device_that_is_asked_about_and_how_many() -> None:
    told = {change.name: change for change in changes(evidence(), devices()["L4"], 8)}
    alone, eight = told["on one L4"], told["on 8 L4"]
    exchange = 2 * 7 * (4e6 / 8 / 31e9 + 50e-6)
    assert eight.speedup == pytest.approx(8 * 0.1 / (0.1 / alone.speedup + exchange))
    assert eight.low < eight.speedup < eight.high
    assert (eight.count, eight.keeps, eight.device) == (8, "learning", devices()["L4"])
    machines = [name for name in told if "machines like this one" in name]
    assert machines == ["8 machines like this one, at 10 Gbit/s"]
    other = {change.name for change in changes(evidence(), devices()["L40S"])}
    assert "on one L40S" in other
    assert "on one L40S" not in named(evidence())


def test_products_in_half_precision_are_reckoned_with_its_rates() -> None:
    """Twice the rate of TF32 where there is one; a T4 has none for bfloat16."""
    ceilings = Ceilings({"float32": 200e9, "bfloat16": 200e9})
    plain = replace(evidence(), compute=replace(COMPUTE, operations=0))
    plain = replace(plain, machine=replace(plain.machine, ceilings=ceilings))
    half = replace(plain, compute=replace(plain.compute, autocast="bfloat16"))

    def left(found: Evidence, device: str) -> float:
        return 0.1 / named(found)[f"on one {device}"].speedup - 0.01

    assert left(half, "A100-80GB") == pytest.approx(left(plain, "A100-80GB") / 2)
    assert left(half, "T4") == pytest.approx(left(plain, "T4"))


def test_accelerators_are_ordered_by_their_rates_and_said_not_to_be_measured() -> None:
    found = named(evidence())
    small, large = found["on one T4"], found["on one H100-SXM"]
    assert 1 < small.speedup < large.speedup < 100 / 10 + 1e-9
    for change in (small, large):
        assert change.how == "not measured"
        assert change.low < change.speedup < change.high
        assert change.device is not None
    seconds = Estimate(3600.0, 3000.0, 4000.0)
    told = {each.change: each for each in options(evidence(), (), seconds, None, 2.0)}
    assert small.device is not None
    assert told["on one T4"].price == small.device.price is not None
    assert told["2 machines like this one, at 10 Gbit/s"].price is None


def test_frozen_weights_are_not_exchanged_and_a_device_has_to_hold_the_step() -> None:
    few = replace(evidence(), memory=Memory(peak_bytes=20 * 10**9))
    assert "on one T4" not in named(few)
    assert "on one H100-SXM" in named(few)
    lora = replace(few, compute=replace(few.compute, parameters=7 * 10**9))
    assert named(lora)["2 machines like this one, at 10 Gbit/s"].speedup > 1.9


def test_nothing_is_told_of_what_was_not_measured() -> None:
    bare = evidence()
    bare = replace(bare, compute=Compute(), steps=Steps())
    assert not list(changes(bare))

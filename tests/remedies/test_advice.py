"""Remedies that are only advised: from where on, and what is told of them."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from outpace.records.arm import TOO_FEW, Arm
from outpace.records.evidence import Evidence, Sync
from outpace.records.gain import NO_GAIN
from outpace.records.ledger import Row
from outpace.records.machine import Ceilings
from outpace.records.memory import ByKind, Memory
from outpace.remedies import accumulate_gradients, async_checkpoint, fp16, no_sync_items
from outpace.remedies.accumulate_gradients import AccumulateGradients
from outpace.remedies.async_checkpoint import AsyncCheckpoint
from outpace.remedies.channels_last import ChannelsLast
from outpace.remedies.fp16 import Fp16
from outpace.remedies.no_sync_items import NoSyncItems
from outpace.remedies.validate_less import ValidateLess
from tests.remedies.some_evidence import GIB, GPU, IMAGES, ON_GPU


def taking(share: float, kind: str) -> Evidence:
    """A run of which one thing takes that share."""
    return replace(IMAGES, ledger=(Row(kind, 600 * share, share, "train.py:9"),), arms=())


@pytest.mark.parametrize(("share", "yes"), [(0.09, False), (0.11, True)])
def test_validation_that_is_more_than_a_check(share: float, yes: bool) -> None:
    assert ValidateLess().applies(taking(share, "validation")).yes is yes


def test_validation_is_to_take_a_twentieth() -> None:
    found = taking(0.2, "validation")
    assert ValidateLess().settings(found) == {"every": 4}
    assert ValidateLess().predict(found).speedup == pytest.approx(1 / (1 - 0.15))
    twice = replace(found, input=replace(found.input, epochs=2))
    assert ValidateLess().settings(twice) == {"every": 2}
    once = replace(found, input=replace(found.input, epochs=1))
    assert not ValidateLess().applies(once).yes


@pytest.mark.parametrize(
    ("validations", "yes", "every"), [(1, False, 1), (3, True, 3), (90, True, 4)]
)
def test_validations_count_and_not_epochs(validations: int, yes: bool, every: int) -> None:
    """One test after all epochs leaves none to leave out; of several in an epoch there are more to."""
    found = taking(0.2, "validation")
    found = replace(found, run=replace(found.run, validations=validations))
    assert ValidateLess().applies(found).yes is yes
    assert ValidateLess().settings(found) == {"every": every}


@pytest.mark.parametrize(("off", "yes"), [(0.9, False), (1.1, True)])
def test_checkpoints_that_take_a_visible_part(off: float, yes: bool) -> None:
    found = taking(off * async_checkpoint.WORTH, "checkpoint")
    assert AsyncCheckpoint().applies(found).yes is yes
    gain = AsyncCheckpoint().predict(taking(0.5, "checkpoint"))
    assert gain.speedup == pytest.approx(1 / (1 - 0.4))


@pytest.mark.parametrize(("off", "yes"), [(0.9, False), (1.1, True)])
def test_values_that_are_read_in_each_step(off: float, yes: bool) -> None:
    found = taking(off * no_sync_items.WORTH, "sync")
    assert NoSyncItems().applies(found).yes is yes
    now_and_then = replace(found, syncs=(Sync("item", 0.1, 1e-3, "train.py:9"),))
    assert not NoSyncItems().applies(now_and_then).yes


def test_what_a_step_gained_without_reads_is_what_is_told() -> None:
    arm = ON_GPU.arm("sync_free")
    assert arm is not None
    assert NoSyncItems().applies(ON_GPU).yes, "though reading takes no time by the clock"
    assert NoSyncItems().predict(ON_GPU) == arm.gain
    gain = NoSyncItems().predict(taking(0.4, "sync"))
    assert (gain.low, gain.speedup) == (pytest.approx(1.0), pytest.approx(1 / (1 - 0.2)))


def multiplying(**rates: float) -> Evidence:
    """A GPU with such products of matrices."""
    return replace(ON_GPU, machine=replace(GPU, ceilings=Ceilings(rates)))


@pytest.mark.parametrize(
    ("rates", "yes"),
    [
        ({"float32": 1e13, "float16": 8e13}, True),
        ({"float32": 1e13, "float16": 0.99 * fp16.WORTH * 1e13}, False),
        ({"float32": 1e13, "float16": 8e13, "bfloat16": 6.5e13}, False),
        ({"float32": 1e13, "float16": 8e13, "bfloat16": 6.3e13}, True),
        ({"float32": 1e13}, False),
    ],
)
def test_float16_where_bfloat16_is_slow(rates: dict[str, float], yes: bool) -> None:
    assert Fp16().applies(multiplying(**rates)).yes is yes


def test_float16_is_not_for_all() -> None:
    assert not Fp16().applies(IMAGES).yes
    fast = multiplying(float32=1e13, float16=9e13)
    closing = replace(fast, compute=replace(fast.compute, optimizer="LBFGS"))
    assert not Fp16().applies(closing).yes
    assert Fp16().predict(fast).high == 4.0
    assert Fp16().predict(multiplying(float32=1e13)) == NO_GAIN


@pytest.mark.parametrize(
    ("peak", "activations", "size", "yes"),
    [(23, 20, 64, True), (23, 20, 1, False), (5, 4, 64, False), (23, 1, 64, False)],
)
def test_a_batch_in_parts_where_memory_is_full_of_it(
    peak: int, activations: int, size: int, yes: bool
) -> None:
    memory = Memory(peak * GIB, ByKind(activations=activations * GIB), 24 * GIB, GIB)
    found = replace(IMAGES, memory=memory, steps=replace(IMAGES.steps, batch_size=size))
    assert AccumulateGradients().applies(found).yes is yes


def test_what_a_batch_in_parts_keeps_and_costs() -> None:
    assert AccumulateGradients().kept(IMAGES) == "learning", "batch norms see smaller batches"
    without = replace(IMAGES, compute=replace(IMAGES.compute, batch_norm_training=False))
    assert AccumulateGradients().kept(without) == "numerics"
    gain = AccumulateGradients().predict(IMAGES)
    assert gain.low < gain.speedup < 1.0
    assert AccumulateGradients().settings(IMAGES) == {"parts": accumulate_gradients.PARTS}


def test_what_the_script_did_not_bear_in_an_experiment_is_not_advised() -> None:
    arm = Arm("channels_last", 0, 0.0, 0.0, NO_GAIN, NO_GAIN, failed="the model calls view()")
    assert ChannelsLast().verdict(IMAGES).yes
    verdict = ChannelsLast().verdict(replace(IMAGES, arms=(arm,)))
    assert not verdict.yes
    assert "the model calls view()" in verdict.reason
    few = replace(arm, failed=TOO_FEW)
    assert ChannelsLast().verdict(replace(IMAGES, arms=(few,))).yes

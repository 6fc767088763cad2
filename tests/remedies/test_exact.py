"""Remedies that keep every bit on most trainings, and where they would not."""

from __future__ import annotations

import msgspec
import pytest

from outpace.records.compute import ByHand
from outpace.records.evidence import Evidence
from outpace.remedies.cache_samples import CacheSamples
from outpace.remedies.fetch_threads import FetchThreads
from outpace.remedies.keep_activations import KeepActivations
from outpace.remedies.loader_workers import LoaderWorkers
from outpace.remedies.no_anomaly_detection import NoAnomalyDetection
from outpace.remedies.no_unused_gradients import NoUnusedGradients
from outpace.remedies.persistent_workers import PersistentWorkers
from outpace.remedies.pin_memory import PinMemory
from outpace.remedies.prefetch import Prefetch
from outpace.remedies.set_to_none import SetToNone
from outpace.remedies.slice_batches import SliceBatches
from tests.remedies.some_evidence import FIXED_IMAGES, IMAGES, RECOMPUTED, ROWS

replace = msgspec.structs.replace


def test_a_forward_pass_that_leaves_something_behind_is_proven_once_it_runs_once() -> None:
    assert KeepActivations().kept(RECOMPUTED) == "exact"
    moves = replace(RECOMPUTED, compute=replace(RECOMPUTED.compute, recomputed_moves=True))
    assert KeepActivations().kept(moves) == "numerics"


def test_gradients_that_the_script_looks_at_are_used() -> None:
    assert NoUnusedGradients().applies(RECOMPUTED).yes
    averaged = replace(RECOMPUTED.compute, by_hand=ByHand(1e-3, 68, "train.py:81"))
    assert NoUnusedGradients().applies(replace(RECOMPUTED, compute=averaged)).yes, "as a teacher's"
    read = replace(RECOMPUTED, compute=replace(RECOMPUTED.compute, unused_read=True))
    assert not NoUnusedGradients().applies(read).yes


def test_zeros_are_kept_for_a_script_that_looks_at_gradients() -> None:
    """Not for one that asks which parameters have any: these are the same."""
    asks = replace(ROWS.compute, set_to_none=False, unused_read=True)
    assert SetToNone().applies(replace(ROWS, compute=asks)).yes
    looks = replace(asks, gradients_read=True)
    assert not SetToNone().applies(replace(ROWS, compute=looks)).yes


def test_a_scripts_own_guard_against_a_nan_is_left_to_it() -> None:
    assert NoAnomalyDetection().applies(ROWS).yes
    guarded = replace(ROWS, compute=replace(ROWS.compute, backward_tried=True))
    verdict = NoAnomalyDetection().applies(guarded)
    assert (verdict.yes, "goes on where a backward pass fails" in verdict.reason) == (False, True)


def test_what_a_step_changes_is_seen_by_the_next_batch() -> None:
    """A data set of one's own that the script makes harder from step to step, say."""
    seen = {"rows": ROWS, "fixed_images": FIXED_IMAGES}
    for name, evidence in seen.items():
        shared = replace(evidence, input=replace(evidence.input, shared=True))
        assert Prefetch().kept(shared) == FetchThreads().kept(shared) == "numerics", name
        fed = replace(evidence, input=replace(evidence.input, fed_back=True))
        for remedy in (Prefetch(), FetchThreads()):
            assert remedy.kept(fed) == "numerics", name
        for one in (LoaderWorkers(), CacheSamples()):
            assert not one.applies(fed).yes, name
    assert CacheSamples().applies(FIXED_IMAGES).yes
    assert LoaderWorkers().applies(FIXED_IMAGES).yes


def test_what_is_under_all_loaders_is_judged_by_all() -> None:
    """Another one's random samples draw elsewhere, and leave the training other numbers."""
    beside = replace(FIXED_IMAGES, input=replace(FIXED_IMAGES.input, others_random=True))
    under_all = (
        LoaderWorkers(),
        FetchThreads(),
        PersistentWorkers(),
        SliceBatches(),
        CacheSamples(),
    )
    for remedy in (*under_all, Prefetch(), PinMemory()):
        assert remedy.kept(FIXED_IMAGES) == "exact", remedy.name
        assert remedy.kept(beside) == "numerics", remedy.name


def test_an_order_of_the_scripts_own_may_be_made_on_the_way() -> None:
    own = replace(FIXED_IMAGES, input=replace(FIXED_IMAGES.input, own_sampler=True, workers=0))
    for remedy in (LoaderWorkers(), FetchThreads(), Prefetch()):
        assert remedy.kept(own) == "numerics"
    workers = replace(own, input=replace(own.input, workers=2))
    assert LoaderWorkers().kept(workers) == "exact", "its workers have the order early too"


@pytest.mark.parametrize(
    ("batches", "steps", "micro_steps", "kept"),
    [
        (300, 200.0, 1, "numerics"),
        (300, 299.0, 1, "numerics"),
        (300, 300.0, 1, "exact"),
        (300, None, 1, "exact"),
        (300, 74.0, 4, "numerics"),
        (303, 75.0, 4, "exact"),
    ],
)
def test_an_epoch_that_is_left_early_has_drawn_further(
    batches: int, steps: float | None, micro_steps: int, kept: str
) -> None:
    """Batches that the thread has made by then drew from the generators of the next epoch's."""
    evidence = replace(
        IMAGES,
        input=replace(IMAGES.input, batches=batches, random_streams=("torch",), step_streams=()),
        run=replace(IMAGES.run, epoch_steps=steps),
        steps=replace(IMAGES.steps, micro_steps=micro_steps),
    )
    assert Prefetch().kept(evidence) == kept
    assert ("left early" in Prefetch().applies(evidence).reason) == (kept == "numerics")
    fixed = replace(evidence, input=replace(evidence.input, random_streams=()))
    assert Prefetch().kept(fixed) == "exact"


def test_sums_on_several_threads_are_others_on_the_one_of_a_worker() -> None:
    """Where samples were found to differ so, no generator being drawn from."""
    summed = replace(FIXED_IMAGES, input=replace(FIXED_IMAGES.input, same_on_one_thread=False))
    for remedy in (LoaderWorkers(), FetchThreads()):
        assert remedy.kept(summed) == "numerics"
    assert Prefetch().kept(summed) == "exact", "its thread has as many"
    assert CacheSamples().applies(here(summed)).yes, "it is filled where they are drawn by now"
    in_workers = replace(
        summed, input=replace(summed.input, workers=2, sliceable=True, slice_s=1e-9)
    )
    for other in (CacheSamples(), SliceBatches()):
        verdict = other.applies(in_workers)
        assert (verdict.yes, "how many threads" in verdict.reason) == (False, True)
        assert other.applies(here(in_workers)).yes


def here(evidence: Evidence) -> Evidence:
    return replace(evidence, input=replace(evidence.input, workers=0))

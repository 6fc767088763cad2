"""Remedies that keep every bit on most trainings, and where they would not."""

from __future__ import annotations

import msgspec

from outpace.remedies.cache_samples import CacheSamples
from outpace.remedies.fetch_threads import FetchThreads
from outpace.remedies.keep_activations import KeepActivations
from outpace.remedies.loader_workers import LoaderWorkers
from outpace.remedies.no_unused_gradients import NoUnusedGradients
from outpace.remedies.prefetch import Prefetch
from tests.remedies.some_evidence import FIXED_IMAGES, RECOMPUTED, ROWS

replace = msgspec.structs.replace


def test_a_forward_pass_that_leaves_something_behind_is_proven_once_it_runs_once() -> None:
    assert KeepActivations().kept(RECOMPUTED) == "exact"
    moves = replace(RECOMPUTED, compute=replace(RECOMPUTED.compute, recomputed_moves=True))
    assert KeepActivations().kept(moves) == "numerics"


def test_gradients_that_the_script_looks_at_are_used() -> None:
    assert NoUnusedGradients().applies(RECOMPUTED).yes
    read = replace(RECOMPUTED, compute=replace(RECOMPUTED.compute, unused_read=True))
    assert not NoUnusedGradients().applies(read).yes


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

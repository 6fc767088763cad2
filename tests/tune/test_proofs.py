"""How large a proof is, and what it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outpace.records.gain import Gain
from outpace.records.trial import Proof, Settings, Trial
from outpace.remedies.compile_model import COMPILE_S
from outpace.tune import proofs
from outpace.tune.proofs import (
    EQUAL_STEPS,
    MOST_SEEDS,
    epoch_of,
    equal_steps,
    only_caches,
    prove_recipe,
    size_of,
    time_for_proof,
)
from outpace.tune.prove import FEWEST_STEPS
from tests.remedies.some_evidence import IMAGES

HALF = Trial(
    "bf16",
    {"dtype": "bfloat16"},
    "numerics",
    Gain(1.5, 1.4, 1.6),
    Gain(2.0, 1.9, 2.1),
    True,
    "measured",
)


@given(time_s=st.floats(0, 5000), seeds=st.integers(2, 6), steps=st.integers(100, 100_000))
def test_a_proof_fits_into_its_time_or_is_the_shortest(
    time_s: float, seeds: int, steps: int
) -> None:
    facts = msgspec.structs.replace(
        IMAGES, run=msgspec.structs.replace(IMAGES.run, total_steps=steps)
    )
    size = size_of(facts, [], [HALF], time_s, seeds)
    assert seeds <= size.seeds <= max(seeds, MOST_SEEDS)
    assert size.steps >= FEWEST_STEPS
    pair = 2 * facts.run.startup_s + size.steps * facts.steps.mean_s * 1.5
    shortest = (size.seeds, size.steps) == (seeds, FEWEST_STEPS)
    assert shortest or size.seeds * pair <= time_s + 1e-6


def test_bits_are_compared_past_an_epochs_end_where_there_is_time() -> None:
    """What is kept of an epoch, or lasts, is at work in the next."""
    facts = msgspec.structs.replace(
        IMAGES, input=msgspec.structs.replace(IMAGES.input, batches=100)
    )
    whole = 2 * (facts.run.startup_s + (facts.run.validation_s or 0.0) + 112 * facts.steps.mean_s)
    assert equal_steps(facts, 1.1 * whole) == 112
    assert equal_steps(facts, 0.9 * whole) == EQUAL_STEPS
    unknown = msgspec.structs.replace(
        IMAGES, input=msgspec.structs.replace(IMAGES.input, batches=None)
    )
    assert equal_steps(unknown, 1e9) == EQUAL_STEPS


def test_time_goes_into_seeds_first() -> None:
    pair = 2 * IMAGES.run.startup_s + FEWEST_STEPS * IMAGES.steps.mean_s * 1.5
    few = size_of(IMAGES, [], [HALF], 5.5 * pair, 3)
    assert few.seeds == 5
    assert few.steps > FEWEST_STEPS
    assert size_of(IMAGES, [], [HALF], 8 * pair + 1, 3).seeds == MOST_SEEDS


CACHE = Trial(
    "cache_samples",
    {"limit_mib": 64},
    "exact",
    Gain(9, 8, 10),
    Gain(12.0, 11, 13),
    True,
    "measured",
)
COMPILED = msgspec.structs.replace(HALF, remedy="compile_model", settings={})


@given(time_s=st.floats(50, 5000), batches=st.integers(10, 400), micro=st.integers(1, 8))
def test_caches_are_filled_anew_in_each_run_of_a_proof(
    time_s: float, batches: int, micro: int
) -> None:
    """Their first epoch is as slow as without them, on both sides."""
    facts = msgspec.structs.replace(
        IMAGES,
        input=msgspec.structs.replace(IMAGES.input, batches=batches),
        steps=msgspec.structs.replace(IMAGES.steps, micro_steps=micro),
        run=msgspec.structs.replace(IMAGES.run, total_steps=100_000),
    )
    size, epoch = size_of(facts, [CACHE], [HALF], time_s, 3), epoch_of(facts)
    assert epoch == -(-batches // micro)
    cold = min(size.steps, epoch)
    base = facts.steps.mean_s * (cold + (size.steps - cold) / 12)
    whole = size.seeds * (2 * facts.run.startup_s + base * 1.5)
    assert (size.seeds, size.steps) == (3, FEWEST_STEPS) or whole <= time_s * (1 + 1e-9)


def test_compiling_is_a_part_of_a_proof() -> None:
    pair = 2 * IMAGES.run.startup_s + FEWEST_STEPS * IMAGES.steps.mean_s * 1.5
    assert size_of(IMAGES, [], [HALF], 8 * pair + 1, 3).seeds == 8
    assert size_of(IMAGES, [], [COMPILED], 8 * (pair + COMPILE_S[1]) - 1, 3).seeds == 7
    longer = time_for_proof(IMAGES, [COMPILED], 3) - time_for_proof(IMAGES, [HALF], 3)
    assert longer == pytest.approx(3 * COMPILE_S[1])


@pytest.mark.parametrize(
    ("name", "settings", "wanted"),
    [
        ("cache_decoded", {"limit_mib": 64}, True),
        ("cache_samples", {"limit_mib": 64}, True),
        ("slice_batches", {}, False),
        ("decode_jpeg", {}, False),
    ],
)
def test_what_gives_nothing_before_data_are_met_again(
    name: str, settings: Settings, wanted: bool
) -> None:
    gain = Gain(1.5, 1.4, 1.6)
    assert only_caches(Trial(name, settings, "exact", gain, gain, True, "")) is wanted


def accepted(name: str, keeps: Any) -> Trial:
    gain = Gain(1.5, 1.4, 1.6, "measured")
    return Trial(name, {}, keeps, gain, gain, True, "measured 1.50x")


@pytest.mark.parametrize(
    ("equal", "proven", "kept"),
    [
        (True, True, ["no_sync_items", "bf16", "set_to_none"]),
        (True, False, ["no_sync_items"]),
        (False, True, []),
    ],
)
def test_what_was_measured_on_top_of_what_is_left_out_is_left_out_too(
    equal: bool, proven: bool, kept: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its gain was over another script: beside the plain one it may be slower."""
    monkeypatch.setattr(proofs, "prove_equal", lambda *_: Proof(True, equal, reason="they differ"))
    monkeypatch.setattr(proofs, "prove", lambda *_, **__: Proof(False, proven, seeds=3))
    trials = [
        accepted("no_sync_items", "exact"),
        accepted("bf16", "numerics"),
        accepted("set_to_none", "exact"),
    ]
    proof, found = prove_recipe(
        lambda *_: 0,
        IMAGES,
        trials,
        folder=tmp_path,
        time_s=100.0,
        seeds=3,
        margin=0.01,
        tell=lambda *_: None,
    )
    assert [t.remedy for t in found if t.accepted] == kept
    assert proof is not None
    assert proof.proven == bool(kept)
    if len(kept) == 1:
        assert found[2].reason == "measured 1.50x, on top of bf16, which is left out"


def test_where_nothing_is_left_nothing_is_proven(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What keeps the bits was measured on top of what could not be proven."""
    monkeypatch.setattr(proofs, "prove_equal", lambda *_: Proof(True, True))
    monkeypatch.setattr(proofs, "prove", lambda *_, **__: Proof(False, False, seeds=3))
    trials = [accepted("bf16", "numerics"), accepted("set_to_none", "exact")]
    given: dict[str, Any] = {"time_s": 100.0, "seeds": 3, "margin": 0.01}
    proof, found = prove_recipe(
        lambda *_: 0, IMAGES, trials, folder=tmp_path, tell=lambda *_: None, **given
    )
    assert not any(t.accepted for t in found)
    assert proof is not None
    assert not proof.proven

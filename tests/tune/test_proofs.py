"""How large a proof is, and what it runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outpace.records.evidence import Evidence
from outpace.records.gain import Gain
from outpace.records.run import Recurring
from outpace.records.trial import Proof, Settings, Trial
from outpace.remedies.compile_model import COMPILE_S
from outpace.tune import proofs
from outpace.tune.files import LOSSES, STATUS, write
from outpace.tune.proofs import (
    EQUAL_STEPS,
    MOST_SEEDS,
    equal_steps,
    only_caches,
    prove_recipe,
    size_of,
    time_for_proof,
    with_last_s,
)
from outpace.tune.prove import FEWEST_STEPS
from outpace.tune.run_time import between_s, epoch_of, run_s
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

GIVEN: dict[str, Any] = {"seeds": 3, "margin": 0.01, "tell": lambda *_: None}


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


LATE = ["loader_workers", "threads"]


@pytest.mark.parametrize(
    ("proven", "time_s", "kept", "said"),
    [
        ([True, True], 2_000.0, ["bf16", *LATE], ""),
        ([True, False], 2_000.0, ["bf16"], "no proof that quality is kept (loss at most 2"),
        ([True], 0.0, ["bf16"], "no proof that quality is kept (there was no time left for it"),
        ([False], 2_000.0, [], "on top of bf16, which is left out"),
    ],
)
def test_other_random_numbers_take_what_was_measured_before_not_with_them(
    proven: list[bool],
    time_s: float,
    kept: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They are harder to prove than other sums. The script's own runs are made once."""
    sizes: list[float] = []
    ran: list[tuple[str, ...]] = []
    answers = iter(proven)

    def proved(run: Any, *, steps: int, **_: Any) -> Proof:
        sizes.append(steps)
        for seed in range(2):
            run(seed, False, steps)
            run(seed, True, steps)
        return Proof(True, next(answers), seeds=2, measure="loss", difference=0.0, high=0.02)

    def launch(entry: str, spec: Mapping[str, Any], folder: Path, env: Mapping[str, str]) -> int:
        ran.append(tuple(one["name"] for one in spec["remedies"]))
        return 1

    monkeypatch.setattr(proofs, "prove", proved)
    data = msgspec.structs.replace(IMAGES.input, deterministic=False)
    facts = msgspec.structs.replace(IMAGES, input=data)
    settings: dict[str, Settings] = {"loader_workers": {"workers": 2}, "threads": {"threads": 1}}
    trials = [
        msgspec.structs.replace(accepted(name, "numerics"), settings=settings.get(name, {}))
        for name in ("bf16", *LATE)
    ]
    proof, found = prove_recipe(launch, facts, trials, folder=tmp_path, time_s=time_s, **GIVEN)
    assert proof is not None
    assert proof.proven == bool(kept)
    assert [t.remedy for t in found if t.accepted] == kept
    assert ran.count(()) == 2
    assert ran.count(("bf16",)) == 2
    assert ran.count(("bf16", *LATE)) == 2 * (len(proven) - 1)
    if time_s:
        assert sizes[0] < size_of(facts, [], trials[:1], time_s, 3).steps
    assert said in found[1].reason


@pytest.mark.parametrize("times", [1.0, 2.0, 4.0])
def test_in_the_time_that_is_taken_for_it_all_can_be_proven(
    times: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock goes on by what runs take."""
    now = [0.0]
    monkeypatch.setattr(proofs, "monotonic", lambda: now[0])
    data = msgspec.structs.replace(IMAGES.input, deterministic=False)
    facts = msgspec.structs.replace(IMAGES, input=data)
    workers = msgspec.structs.replace(
        accepted("loader_workers", "numerics"), settings={"workers": 2}
    )
    trials = [accepted("bf16", "numerics"), workers]

    def proved(run: Any, *, seeds: int, steps: int, most_seeds: int, **_: Any) -> Proof:
        for seed in range(seeds):
            run(seed, False, steps)
            run(seed, True, steps)
        return Proof(True, True, seeds=seeds)

    def launch(entry: str, spec: Mapping[str, Any], folder: Path, env: Mapping[str, str]) -> int:
        faster = 1.5 ** len(spec["remedies"])
        plain = run_s(facts, spec["stop_after"])
        now[0] += plain - spec["stop_after"] * facts.steps.mean_s * (1 - 1 / faster)
        return 1

    monkeypatch.setattr(proofs, "prove", proved)
    time_s = times * with_last_s(facts, 3)
    proof, found = prove_recipe(launch, facts, trials, folder=tmp_path, time_s=time_s, **GIVEN)
    assert proof is not None
    assert proof.proven
    assert all(t.accepted for t in found)
    assert now[0] < 1.1 * time_s


def validating(every: int, each_s: float) -> Evidence:
    came = Recurring("validation", each_s, 2, every, every)
    run = msgspec.structs.replace(IMAGES.run, recurring=(came,), total_steps=100_000)
    return msgspec.structs.replace(IMAGES, run=run)


@given(time_s=st.floats(0, 20_000), every=st.integers(20, 400), each_s=st.floats(0, 500))
def test_validations_are_a_part_of_a_proof(time_s: float, every: int, each_s: float) -> None:
    """One of ten minutes in each of six runs would be an hour that nobody had asked for."""
    facts = validating(every, each_s)
    size = size_of(facts, [], [HALF], time_s, 3)
    pair = 2 * facts.run.startup_s + size.steps * facts.steps.mean_s * 1.5
    pair += 2 * between_s(facts, size.steps)
    assert (size.seeds, size.steps) == (3, FEWEST_STEPS) or size.seeds * pair <= time_s + 1e-6


def test_a_proof_ends_before_a_validation_that_is_too_dear() -> None:
    time_s = MOST_SEEDS * (2 * IMAGES.run.startup_s + 200 * IMAGES.steps.mean_s * 1.5)
    assert size_of(validating(71, 1e4), [], [HALF], time_s, 3).steps == 70
    shorter = time_for_proof(validating(71, 50.0), [HALF], 3)
    assert time_for_proof(validating(30, 50.0), [HALF], 3) == pytest.approx(shorter + 3 * 2 * 100)


def losses_of(culprit: str, ran: list[list[str]]) -> Any:
    """A launch whose losses are others under one remedy."""

    def launch(entry: str, spec: Mapping[str, Any], folder: Path, env: Mapping[str, str]) -> int:
        names = [one["name"] for one in spec["remedies"]]
        ran.append(names)
        count = spec["stop_after"]
        values = [1.0 + (culprit in names and step >= 3) for step in range(count)]
        times = [0.1] * count
        told = {"samples": [*range(count)], "values": values, "state": 7}
        write(folder / LOSSES, {**told, "seconds": times, "cpu_seconds": times})
        return 0

    return launch


EXACT = ("set_to_none", "slice_batches", "fused_optimizer", "no_sync_items")


@pytest.mark.parametrize(
    ("culprit", "kept"), [("slice_batches", 1), ("no_sync_items", 3), ("set_to_none", 0)]
)
def test_a_remedy_that_breaks_the_bits_leaves_those_before_it(
    culprit: str, kept: int, tmp_path: Path
) -> None:
    ran: list[list[str]] = []
    trials = [accepted(name, "exact") for name in EXACT]
    launch = losses_of(culprit, ran)
    proof, found = prove_recipe(launch, IMAGES, trials, folder=tmp_path, time_s=1000.0, **GIVEN)
    assert [t.remedy for t in found if t.accepted] == list(EXACT[:kept])
    assert proof is not None
    assert proof.proven is bool(kept)
    assert not kept or f"not so with {culprit}, left out" in proof.reason
    said = "left out: the recipe should keep the bits, but losses differ from step 3 on"
    assert found[kept].reason == said
    on_top = f"on top of {culprit}, which is left out"
    assert all(t.reason.endswith(on_top) for t in found[kept + 1 :])
    assert len(ran) == 5, "the script as it is runs twice, and then no more"


def test_where_time_is_over_remedies_are_said_to_be_compared_together(tmp_path: Path) -> None:
    ran: list[list[str]] = []
    trials = [accepted(name, "exact") for name in EXACT]
    launch = losses_of("slice_batches", ran)
    proof, found = prove_recipe(launch, IMAGES, trials, folder=tmp_path, time_s=0.0, **GIVEN)
    assert len(ran) == 3
    assert not any(t.accepted for t in found)
    assert found[0].reason.endswith(f"; {', '.join(EXACT)} were compared together")
    assert proof is not None
    assert not proof.proven


@pytest.mark.parametrize(
    ("within", "share"), [(True, 0.8), (True, 1.0), (False, 0.8), (False, 0.0)]
)
def test_a_proof_that_would_take_longer_than_was_given_is_not_begun(
    within: bool, share: float, tmp_path: Path
) -> None:
    """What keeps the bits is proven, and stays; where nobody gave a time the shortest proof is made."""
    ran: list[list[str]] = []
    trials = [accepted("set_to_none", "exact"), accepted("bf16", "numerics")]
    proof, found = prove_recipe(
        losses_of("bf16", ran),
        IMAGES,
        trials,
        folder=tmp_path,
        time_s=share * time_for_proof(IMAGES, trials[1:], 3),
        within=within,
        **GIVEN,
    )
    begun = not within or share == 1.0
    assert any("bf16" in names for names in ran) is begun
    assert [t.remedy for t in found if t.accepted] == ["set_to_none"]
    assert proof is not None
    assert proof.proven
    assert ("of --time was left" in found[1].reason) is not begun
    assert ("of --time was left" in proof.reason) is not begun


def test_a_run_that_hangs_is_told(tmp_path: Path) -> None:
    def launch(entry: str, spec: Mapping[str, Any], folder: Path, env: Mapping[str, str]) -> int:
        assert spec["silent_s"] > 60
        write(folder / STATUS, {"hung": spec["silent_s"]})
        return 143

    proof, _ = prove_recipe(launch, IMAGES, [HALF], folder=tmp_path, time_s=10.0, **GIVEN)
    assert proof is not None
    assert proof.reason.startswith("a run of the proof hung for 2m")


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

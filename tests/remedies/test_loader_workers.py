from __future__ import annotations

import pytest

from outpace.records.evidence import Evidence
from outpace.remedies.loader_workers import LARGE, RUNS_ANEW, LoaderWorkers
from outpace.remedies.model import MAPPED
from outpace.seams.setup import AS_IS
from tests.remedies.some_evidence import WORKERS, arm, replace

REMEDY = LoaderWorkers()


def made(batch_bytes: int, *, pinned: bool = False) -> Evidence:
    """By one worker, whose batches take a millisecond each, and far longer on their way."""
    way_s = 1e-9 * batch_bytes
    data = replace(
        WORKERS.input,
        sample_bytes=batch_bytes // WORKERS.input.batch_size,
        fetch_s=0.001 + way_s,
        fetch_cpu_s=0.001 + way_s,
        made_here_s=0.001,
        storage_s=0.0,
        pinned=pinned,
    )
    return replace(WORKERS, input=data, arms=(arm("input_free", 5.0, 0.001, "as_is"),))


def test_large_batches_of_workers_get_places_even_where_workers_stay_as_many() -> None:
    evidence = made(1 << 24)
    settings = REMEDY.settings(evidence)
    assert settings["place_bytes"] == 1 << 24
    assert REMEDY.setup(AS_IS, settings).feed.place_bytes == 1 << 24
    same = {**settings, "workers": 1}
    assert same in REMEDY.alternatives(evidence)
    own = {key: value for key, value in same.items() if key != "place_bytes"}
    gains = [REMEDY.predict(evidence, each).speedup for each in (same, own)]
    assert gains[0] > 1.1 * gains[1]


@pytest.mark.parametrize("evidence", [made(LARGE // 2), made(1 << 24, pinned=True)])
def test_small_and_pinned_batches_have_memory_of_their_own(evidence: Evidence) -> None:
    assert not any("place_bytes" in settings for settings in REMEDY.alternatives(evidence))


def test_batches_that_the_allocator_maps_anew_gain_less() -> None:
    settings = {"workers": 1, "place_bytes": 1}
    gains = [REMEDY.predict(made(size), settings).speedup for size in (MAPPED - 64, MAPPED)]
    assert gains[0] > 1.2 * gains[1] > 1.2


def test_no_workers_where_each_would_train_too() -> None:
    data = replace(WORKERS.input, runs_anew=True)
    assert REMEDY.applies(replace(WORKERS, input=data)).reason != RUNS_ANEW, "it has some already"
    found = replace(WORKERS, input=replace(data, workers=0))
    assert REMEDY.applies(found).reason == RUNS_ANEW


def test_workers_that_the_script_keeps_are_kept() -> None:
    source = (
        "from torch.utils.data import DataLoader\n"
        "loader = DataLoader(data, num_workers=2, persistent_workers=True)\n"
        "for epoch in range(9):\n    data.set_epoch(epoch)\n    for x in loader:\n        pass\n"
    )
    for persistent in (True, False):
        data = replace(WORKERS.input, where="train.py:2", persistent=persistent)
        changed = REMEDY.edit(source, replace(WORKERS, input=data), {"workers": 1})
        assert ("persistent_workers=True" in changed) is persistent

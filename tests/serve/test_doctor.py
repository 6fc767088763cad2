"""A DataLoader's faults are found in real workers, and healthy twins are left in peace."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, get_worker_info

from outpace.diagnose.bottlenecks import findings
from outpace.diagnose.learning import learning
from outpace.measure.generators import random_states
from outpace.measure.workers import private_bytes
from outpace.records.input import Input
from outpace.seams.generators import moved
from outpace.serve.doctor import (
    expected_distinct,
    loading_facts,
    shuffle_score,
    worker_seeds,
)
from tests.conftest import plainly
from tests.remedies.some_evidence import IMAGES

replace = msgspec.structs.replace


class Noisy(Dataset[Any]):
    """Adds noise by one of the packages' generators."""

    def __init__(self, draw: Callable[[], Any] = np.random.rand) -> None:
        self.draw = draw

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> float:
        return index + float(self.draw())


class Own(Dataset[Any]):
    """Adds noise by a generator of its own."""

    def __init__(self, generator: Any = None, *, uses: bool = True) -> None:
        self.rng = np.random.default_rng(0) if generator is None else generator
        self.uses = uses

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> float:
        return index + float(self.rng.random() if self.uses else 0.0)


class ByIndex(Noisy):
    """Seeds numpy anew for each sample: meant to be the same in every worker and epoch."""

    def __getitem__(self, index: int) -> float:
        np.random.seed(index)
        return super().__getitem__(index)


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[float]:
        while True:
            yield float(np.random.rand())


def seed_numpy(worker: int) -> None:
    np.random.seed(0)


def seed_apart(worker: int) -> None:
    np.random.seed(worker)
    random.seed(worker)


def seed_own(worker: int) -> None:
    info = get_worker_info()
    assert info is not None
    info.dataset.rng = np.random.default_rng(info.seed)  # type: ignore[attr-defined]


def faulty(dataset: Dataset[Any], init: Any = None, **more: Any) -> tuple[str, ...]:
    found = worker_seeds(DataLoader(dataset, num_workers=2, worker_init_fn=init, **more))
    assert found is not None
    return found.faulty


def test_one_numpy_seed_in_all_workers() -> None:
    assert faulty(Noisy(), seed_numpy) == ("numpy",)


def test_what_is_found_is_what_workers_draw() -> None:
    """The fault is real: batches of two workers, one sample each, have the same noise."""
    loader = DataLoader(Noisy(), num_workers=2, worker_init_fn=seed_numpy)
    noise = [float(batch) % 1 for batch in loader]
    assert noise[0] == pytest.approx(noise[1], abs=1e-6)


@pytest.mark.parametrize("draw", [np.random.rand, random.random, lambda: torch.rand(1)])
@pytest.mark.parametrize("init", [None, seed_apart])
def test_healthy_workers(draw: Callable[[], Any], init: Any) -> None:
    assert faulty(Noisy(draw), init) == ()


def test_a_seed_of_what_no_sample_uses_does_no_harm() -> None:
    found = worker_seeds(DataLoader(Noisy(random.random), num_workers=2, worker_init_fn=seed_numpy))
    assert found is not None
    assert (found.same, found.faulty) == (("numpy",), ())


@pytest.mark.parametrize(
    "generator", [np.random.default_rng(3), np.random.RandomState(3), random.Random(3)]
)
def test_a_generator_of_the_data_set_is_copied_into_each_worker(generator: Any) -> None:
    assert faulty(Own(generator)) == (".rng",)


def test_a_generator_that_is_seeded_in_the_worker() -> None:
    assert faulty(Own(), seed_own) == ()


def test_a_generator_that_no_sample_uses() -> None:
    assert faulty(Own(uses=False)) == ()


def test_samples_that_are_seeded_by_their_index() -> None:
    assert faulty(ByIndex(), seed_numpy) == ()


def test_iterable_data_sets() -> None:
    assert faulty(Stream(), seed_numpy) == ("numpy",)
    assert faulty(Stream()) == ()


SPAWNED = """
import numpy as np
from torch.utils.data import DataLoader, Dataset
from outpace.serve.doctor import worker_seeds

class Own(Dataset):
    def __init__(self):
        self.rng = np.random.default_rng(0)

    def __len__(self):
        return 64

    def __getitem__(self, index):
        return index + self.rng.random()

if __name__ == "__main__":
    print(worker_seeds(DataLoader(Own(), num_workers=2, multiprocessing_context="spawn")).faulty)
"""


@pytest.mark.slow
def test_spawned_workers(script: Callable[[str], Path]) -> None:
    done = plainly(script(SPAWNED))
    assert done.stdout == "('.rng',)\n", done.stderr


def test_trying_changes_nothing_here_and_says_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    def talkative(worker: int) -> None:
        print("worker", worker, flush=True)
        os.write(2, b"worker\n")

    dataset, chosen = Own(), torch.Generator().manual_seed(5)
    loader = DataLoader(dataset, num_workers=2, worker_init_fn=talkative, generator=chosen)
    before, own, seed = random_states(), dataset.rng.bit_generator.state, chosen.get_state()
    assert worker_seeds(loader) is not None
    assert moved(before, random_states()) == set()
    assert dataset.rng.bit_generator.state == own
    assert torch.equal(chosen.get_state(), seed)
    assert loader._iterator is None
    assert capfd.readouterr() == ("", "")


def test_workers_that_cannot_be_tried() -> None:
    def fails(worker: int) -> None:
        raise OSError("no such disk")

    def hangs(worker: int) -> None:
        while True:
            os.sched_yield()

    assert worker_seeds(DataLoader(Noisy(), num_workers=2, worker_init_fn=fails)) is None
    stuck = DataLoader(Noisy(), num_workers=2, worker_init_fn=hangs)
    assert worker_seeds(stuck, seconds=0.5) is None


class Broken(Own):
    def __getitem__(self, index: int) -> float:
        raise RuntimeError("no sample")


def test_samples_that_cannot_be_drawn_accuse_no_generator_of_the_data_set() -> None:
    assert faulty(Broken()) == ()
    assert faulty(Broken(), seed_numpy) == ("numpy",)


# --- what goes into the evidence ---------------------------------------------------------------------


class Listed(Dataset[Any]):
    def __init__(self, names: Any) -> None:
        self.names = names

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> int:
        return len(str(self.names[index]))


NAMES = [f"photos/2024/holiday/picture-{i:07d}.jpg" for i in range(200_000)]


def test_facts_are_fields_of_the_evidence() -> None:
    facts = loading_facts(DataLoader(Listed(NAMES), num_workers=2, worker_init_fn=seed_numpy))
    found = Input(**facts)
    assert found.copied_holder == ".names"
    assert found.copied_objects == pytest.approx(200_000, rel=0.01)
    assert found.same_draws == ()
    assert loading_facts(DataLoader(Listed(NAMES))) == {}
    packed = Input(**loading_facts(DataLoader(Listed(np.array(NAMES)), num_workers=2)))
    assert packed.copied_bytes < 10_000
    spawned = DataLoader(Listed(NAMES), num_workers=2, multiprocessing_context="spawn")
    assert Input(**loading_facts(spawned)).copied_bytes == 0


def test_workers_are_tried_only_where_there_is_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[Any] = []
    monkeypatch.setattr("outpace.serve.doctor.worker_seeds", tried.append)
    loading_facts(DataLoader(Noisy(), num_workers=2))
    loading_facts(DataLoader(TensorDataset(torch.zeros(8, 2)), num_workers=2))
    loading_facts(DataLoader(Own(), num_workers=1))
    assert tried == []
    loading_facts(DataLoader(Own(), num_workers=2))
    assert len(tried) == 1


class Measured(Listed):
    """Tells what the worker owns at its first and its last sample."""

    def __getitem__(self, index: int) -> int:
        if index in (0, len(self.names) - 1):
            return private_bytes(os.getpid()) or 0
        return super().__getitem__(index)


@pytest.mark.slow
def test_the_estimate_is_near_what_a_worker_comes_to_own() -> None:
    dataset = Measured(list(NAMES))
    estimate = loading_facts(DataLoader(dataset, num_workers=1))["copied_bytes"]
    told = torch.cat(list(DataLoader(dataset, batch_size=5000, num_workers=1)))
    first, last = int(told[0]), int(told[-1])
    if not first:
        pytest.skip("this system does not tell what a process owns")
    assert last - first == pytest.approx(estimate, rel=0.5)


def rules(**facts: Any) -> list[str]:
    return [told.rule for told in learning(replace(IMAGES, input=replace(IMAGES.input, **facts)))]


def test_workers_that_draw_alike_are_told() -> None:
    assert "same_random_numbers" in rules(workers=2, same_draws=("numpy",))
    assert "same_random_numbers" in rules(workers=2, same_draws=("numpy", ".rng"))
    assert "same_random_numbers" not in rules(workers=1, same_draws=("numpy",))
    assert "same_random_numbers" not in rules(workers=2)


def leaks(**facts: Any) -> list[str]:
    evidence = replace(IMAGES, input=replace(IMAGES.input, **facts))
    return [found.reason for found in findings(evidence) if found.cause == "leak"]


def test_objects_that_workers_will_copy_are_told() -> None:
    """The machine of this evidence has 24 GiB."""
    large = {"copied_bytes": 2**30, "copied_objects": 10**7, "copied_holder": ".samples"}
    (reason,) = leaks(workers=4, **large)
    assert ".samples holds some 10,000,000, 1024 MiB" in reason
    assert leaks(workers=2, **large) == []
    assert leaks(workers=0, **large) == []
    (measured,) = leaks(workers=2, worker_growth_bytes=1e6, **large)
    assert ".samples" in measured
    (other,) = leaks(workers=2, worker_growth_bytes=1e6, copied_bytes=4096, copied_objects=50)
    assert "holds some" not in other


# --- shuffling ---------------------------------------------------------------------------------------


def test_expected_classes_by_simulation() -> None:
    counts = [100, 50, 10, 3, 1, 1]
    labels = np.repeat(np.arange(len(counts)), counts)
    chooser = np.random.default_rng(0)
    drawn = [len(set(chooser.choice(labels, 16, replace=False))) for _ in range(4000)]
    assert expected_distinct(counts, 16) == pytest.approx(np.mean(drawn), rel=0.01)
    assert expected_distinct(counts, 165) == pytest.approx(6)
    assert expected_distinct(counts, 1000) == pytest.approx(6)
    assert expected_distinct([10**6] * 1000, 64) == pytest.approx(62.03, abs=0.01)


def sorted_by_class(classes: int = 20, each: int = 50) -> TensorDataset:
    labels = torch.arange(classes).repeat_interleave(each)
    return TensorDataset(torch.zeros(len(labels), 3), labels)


def test_sorted_data_and_its_shuffled_twin() -> None:
    dataset = sorted_by_class()
    unmixed = shuffle_score(DataLoader(dataset, batch_size=50))
    assert unmixed.distinct == 1.0
    assert unmixed.share < 0.1
    mixed = shuffle_score(DataLoader(dataset, batch_size=50, shuffle=True))
    assert mixed.share == pytest.approx(1.0, abs=0.05)
    assert mixed.batches == 20


def test_a_shuffle_within_a_small_buffer_is_half_a_shuffle() -> None:
    chooser = np.random.default_rng(0)
    labels = np.repeat(np.arange(20), 50)
    near = np.concatenate([chooser.permutation(labels[i : i + 200]) for i in range(0, 1000, 200)])
    found = shuffle_score(near.reshape(-1, 50))
    assert 0.15 < found.share < 0.4


def test_part_of_an_epoch_needs_the_counts() -> None:
    dataset = sorted_by_class()
    loader = DataLoader(dataset, batch_size=50)
    assert shuffle_score(loader, most=1).share == 1.0, "one class is all that was seen"
    assert shuffle_score(loader, [50] * 20, most=1).share < 0.1
    assert shuffle_score(loader, {"cat": 50, "dog": 950}, most=1).share < 0.6


@pytest.mark.parametrize(
    "batches",
    [
        [[1, 2], [3, 1]],
        [np.array([1, 2]), np.array([3, 1])],
        [("x", [1, 2]), ("x", [3, 1])],
        [{"jpg": b"", "cls": torch.tensor([1, 2])}, {"jpg": b"", "cls": torch.tensor([3, 1])}],
        [["a", "b"], ["c", "a"]],
        [[np.int64(1), np.int64(2)], [np.int64(3), np.int64(1)]],
    ],
)
def test_labels_in_many_forms(batches: list[Any]) -> None:
    assert shuffle_score(batches).distinct == 2.0


def test_labels_that_are_not_found() -> None:
    with pytest.raises(ValueError, match="label="):
        shuffle_score([{"image": 1}])
    assert shuffle_score([{"image": [1, 2]}], label=lambda b: b["image"]).distinct == 2.0
    with pytest.raises(ValueError, match="no labels"):
        shuffle_score([])


# --- shards ------------------------------------------------------------------------------------------

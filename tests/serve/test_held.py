from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset

from outpace.errors import UsageError
from outpace.serve.held import in_words
from outpace.serve.loader import Loader
from outpace.serve.worker_seeds import text_of

SIZE = 40
GENERATORS: dict[str, Callable[[], Any]] = {
    "numpy": lambda: np.random.default_rng(0),
    "numpy as it was": lambda: np.random.RandomState(0),
    "python": lambda: random.Random(0),
    "torch": lambda: torch.Generator().manual_seed(0),
}


def draw(generator: Any) -> float:
    if isinstance(generator, torch.Generator):
        return float(torch.rand((), generator=generator, dtype=torch.float64))
    return float(generator.random())


class Own:
    """Samples whose noise comes from a generator of the data set's own."""

    def __init__(self, generator: Any, *, draws: bool = True) -> None:
        self.rng, self.draws = generator, draws

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, index: int) -> tuple[int, float]:
        return index, index + (draw(self.rng) if self.draws else 0.0)


class Noise:
    """A transform with one."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)

    def __call__(self, sample: tuple[int, float]) -> tuple[int, float]:
        return sample[0], sample[1] + self.rng.random()


def epochs(batches: Iterator[Any]) -> list[tuple[int, float]]:
    return [row for i, x in batches for row in zip(i.tolist(), x.tolist(), strict=True)]


@pytest.mark.parametrize("kind", GENERATORS)
def test_samples_are_the_same_whoever_makes_them(kind: str) -> None:
    found = []
    for executor, workers in (("none", 0), ("processes", 1), ("processes", 2)):
        source: Any = Own(GENERATORS[kind]())
        with closing(Loader(source, 6, executor=executor, workers=workers)) as loader:  # type: ignore[arg-type]
            found.append((epochs(iter(loader)), epochs(iter(loader))))
            assert loader.maker.streams == ("source.rng",)
        assert text_of(source.rng) == text_of(GENERATORS[kind]())
    assert found[0] == found[1] == found[2]
    first, second = found[0]
    assert dict(first).keys() == dict(second).keys() == set(range(SIZE))
    assert all(0 <= x - i < 1 for i, x in first)
    assert dict(first) != dict(second)
    assert len({round(x - i, 9) for i, x in first}) == SIZE


class Late(Own):
    """Its generator is made with the first sample, and is another one in each process."""

    def __init__(self) -> None:
        super().__init__(None)

    def __getitem__(self, index: int) -> tuple[int, float]:
        self.rng = self.rng or np.random.default_rng()
        return super().__getitem__(index)


def test_a_generator_that_is_made_with_the_first_sample_is_seeded_too() -> None:
    found = []
    for executor, workers in (("none", 0), ("processes", 1), ("processes", 2)):
        with closing(Loader(Late(), 6, executor=executor, workers=workers)) as loader:  # type: ignore[arg-type]
            found.append((epochs(iter(loader)), epochs(iter(loader))))
            assert loader.maker.streams == ("source.rng",)
    assert found[0] == found[1] == found[2]
    assert len({round(x - i, 9) for i, x in found[0][0]}) == SIZE


class ByEpoch(Own):
    """Has another generator in each epoch."""

    def __init__(self) -> None:
        super().__init__(np.random.default_rng(0))

    def set_epoch(self, epoch: int) -> None:
        self.rng = np.random.default_rng(epoch)


def test_one_that_takes_the_place_of_another_is_seeded_too() -> None:
    """Workers that were begun for it drew the same noise, each from its copy."""
    found = []
    for executor, workers in (("none", 0), ("processes", 1), ("processes", 2)):
        source: Any = ByEpoch()
        rows: list[tuple[int, float]] = []
        with closing(Loader(source, 6, executor=executor, workers=workers)) as loader:  # type: ignore[arg-type]
            for epoch in range(3):
                source.set_epoch(epoch)
                rows += epochs(iter(loader))
        found.append(rows)
    assert found[0] == found[1] == found[2]
    assert len({round(x - i, 9) for i, x in found[0]}) == 3 * SIZE


class Later(Own):
    """Draws from the process's generator once it is told to."""

    def __init__(self) -> None:
        super().__init__(None)
        self.augments = False

    def __getitem__(self, index: int) -> tuple[int, float]:
        np.linalg.inv(np.eye(40))  # long enough for threads to be worth it
        return index, index + (random.random() if self.augments else 0.0)


def test_samples_that_begin_to_draw_are_taken_from_threads() -> None:
    source: Any = Later()
    found = []
    for executor, workers in (("none", 0), ("auto", 2)):
        source = Later()
        with closing(Loader(source, 6, executor=executor, workers=workers)) as loader:  # type: ignore[arg-type]
            epochs(iter(loader))
            assert loader.maker.streams == ()
            source.augments = True
            before = random.getstate()
            found.append(epochs(iter(loader)))
            assert random.getstate() == before, "the training's own numbers"
            assert loader.maker.streams == ("python",)
            assert loader.choice is not None
            assert loader.choice.kind != "threads"
    assert found[0] == found[1]
    asked = Loader(Later(), 6, executor="threads", workers=2)
    with closing(asked):
        epochs(iter(asked))
        asked.source.augments = True
        with pytest.raises(UsageError, match="which threads would share"):
            list(asked)


def test_they_go_on_exactly_with_another_batch_size() -> None:
    whole = epochs(iter(Loader(Own(np.random.default_rng(0)), 6, executor="none")))
    begun = Loader(Own(np.random.default_rng(0)), 6, executor="none")
    next(iter(begun))
    again = Loader(Own(np.random.default_rng(9)), 5, executor="none")
    again.load_state_dict(begun.state_dict())
    assert epochs(iter(again)) == whole[6:]


def test_one_in_a_transform_is_found() -> None:
    source, noise = Own(None, draws=False), Noise()
    loader = Loader(source, 6, transform=noise, executor="none")
    assert len(epochs(iter(loader))) == SIZE
    assert loader.maker.streams == ("transform.rng",)
    with pytest.raises(UsageError, match=r"samples draw from transform\.rng, which threads would"):
        next(iter(Loader(source, 6, transform=noise, executor="threads")))


def test_one_that_is_not_drawn_from_is_left_alone() -> None:
    source = Own(np.random.default_rng(0), draws=False)
    with closing(Loader(source, 6, executor="threads", workers=2)) as loader:
        assert len(epochs(iter(loader))) == SIZE
        assert loader.maker.streams == ()


def test_they_are_told_in_words() -> None:
    assert in_words(["numpy"]) == "the process's numpy generator"
    assert in_words(["numpy", "python"]) == "the process's numpy and python generators"
    assert in_words(["python", "source.rng"]) == "the process's python generator and source.rng"


def test_generators_of_several_parts_are_each_found() -> None:
    """Though one name leads to them."""
    found = []
    for executor, workers in (("none", 0), ("processes", 2)):
        parts: Any = [Own(np.random.default_rng(0)), Own(np.random.default_rng(1))]
        with closing(Loader(ConcatDataset(parts), 6, executor=executor, workers=workers)) as loader:  # type: ignore[arg-type]
            found.append([epochs(iter(loader)), epochs(iter(loader))])
            assert len(loader.maker.held) == 2
        assert [text_of(part.rng) for part in parts] == [
            text_of(np.random.default_rng(seed)) for seed in (0, 1)
        ]
    assert found[0] == found[1]


def test_a_generator_of_samples_that_were_not_looked_at_is_seeded_too() -> None:
    parts: Any = [Own(np.random.default_rng(seed)) for seed in range(12)]
    with closing(Loader(ConcatDataset(parts), 6, executor="none")) as loader:
        next(iter(loader))
        assert len(loader.maker.held) == 12

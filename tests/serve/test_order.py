from __future__ import annotations

import math
import pickle
import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from outpace.serve.order import CHUNK, Order, Repeated, generator, permuted, seed_process


@given(size=st.integers(1, 3000), seed=st.integers(0, 2**70), epoch=st.integers(0, 1000))
@settings(max_examples=60)
def test_every_sample_comes_once(size: int, seed: int, epoch: int) -> None:
    found = permuted(np.arange(size), size, seed, epoch)
    assert sorted(found.tolist()) == list(range(size))


@given(size=st.integers(2, 5000), start=st.integers(0, 4999), length=st.integers(1, 500))
@settings(max_examples=60)
def test_a_slice_is_a_slice_of_the_whole(size: int, start: int, length: int) -> None:
    start %= size
    stop = min(size, start + length)
    whole = permuted(np.arange(size), size, 3, 7)
    order = Order(size, 3, shuffle=True)
    assert order.indices(7, start, stop).tolist() == whole[start:stop].tolist()


@pytest.mark.parametrize("shuffle", [True, False])
def test_slices_of_any_stretch_are_those_of_the_whole(shuffle: bool) -> None:
    size = 3 * CHUNK + 5
    order = Order(size, 1, shuffle=shuffle)
    whole = permuted(np.arange(size), size, 1, 0) if shuffle else np.arange(size)
    for start in (0, 7, CHUNK - 3, 2 * CHUNK - 1, size - 7, 3):
        for length in (10, CHUNK + 1):
            stop = min(size, start + length)
            assert order.indices(0, start, stop).tolist() == whole[start:stop].tolist()


def test_what_many_batches_share_cannot_be_written_to() -> None:
    found = Order(100, 1, shuffle=True).indices(0, 0, 10)
    with pytest.raises(ValueError, match="read-only"):
        found[0] = 5


def by_hand(position: int, size: int, seed: int, epoch: int) -> int:
    """The index at a position, one number after the other."""
    a = math.isqrt(size - 1) + 1
    b = -(-size // a)
    key = np.array([seed % 2**64, epoch], dtype=np.uint64)
    counter = np.array([0, 0, 0, 2**64 - 1], dtype=np.uint64)
    keys = [int(k) for k in np.random.Philox(key=key, counter=counter).random_raw(8)]
    number = position
    while True:
        left, right = number % a, number // a
        for i, key in enumerate(keys):
            mixed = key ^ right
            for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
                mixed = (mixed ^ (mixed >> shift)) * factor % 2**64
            left, right = right, (left + (mixed >> 32)) % (b if i % 2 else a)
        number = right * a + left
        if number < size:
            return number


@given(size=st.integers(1, 10**8), seed=st.integers(0, 2**70), place=st.floats(0, 1))
@settings(max_examples=60)
def test_the_order_is_that_of_the_network_by_hand(size: int, seed: int, place: float) -> None:
    """So a state of an earlier version goes on with the same samples."""
    positions = np.array([0, int(place * (size - 1)), size - 1])
    found = permuted(positions, size, seed, 3)
    assert found.tolist() == [by_hand(int(p), size, seed, 3) for p in positions]


def test_an_epoch_as_it_has_been_since_the_first_version() -> None:
    assert permuted(np.arange(6), 1000, 3, 1).tolist() == [624, 146, 707, 961, 918, 564]
    assert permuted(np.array([0, 999_999]), 10**6, 0, 0).tolist() == [308_321, 940_883]


def test_past_the_end_it_begins_again() -> None:
    order = Order(10, 0, shuffle=True)
    first = order.indices(2, 0, 3).tolist()
    assert order.indices(2, 8, 13).tolist() == order.indices(2, 8, 10).tolist() + first


def test_epochs_and_seeds_differ() -> None:
    orders = {tuple(permuted(np.arange(50), 50, s, e)) for s in range(5) for e in range(5)}
    assert len(orders) == 25


@pytest.mark.parametrize("size", [3, 7, 64, 1000])
def test_each_place_is_as_likely(size: int) -> None:
    """Of one sample over many epochs, in eight bins: chi-square with 7 degrees of freedom, 1e-6."""
    epochs = 4000
    places = np.array([permuted(np.array([0]), size, 11, e)[0] for e in range(epochs)])
    bins = min(8, size)
    counts = np.bincount(places * bins // size, minlength=bins)
    expected = np.bincount(np.arange(size) * bins // size, minlength=bins) / size * epochs
    assert float(((counts - expected) ** 2 / expected).sum()) < 42


def test_neighbours_are_strangers() -> None:
    whole = permuted(np.arange(100_000), 100_000, 0, 0)
    correlation = np.corrcoef(whole[:-1], whole[1:])[0, 1]
    assert abs(correlation) < 0.02


def test_positions_outside_are_refused() -> None:
    with pytest.raises(ValueError, match="0 to 9"):
        permuted(np.array([10]), 10, 0, 0)


def test_random_numbers_belong_to_the_sample() -> None:
    one = generator(1, 2, 3).random(4).tolist()
    assert generator(1, 2, 3).random(4).tolist() == one
    others = [generator(*k).random(4).tolist() for k in ((0, 2, 3), (1, 0, 3), (1, 2, 4))]
    assert one not in others


def test_random_numbers_are_those_of_philox() -> None:
    for seed, epoch, index in ((0, 0, 0), (1, 2, 3), (2**64 - 1, 5, 2**63 + 1), (2**70 + 9, 1, 7)):
        key = np.array([seed % 2**64, epoch], dtype=np.uint64)
        counter = np.array([0, 0, 0, index], dtype=np.uint64)
        plain = np.random.Generator(np.random.Philox(key=key, counter=counter))
        ours = generator(seed, epoch, index)
        for draw in ("random", "standard_normal"):
            assert getattr(ours, draw)(5).tolist() == getattr(plain, draw)(5).tolist()
        assert pickle.loads(pickle.dumps(ours)).random() == ours.random() == plain.random()


def test_the_process_is_seeded() -> None:
    def drawn() -> tuple[float, float, float]:
        return random.random(), float(np.random.rand()), float(torch.rand(()))

    seed_process(1, 2, 3)
    one = drawn()
    seed_process(1, 2, 4)
    assert drawn() != one
    seed_process(1, 2, 3)
    assert drawn() == one


factor = st.floats(0.0, 5.0) | st.integers(1, 4).map(float)
some_factors = st.lists(factor, min_size=1, max_size=60).map(
    lambda factors: factors if sum(factors) >= 0.1 else [*factors, 1.0]
)


@given(factors=some_factors, epoch=st.integers(0, 99))
@settings(max_examples=60)
def test_repeated_samples_come_as_often_as_they_should(factors: list[float], epoch: int) -> None:
    order = Repeated(factors, 3, shuffle=True)
    assert -1e-8 < order.size - sum(factors) < 1 + 1e-8
    found = order.indices(epoch, 0, order.size)
    counts = np.bincount(found, minlength=len(factors))
    wanted = np.array(factors) * order.size / sum(factors)
    assert (np.abs(counts - wanted) < 1 + 1e-6).all()
    assert order.indices(epoch, order.size // 2, order.size).tolist() == (
        found[order.size // 2 :].tolist()
    )


def test_repeats_are_right_on_average_and_differ_between_epochs() -> None:
    order = Repeated([1.0, 1.5, 2.25, 0.25], 0, shuffle=True)
    assert order.size == 5
    epochs = [order.indices(epoch, 0, 5) for epoch in range(2000)]
    counts = np.bincount(np.concatenate(epochs), minlength=4) / 2000
    assert counts.tolist() == pytest.approx([1.0, 1.5, 2.25, 0.25], abs=0.05)
    assert len({tuple(sorted(epoch.tolist())) for epoch in epochs}) > 1
    assert Repeated([1.0] * 7, 0, shuffle=False).indices(3, 5, 9).tolist() == [5, 6, 0, 1]


@given(factors=some_factors, epoch=st.integers(0, 99))
@settings(max_examples=60)
def test_each_copy_of_a_sample_has_another_number(factors: list[float], epoch: int) -> None:
    order = Repeated(factors, 3, shuffle=True)
    drawn = order.drawn(epoch, 0, order.size)
    assert drawn.copies is not None
    numbers: dict[int, list[int]] = {}
    for index, copy in zip(drawn.indices.tolist(), drawn.copies.tolist(), strict=True):
        numbers.setdefault(index, []).append(copy)
    assert all(sorted(own) == list(range(len(own))) for own in numbers.values())
    shares = [order.share(epoch, 0, order.size, rank, 2) for rank in range(2)]
    for rank, share in enumerate(shares):
        assert share.copies is not None
        places = np.arange(rank, order.size, 2)
        assert share.copies[: len(places)].tolist() == drawn.copies[places].tolist()
    assert Order(5, 3, shuffle=True).share(epoch, 0, 5, 0, 1).copies is None


def test_a_further_copy_draws_other_numbers() -> None:
    drawn = [generator(1, 2, 3, copy).random() for copy in range(3)]
    assert drawn[0] == generator(1, 2, 3).random()
    assert len(set(drawn)) == 3

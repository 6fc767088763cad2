"""Loops over anything that nothing follows: they end over nothing, and what they are over is left alone."""

from __future__ import annotations

import ast
import itertools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from outpace.plan.leave import follow, ways_out
from outpace.plan.no_items import over_of

Done = list[object]


def leave(done: Done) -> None:
    """As a step does when the time is up."""
    exits, _ = ways_out(sys._getframe(1))
    assert follow(exits, lambda: done.append("left"))


class Corpus:
    """Gives batches without end, and notes who asked."""

    def __init__(self) -> None:
        self.asked = 0

    def __iter__(self) -> Iterator[int]:
        self.asked += 1
        return itertools.count()

    def batches(self, size: int) -> Iterator[int]:
        return iter(self)

    def __len__(self) -> int:
        return 10**9


shared = Corpus()
few = [0] * 9


def over_a_global(done: Done, corpus: Corpus) -> None:
    for index, _ in enumerate(shared):
        done.append(index)
        if index == 2:
            leave(done)


def over_a_variable(done: Done, corpus: Corpus) -> None:
    for batch in corpus:
        done.append(batch)
        if batch == 2:
            leave(done)


def over_a_call(done: Done, corpus: Corpus) -> None:
    for batch, _ in zip(corpus, few, strict=False):
        done.append(batch)
        if batch == 2:
            leave(done)


def over_a_method(done: Done, corpus: Corpus) -> None:
    for batch in corpus.batches(
        4,
    ):
        done.append(batch)
        if batch == 2:
            leave(done)


class Trainer:
    def __init__(self) -> None:
        self.corpus = Corpus()

    def train(self, done: Done) -> None:
        held = self

        def epoch() -> None:
            for batch in self.corpus:
                done.append(batch)
                if batch == 2:
                    leave(done)

        epoch()
        assert held is self


@pytest.mark.parametrize("over", [over_a_global, over_a_variable, over_a_call, over_a_method])
def test_what_a_loop_is_over_is_not_asked_again(over: Callable[[Done, Corpus], None]) -> None:
    done: Done = []
    corpus = shared if over is over_a_global else Corpus()
    before = corpus.asked
    over(done, corpus)
    done.append("after")
    assert done == [0, 1, 2, "left", "after"]
    assert corpus.asked == before + 1
    assert sys.gettrace() is None
    assert isinstance(shared, Corpus)
    assert "enumerate" not in globals()
    assert "zip" not in globals()


def test_of_an_object() -> None:
    done: Done = []
    trainer = Trainer()
    trainer.train(done)
    done.append("after")
    assert done == [0, 1, 2, "left", "after"]
    assert trainer.corpus.asked == 1


def nested(done: Done, corpus: Corpus) -> None:
    for epoch in corpus:
        for batch in corpus:
            done.append(batch)
            if (epoch, batch) == (1, 1):
                leave(done)
            if batch == 2:
                break


def test_loops_within_loops_have_their_variables_back() -> None:
    done: Done = []
    corpus = Corpus()
    nested(done, corpus)
    assert done == [0, 1, 2, 0, 1, "left"]
    assert corpus.asked == 3


def test_what_else_is_called_in_a_head_is_not_called_again() -> None:
    done: Done = []

    def size() -> int:
        done.append("called")
        return 3

    def over(corpus: Corpus) -> None:
        for _ in corpus.batches(size()):
            exits, _ = ways_out(sys._getframe(0))
            assert not follow(exits, lambda: None)
            break

    over(Corpus())
    assert done == ["called"]


def test_others_have_meanwhile_what_the_name_stands_for() -> None:
    """As a thread that runs between two lines of it."""
    from outpace.plan.no_items import Nothing

    frame = sys._getframe(0)
    nothing: Any = Nothing(frame, [1, 2])
    assert (list(nothing), len(nothing), list(nothing.of(3)[1:])) == ([], 0, [])

    def other() -> list[int]:
        return [*nothing, nothing[1], len(nothing), nothing.index(2)]

    assert other() == [1, 2, 2, 2, 1]


def cycle(loader: Any) -> Iterator[Any]:
    while True:
        yield from loader


def batches(loader: Any) -> Iterator[Any]:
    yield from loader


def test_a_data_loader_runs_dry_by_itself() -> None:
    loader = DataLoader(torch.arange(8), batch_size=2)  # type: ignore[arg-type]
    frame = sys._getframe(0)
    for text, way in (
        ("enumerate(loader)", False),
        ("loader", False),
        ("[loader]", False),
        ("cycle(loader)", True),
        ("itertools.cycle(loader)", True),
        ("batches(loader)", False),
        ("zip(loader, itertools.repeat(1))", False),
        ("shared", True),
    ):
        loop = ast.parse(f"for x in {text}:\n    pass").body[0]
        assert isinstance(loop, ast.For)
        assert (over_of(loop, frame) is not None) is way, text
    assert len(loader) == 4


class Stream:
    """Its batches begin anywhere."""

    def __init__(self) -> None:
        self.epochs, self.done = 5, 2

    def batches(self, count: int) -> list[int]:
        return [0] * count

    def train(self) -> list[bool]:
        found = []
        for _ in self.batches(self.epochs - self.done):
            exits, _ = ways_out(sys._getframe(0))
            found.append(follow(exits, lambda: None))
        return found


def test_a_head_that_computes_with_what_would_be_nothing_is_left_alone() -> None:
    loop = ast.parse("for x in self.batches(self.epochs - self.done):\n    pass").body[0]
    plain = ast.parse("for x in self.batches(self.epochs):\n    pass").body[0]
    self = Stream()
    assert isinstance(loop, ast.For)
    assert isinstance(plain, ast.For)
    assert over_of(loop, sys._getframe(0)) is None
    assert over_of(plain, sys._getframe(0)) is not None
    assert len(self.train()) >= 1

"""An epoch that is left with its first step: nothing more of it is done, and what follows the loop is."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from outpace.plan.cut_short import cut_short
from outpace.plan.leave import follow, ways_out


def leave() -> bool:
    """As a step does when the time is up; whether the epoch is cut short."""
    exits, last = ways_out(sys._getframe(1))
    assert last
    cut = cut_short(exits)
    assert follow(exits, lambda: None)
    return cut


def test_loops_in_one_function() -> None:
    done: list[object] = []
    for epoch in range(100):
        for step in range(100):
            if (epoch, step) == (1, 0):
                assert leave()
            done.append(step)
        done.append(f"validated {epoch}")
        done.append("kept")
    done.append("saved")
    assert done == [*range(100), "validated 0", "kept", 0, "saved"]
    assert sys.gettrace() is None


def batches(first: bool) -> Iterator[int]:
    """Of a loader that gives no more once the time is up."""
    yield 0
    if first:
        yield 1


def train(epoch: int, done: list[object]) -> float:
    for step in batches(epoch == 0):
        if (epoch, step) == (1, 0):
            assert leave()
        done.append(step)
    done.append("trained")
    return 1.0


def test_steps_in_a_function_of_their_own() -> None:
    """Which is gone through to its end: it is what its caller was about when the time was up."""
    done: list[object] = []
    for epoch in range(100):
        loss = train(
            epoch,
            done,
        )
        done.append(f"validated {epoch}")
    done.append(loss)
    assert done == [0, 1, "trained", "validated 0", 0, "trained", 1.0]


def test_what_has_to_be_gone_through_is() -> None:
    done: list[object] = []
    for epoch in range(100):
        try:
            with contextlib.suppress(KeyError):
                for step in range(3):
                    if (epoch, step) == (1, 0):
                        assert leave()
                    done.append(step)
                done.append("within")
        finally:
            done.append("closed")
        done.append("validated")
    done.append("saved")
    assert done == [0, 1, 2, "within", "closed", "validated", 0, "within", "closed", "saved"]


def begun_anew(done: list[object]) -> None:
    """Nothing follows its loop, and its caller goes on: it is begun once more, over nothing."""
    for epoch in range(100):
        for step in range(2):
            if (epoch, step) == (1, 0):
                assert leave()
            done.append(step)
        done.append("validated")


def test_a_loop_that_nothing_follows() -> None:
    done: list[object] = []
    begun_anew(done)
    done.append("saved")
    assert done == [0, 1, "validated", 0, "saved"]
    assert sys.gettrace() is None


def counted(limit: int, done: list[object]) -> None:
    epoch = 0
    with contextlib.suppress(KeyError):
        while epoch < limit:
            for step in range(2):
                if (epoch, step) == (1, 0):
                    assert not leave()
                done.append(step)
            done.append("validated")
            epoch += 1


def test_a_limit_that_is_lowered_is_looked_at_after_all_of_the_body() -> None:
    done: list[object] = []
    counted(100, done)
    done.append("saved")
    assert done == [0, 1, "validated", 0, "validated", "saved"]


def test_nothing_is_left_out_where_nothing_follows() -> None:
    done = []
    for epoch in range(100):
        for step in range(3):
            if (epoch, step) == (1, 0):
                assert not leave()
            done.append(step)
    done.append(-1)
    assert done == [0, 1, 2, 0, -1]


def test_what_follows_the_epochs_of_a_fold_is_done() -> None:
    """It is saved there, and tested."""
    done: list[object] = []
    for fold in range(2):
        for epoch in range(100):
            for step in range(2):
                if (fold, epoch, step) == (0, 1, 0):
                    assert not leave()
                done.append(step)
            done.append("validated")
        done.append(f"saved {fold}")
    done.append("all")
    assert done == [0, 1, "validated", 0, "validated", "saved 0", "all"]

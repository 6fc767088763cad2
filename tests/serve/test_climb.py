from __future__ import annotations

from collections.abc import Callable

from outpace.serve.climb import LOOKED_AT, Climb, most_threads

MIB = 2**20


def idle(workers: int, most: int) -> Climb:
    """On cores that have room."""
    return Climb(workers, most, 2, cpu_s=lambda: 0.0)


def run(climb: Climb, batches: int, needs: Callable[[int], float], step_s: float) -> list[str]:
    """A loader that takes ``needs(workers)`` seconds a batch beside a step."""
    said: list[str] = []
    for _ in range(batches):
        each = needs(climb.workers)
        climb.told(max(0.0, each - step_s), max(each, step_s), said.append)
    return said


def test_threads_come_as_long_as_they_help() -> None:
    climb = idle(1, most=8)
    said = run(climb, 20 * LOOKED_AT, lambda w: 0.1 / w, step_s=0.03)
    assert climb.workers == 4
    assert "threads" in said[0]


def test_what_does_not_help_is_taken_back() -> None:
    climb = idle(2, most=8)
    run(climb, 40 * LOOKED_AT, lambda w: 0.05, step_s=0.01)
    assert climb.workers <= 3
    run(climb, 3 * LOOKED_AT, lambda w: 0.05, step_s=0.01)
    assert climb.workers in (2, 3)


def test_a_moment_that_was_quicker_by_itself_is_no_reason_for_a_thread() -> None:
    """The first windows are slow, all later ones quick, whatever the threads."""
    climb, made = idle(2, most=8), iter(range(10_000))
    run(climb, 10 * LOOKED_AT, lambda w: 0.05 if next(made) < LOOKED_AT else 0.035, step_s=0.01)
    assert climb.workers == 2


def test_cheap_batches_are_looked_at_for_a_second() -> None:
    climb = idle(1, most=8)
    run(climb, 900, lambda w: 0.001, step_s=0.0)
    assert (climb.workers, climb.seen) == (1, [])
    run(climb, 200, lambda w: 0.001, step_s=0.0)
    assert climb.workers == 2


def test_nothing_changes_while_nobody_waits() -> None:
    climb = idle(2, most=8)
    assert run(climb, 20 * LOOKED_AT, lambda w: 0.01, step_s=0.02) == []
    assert climb.workers == 2


def test_where_the_cores_are_busy_no_thread_is_tried() -> None:
    spent = [0.0]
    climb = Climb(2, 8, 2, cpu_s=lambda: 2 * spent[0])

    def needs(workers: int) -> float:
        spent[0] += 0.05
        return 0.05 if workers == 2 else 0.02

    assert run(climb, 20 * LOOKED_AT, needs, step_s=0.01) == []
    assert climb.workers == 2


def test_there_is_an_end() -> None:
    climb = idle(1, most=3)
    run(climb, 50 * LOOKED_AT, lambda w: 1.0 / w, step_s=0.0)
    assert climb.workers == 3


def test_no_more_threads_come_than_memory_has_room_for() -> None:
    def most(ram: int) -> int:
        return most_threads(2, 10 * MIB, 256 * MIB, ram)

    assert most(2**33) == 6
    assert most(100 * MIB) == 3  # six batches on their way, and one in each thread's hands
    assert most(1) == 2

"""Trainings built in code: what their reports are tried on."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from outpace.records.machine import Accelerator
from outpace.records.training import Rates, Row, Seed, Training, Tried
from tests.report.report_sessions import EVIL, MACHINE, falling

LSUV = Tried(
    "lsuv",
    "without it",
    "better",
    0.412,
    0.531,
    0.21,
    2,
    60,
    1.9,
    "the signal fades to 0.002 of its size",
)
RATE = Tried("rate 0.03", "rate 0.01", "worse", None, 0.412, None, 1, 60, 1.2)
BROKEN = Tried(
    "muon", "rate 0.01", "needs two matrices", 0.0, 0.0, 0.0, 0, 60, 0.1, "large matrices"
)


RATES = Rates(
    16, 2.31, ((1e-3, 2.1), (3e-3, 1.4), (1e-2, 1.1), (3e-2, None)), (0.006, 0.002, 0.018)
)


def rows(count: int = 30, every_s: float = 1.5) -> tuple[Row, ...]:
    """A training and a validation loss that fall, and an accuracy that rises."""
    losses = falling(count, 0)
    return tuple(
        Row(i + 1, 100 * (i + 1), every_s * (i + 1), loss, loss + 0.1, 1 - loss / 3, 0.01)
        for i, loss in enumerate(losses)
    )


def trained(**changes: Any) -> Training:
    """One that ended by its budget, judged by a metric."""
    history = rows()
    best = max(history, key=lambda row: row.metric or 0.0)
    found = Training(
        what="mine:make",
        started="2026-03-01T12:00:00+01:00",
        seconds=45.3,
        machine=MACHINE,
        stopped="budget",
        steps=3012,
        epochs=30,
        metric_name="accuracy",
        larger_is_better=True,
        metric=best.metric,
        best=best,
        target=None,
        time_to_target_s=None,
        history=history,
        tried=(LSUV, RATE, BROKEN),
        notes=(LSUV.told(), "one_cycle: the end is known, and the rate falls to zero until then"),
    )
    return msgspec.structs.replace(found, **changes)


def with_rates() -> Training:
    """Whose rate lr_finder has set."""
    return trained(rates=RATES)


def reached() -> Training:
    return trained(target=0.8, time_to_target_s=33.0, stopped="target")


def missed() -> Training:
    return trained(target=0.95)


def not_validated() -> Training:
    history = tuple(Row(i + 1, i + 1, i + 1.0, 1.0 / (i + 1)) for i in range(3))
    return trained(
        what="Net", history=history, metric_name=None, metric=None, best=None, tried=(), notes=()
    )


def by_loss() -> Training:
    """Judged by the validation loss."""
    history = tuple(msgspec.structs.replace(row, metric=None) for row in rows())
    best = min(history, key=lambda row: row.valid_loss or 0.0)
    return trained(
        history=history,
        best=best,
        metric=best.valid_loss,
        metric_name=None,
        larger_is_better=False,
    )


def of_seeds() -> Training:
    """The mean of two seeds' weights."""
    found = trained()
    assert found.best is not None
    kept = (Seed(2, found.metric, found.best), Seed(0, 0.81, found.history[-2]))
    machine = msgspec.structs.replace(MACHINE, accelerators=(Accelerator("H100", 80 * 2**30),))
    return msgspec.structs.replace(found, what="Net", kept=kept, metric=0.99, machine=machine)


def empty() -> Training:
    """A budget that start-up has used."""
    return trained(history=(), best=None, metric=None, steps=0, epochs=0, tried=(), notes=())


def nasty() -> Training:
    """Not-a-numbers, infinities, huge figures, and text that tries to be code."""
    nan, inf = math.nan, math.inf
    history = (
        Row(1, 1, 0.0, nan, inf, 1e300, nan),
        Row(2, 2, nan, -1e300, nan, -inf, 0.0),
        Row(3, 3, 1e9, 1.0, 1.0, nan, 1.0),
    )
    return Training(
        what=EVIL,
        started=EVIL,
        seconds=nan,
        machine=msgspec.structs.replace(
            MACHINE, cpu=EVIL, system=EVIL, accelerators=(Accelerator(EVIL, 2**60),)
        ),
        stopped=EVIL,
        steps=10**12,
        epochs=1,
        metric_name=EVIL,
        larger_is_better=True,
        metric=nan,
        best=history[1],
        target=1e300,
        time_to_target_s=None,
        history=history,
        tried=(Tried(EVIL, EVIL, EVIL, inf, nan, nan, 1, 1, nan, EVIL),),
        kept=(Seed(0, nan, history[0]),),
        rates=Rates(1, nan, ((nan, inf), (0.0, None), (1e300, -1e300)), (nan, -inf, 0.0)),
        notes=(EVIL, "<img src=https://example.org/x.png onerror=alert(1)>"),
    )


ALL = [trained, with_rates, reached, missed, not_validated, by_loss, of_seeds, empty, nasty]

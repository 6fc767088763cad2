"""What validating without graphs is predicted to give."""

from __future__ import annotations

import msgspec
import pytest

from outpace.records.evidence import Evidence
from outpace.remedies.no_grad_eval import NoGradEval
from tests.remedies.some_evidence import IMAGES

replace = msgspec.structs.replace


def with_graphs(part: float, times: float | None) -> Evidence:
    """Validation takes 18 % of the run; so much of it keeps graphs."""
    return replace(IMAGES, compute=replace(IMAGES.compute, eval_with_grad=part, eval_times=times))


def test_few_calls_may_take_most_of_the_time() -> None:
    """3 of 16 calls that take 5 times as long are 15 of 28 parts, of which 12 would be gone."""
    share = IMAGES.share("validation")
    gain = NoGradEval().predict(with_graphs(3 / 16, 5.0))
    assert gain.speedup == pytest.approx(1 / (1 - share * 12 / 28))
    assert gain.low < gain.speedup < gain.high


def test_graphs_that_cost_nothing_give_nothing() -> None:
    assert NoGradEval().predict(with_graphs(1.0, 0.98)).speedup == 1.0


def test_what_was_not_tried_is_guessed() -> None:
    gain = NoGradEval().predict(with_graphs(1.0, None))
    assert 1.0 == gain.low < gain.speedup < gain.high

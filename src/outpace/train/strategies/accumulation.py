"""accumulation: the gradients of several batches make one step."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, final

from outpace.errors import OutpaceError, UsageError
from outpace.seams.batch import batch_size
from outpace.seams.generators import generators_kept
from outpace.train.data import Batches
from outpace.train.strategies.base import Sizing
from outpace.train.twin import MORE, Twin, alike, ends_by_samples, time_to_quality, told

if TYPE_CHECKING:
    from outpace.train.run import Run

BATCHES = 32
"""that are looked at"""
SHARE, FEWEST_STEPS = 0.1, 60
"""of the training's steps that finding out may take; fewer tell nothing"""
MOST = 64


@final
class Accumulation(Sizing):
    """Gradients of ``batches`` batches are added up before the optimizer makes a step of them.

    What: each batch counts by its samples, so that the step is that of one batch which holds them all;
    at the end of an epoch what is left makes a step. Ranks exchange gradients once a step. ``batches``
    None: on a copy, the time of a step without and with its gradients and the samples N at which a
    gradient is as much noise as signal tell which number k reaches a quality first, by the least of
    (time of k gradients and one step) (1 + N / samples of k batches); where epochs end the training, and
    neither its time nor a target, with N / 10 samples a step at most, as with `batch_size`. The largest
    rate goes with k as it does there, unless lr_finder finds one, on single batches: a safe one.
    Helps: where memory has no room for a batch that is large enough; where the exchange between ranks,
    or the optimizer, takes a good part of a step of noisy gradients.
    Harms: where a larger batch fits it takes less time than as many small ones. BatchNorm sees small
    batches. Not exact where a loss is no mean over its batch's samples (a mean over unequal numbers of
    tokens, a sum). A ``batches`` that is given leaves the rate alone.
    Source: Ott et al. 2018, arXiv 1806.00187 (Scaling Neural Machine Translation); the number:
    McCandlish et al. 2018, arXiv 1812.06162, eq. 2.11.
    """

    name = "accumulation"
    sets = ("the batches of a step",)

    def __init__(self, batches: int | None = None) -> None:
        if batches is not None and batches < 1:
            raise UsageError(f"batches={batches}", "they are 1 or more")
        super().__init__()
        self.given = batches
        if batches is None:
            self.whole = (
                "it finds the number on a whole copy of the model; Accumulation(4) goes with it"
            )
        self.train: Batches | None = None

    def prepare(self, run: Run) -> None:
        """Have as many as were given together."""
        super().prepare(run)
        names = [each.name for each in run.events.strategies]
        if self.given is None and "batch_size" in names[names.index(self.name) :]:
            raise UsageError(
                "accumulation counts batches, whose size batch_size is still to find",
                "name batch_size before it",
            )
        self.train = run.train
        run.train.together = self.given or 1
        run.clock.validation_steps /= run.train.together

    def first_batches(self, run: Run) -> None:
        """Find their number, unless it is given."""
        if self.given is not None:
            return
        if run.steps_ahead < FEWEST_STEPS:
            run.note(f"accumulation: none: {run.steps_ahead:g} steps are too few to try it")
            return
        began = run.clock.read()
        try:
            with generators_kept(), run.objective.kept():
                count, noise, said = self.found(run, began)
        except OutpaceError:
            raise
        except Exception as error:  # of a model, an optimizer or a loss that does not bear it
            run.note(f"accumulation: none: no steps on a copy ({error})")
            return
        run.train.together = count
        run.clock.validation_steps /= count
        more = self.scale_rate(run, 1, count, noise)  # over a part of the steps that there are now
        seconds = run.clock.read() - began
        number = f"{count} batches a step" if count > 1 else "none"
        run.note(f"accumulation: {number}: {said}{more} (found in {seconds:.1f} s)")

    def found(self, run: Run, began: float) -> tuple[int, float, str]:
        """The number, the batches at which a gradient is as much noise as signal, and why."""
        half = SHARE / 2  # the other one is for trying
        batches = alike(run.train.peek(BATCHES, lambda found: run.clock.within(half, began)))
        samples = batch_size(batches[0]) * run.world
        twin = Twin(run)
        whole_s = twin.seconds(lambda: twin.step(batches[0]))
        part_s = min(whole_s, twin.seconds(lambda: twin.gradients(batches[0], alone=True)))
        twin.optimizer.zero_grad()
        until = began + SHARE * min(run.clock.seconds, run.steps_ahead * whole_s)
        noise = twin.noise_scale(batches, whole_s, max(0.0, until - run.clock.read()))
        if noise is None:
            return 1, math.inf, "the noise of gradients can't be told from so few batches"

        def step_s(count: int) -> float:
            return whole_s + (count - 1) * part_s

        def cost(count: int) -> float:
            return time_to_quality(step_s(count), count * samples, noise)

        def makes_enough(count: int) -> bool:
            few = count <= max(1.0, MORE * noise / samples)
            return few or not ends_by_samples(run, count, step_s(count))

        counts = range(1, MOST + 1)
        count = min(filter(makes_enough, counts), key=cost)
        fastest = min(counts, key=cost)
        faster = f", {cost(1) / cost(count):.2g} times as fast, as predicted" if count > 1 else ""
        said = (
            f"a step takes {told(whole_s)}, its gradients {told(part_s)}, and they are half "
            f"noise at {noise:,.0f} samples{faster}"
        )
        if fastest != count:
            said += f"; {fastest} batches would make too few steps of {run.epochs} epochs"
        return count, noise / samples, said

    def over(self, run: Run) -> None:
        """Let go of the data."""
        super().over(run)
        self.train = None

    def state_dict(self) -> dict[str, Any]:
        """Their number."""
        return {**super().state_dict(), "batches": self.train.together if self.train else 1}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """As many as there were, unless others are given now."""
        super().load_state_dict(state)
        if self.train is not None:
            self.train.together = self.given or state["batches"]

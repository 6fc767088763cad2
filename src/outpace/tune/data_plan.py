"""Which remedies of the data go together: of all ways to feed the steps, the one that ends the run soonest.

They stand in each other's way: batches that are kept are made by no workers, what one thread makes ahead
no other need make. And a cache pays from the second epoch on, where threads that wait for a disk pay
from the first. So the best of each stage, one after the other, may not be the best together.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from outpace.records.evidence import Evidence
from outpace.records.finding import Keeps
from outpace.records.gain import Gain
from outpace.records.trial import Trial
from outpace.remedies.base import Remedy
from outpace.remedies.catalog import remedy, setup_of_trials
from outpace.remedies.model import step_time
from outpace.seams.setup import AS_IS, Setup
from outpace.tune.candidate import Candidate

SMALLEST = 1.02
"""predicted speed-up below which nothing is tried"""
EXACT_IS_WORTH = 1.3
WORTH_REDRAWING = 2.0
"""predicted speed-up for which other random numbers, and so a harder proof, are worth it"""
WORTH_AT_LAST = 1.15
"""the same once nothing else is left to try, and where there is time for that proof"""
NEAR = 1.15
"""within which predictions do not tell two ways to feed the steps apart"""
LEAST_BETTER = 1.01

Members = tuple[Candidate, ...]


def about_data(candidate: Candidate) -> bool:
    """Whether a candidate changes how batches are made, with a gain that the cost model tells."""
    setup = candidate.on(AS_IS)
    changes = setup.feed != AS_IS.feed or setup.decodes
    return type(candidate.remedy).predict is Remedy.predict and changes


def cold(setup: Setup) -> Setup:
    """The same without its caches: how the first epoch runs."""
    fetch = "items" if setup.feed.fetch == "cache" else setup.feed.fetch
    feed = replace(setup.feed, fetch=fetch, cache_bytes=0)
    return replace(setup, decoded_bytes=0, decoded_disk_bytes=0, feed=feed)


def run_step(evidence: Evidence, setup: Setup, steady: float | None = None) -> float:
    """Predicted seconds of a step in the mean over the run, whose first epoch fills the caches.

    ``steady``: of a step once they are full, where that was measured.
    """
    steady, first = steady or step_time(evidence, setup).seconds, cold(setup)
    if first == setup:
        return steady
    data = evidence.input
    keeping = (
        data.images.keeping_s * data.batch_size if data.images and setup.decoded_bytes else 0.0
    )
    filling = step_time(evidence, first).seconds + keeping * max(1, evidence.steps.micro_steps)
    return steady + (filling - steady) / evidence.passes


def run_speedup(evidence: Evidence, before: Setup, after: Setup) -> float:
    """Predicted speed-up of the run's steps from one way to feed them to another."""
    one, other = run_step(evidence, before), run_step(evidence, after)
    return one / other if one > 0 and other > 0 else 1.0


def ways(found: Iterable[Candidate], accepted: Setup) -> dict[Setup, Members]:
    """Every Setup that the candidates lead to from ``accepted``, by as few of them as do.

    At most one of a remedy's settings, in the order in which remedies are tried.
    """
    by_name: dict[str, list[Candidate]] = {}
    for each in sorted(found, key=lambda c: (c.remedy.stage, c.remedy.name)):
        by_name.setdefault(each.remedy.name, []).append(each)
    reached: dict[Setup, Members] = {accepted: ()}
    for options in by_name.values():
        for setup, members in list(reached.items()):
            for each in options:
                after = each.on(setup)
                if after not in reached or len(reached[after]) > len(members) + 1:
                    reached[after] = (*members, each)
    return reached


def best_together(evidence: Evidence, found: Iterable[Candidate], accepted: Setup) -> Members:
    """The candidates of the best way to feed the steps; none where it is the accepted one.

    What keeps the bits may be a little slower, and more remedies are to make up for being more. Where
    predictions do not tell a way that keeps the bits from the best, it is taken: it needs no proof, for want
    of which all that was measured on top would be left out too.
    """

    def cost(way: tuple[Setup, Members]) -> float:
        setup, members = way
        price = price_of(evidence, [(each.remedy, each.keeps) for each in members])
        return price * SMALLEST ** len(members) * run_step(evidence, setup)

    by_cost = sorted(
        ((cost(way), way[1]) for way in ways(found, accepted).items()), key=lambda c: c[0]
    )
    least, best = by_cost[0]
    if all(each.keeps == "exact" for each in best):
        return best
    for price, members in by_cost:
        if not members or price > NEAR * least:  # no dearer than nothing at all
            break
        if all(each.keeps == "exact" for each in members):
            return members
    return best


def price_of(evidence: Evidence, remedies: Iterable[tuple[Remedy, Keeps]]) -> float:
    """How much faster they are to be for what they change."""
    price = 1.0
    for one, keeps in remedies:
        redrawn = WORTH_REDRAWING if one.redraws(evidence) else 1.0
        price = max(price, redrawn, EXACT_IS_WORTH if keeps != "exact" else 1.0)
    return price


def paid_price(evidence: Evidence, accepted: list[Trial]) -> float:
    """The same of what is accepted: no more than it gives, as what was tried at last was taken for less."""
    gained = math.prod((t.measured or t.predicted).speedup for t in accepted)
    price = price_of(evidence, [(remedy(t.remedy), t.keeps) for t in accepted])
    return min(price, max(1.0, gained))


class Rival(NamedTuple):
    """A candidate in the place of what is accepted, and the speed-up for which it is taken."""

    candidate: Candidate
    instead_of: tuple[str, ...]
    setup: Setup
    wanted: float

    def pays(self, evidence: Evidence, recipe: Setup, measured: Gain) -> bool:
        """Whether it does, by the measured speed-up of a steady step: in the whole run too."""
        steady = step_time(evidence, recipe).seconds / measured.speedup
        run = run_step(evidence, recipe) / run_step(evidence, self.setup, steady)
        return measured.low > 1.0 and min(measured.speedup, run) >= self.wanted


def nearest_rival(
    evidence: Evidence, accepted: list[Trial], found: Iterable[Candidate]
) -> Rival | None:
    """The best of the other ways to feed the steps that the accepted one is not clearly better than by its
    prediction: one candidate in the place of one accepted remedy of the data, or of all of them.
    """
    recipe = setup_of_trials(accepted)
    tried = {t.remedy for t in accepted}
    others = [each for each in found if about_data(each) and each.remedy.name not in tried]
    fed = [t for t in accepted if _changes_feed(t)]
    gone = {(t.remedy,) for t in fed} | {tuple(t.remedy for t in fed)} if fed else set()

    limit = NEAR * paid_price(evidence, fed) * run_step(evidence, recipe)
    nearest: tuple[float, Rival] | None = None
    for instead_of in sorted(gone, key=len):
        rest = [t for t in accepted if t.remedy not in instead_of]
        base = setup_of_trials(rest)
        for each in others:
            setup = each.on(base)
            if setup in (base, recipe):
                continue
            price = max(
                paid_price(evidence, [t for t in rest if t in fed]),
                price_of(evidence, [(each.remedy, each.keeps)]),
            )
            cost = price * run_step(evidence, setup)
            if cost <= limit and (nearest is None or cost < nearest[0]):
                wanted = max(LEAST_BETTER, price / paid_price(evidence, fed))
                nearest = cost, Rival(each, instead_of, setup, wanted)
    return nearest[1] if nearest else None


def _changes_feed(trial: Trial) -> bool:
    one = remedy(trial.remedy)
    return about_data(Candidate(one, trial.settings, trial.keeps, trial.reason))

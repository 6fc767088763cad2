"""Which remedies are worth a trial, with what they are predicted to give."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from outpace.diagnose.bottlenecks import URGENT
from outpace.records.evidence import Evidence
from outpace.records.finding import Advice, Finding
from outpace.records.gain import Gain
from outpace.records.trial import NOT_TRIED, Trial
from outpace.remedies.catalog import all_remedies, setup_of_trials
from outpace.seams.setup import AS_IS, Setup
from outpace.tune.candidate import Candidate
from outpace.tune.data_plan import (
    EXACT_IS_WORTH,
    SMALLEST,
    WORTH_AT_LAST,
    WORTH_REDRAWING,
    about_data,
    best_together,
    run_speedup,
)


def candidates(
    evidence: Evidence, only: Iterable[str] = (), skip: Iterable[str] = ()
) -> list[Candidate]:
    """What applies and can be tried, every alternative of its settings once."""
    wanted, unwanted = set(only), set(skip)
    found = []
    for kind in all_remedies():
        one = kind()
        if kind.advice_only or kind.name in unwanted or (wanted and kind.name not in wanted):
            continue
        verdict = one.verdict(evidence)
        if verdict.yes:
            found += [
                Candidate(one, settings, one.kept(evidence, settings), verdict.reason)
                for settings in one.alternatives(evidence)
            ]
    return found


def in_steps(candidate: Candidate) -> bool:
    """Whether a candidate can be tried within a running process, step against step."""
    return candidate.on(AS_IS).in_process and candidate.remedy.gain_of == "steps"


def best(
    evidence: Evidence,
    remaining: list[Candidate],
    accepted: Setup,
    asked: Collection[str] = (),
    *,
    redraw: bool,
) -> tuple[Candidate, Gain] | None:
    """The candidate to try next: what keeps the bits, of the earliest stage that has one that pays, the best.

    Of the data those that go best together, as long as there are such; another is to pay in the whole run.
    What the user asked for by name is tried whatever it promises. Where random numbers are dealt out in
    another order it is to promise much, or, with ``redraw``, comes last: so it can leave alone.
    """
    found = _best(evidence, remaining, accepted, asked, WORTH_REDRAWING)
    if found is None and redraw:
        last = [each for each in remaining if each.remedy.redraws(evidence)]
        found = _best(evidence, last, accepted, asked, WORTH_AT_LAST)
    return found


def _best(
    evidence: Evidence,
    remaining: list[Candidate],
    accepted: Setup,
    asked: Collection[str],
    worth_redrawing: float,
) -> tuple[Candidate, Gain] | None:
    def pays(candidate: Candidate, speedup: float) -> bool:
        redraws = candidate.remedy.redraws(evidence)
        return speedup >= (worth_redrawing if redraws else SMALLEST)

    feeding = [each for each in remaining if about_data(each)]
    together = best_together(evidence, feeding, accepted)
    paying: dict[str, tuple[Candidate, Gain]] = {}
    for candidate in remaining:
        name, after = candidate.remedy.name, candidate.on(accepted)
        gain = candidate.predict(evidence, accepted)
        if candidate in together or name in asked:
            promises = True
        elif candidate in feeding:
            promises = not together and pays(candidate, run_speedup(evidence, accepted, after))
        else:
            promises = pays(candidate, gain.speedup)
        if not promises or after == accepted:
            continue
        worth = _worth(candidate, gain)
        if name not in paying or worth > _worth(*paying[name]):
            paying[name] = candidate, gain
    if not paying:
        return None

    # What keeps the bits goes first, of all stages: it may leave little for what needs a proof of quality,
    # and is measured on top of nothing that may leave for want of one.
    def order(pair: tuple[Candidate, Gain]) -> tuple[bool, bool, int, float]:
        candidate, gain = pair
        remedy, inexact = candidate.remedy, candidate.keeps != "exact"
        return inexact, remedy.redraws(evidence), remedy.stage, -gain.speedup

    return min(paying.values(), key=order)


def untried(
    evidence: Evidence,
    trials: list[Trial],
    why: str,
    only: Collection[str] = (),
    skip: Collection[str] = (),
) -> list[Trial]:
    """What would be tried next within a process, one after the other, for want of time."""
    accepted = setup_of_trials(t for t in trials if t.accepted)
    tried = {trial.remedy for trial in trials}
    found = candidates(evidence, only, skip)
    remaining = [c for c in found if in_steps(c) and c.remedy.name not in tried]
    missed: list[Trial] = []
    while (chosen := best(evidence, remaining, accepted, only, redraw=True)) is not None:
        candidate, predicted = chosen
        missed.append(candidate.trial(predicted, None, False, f"{NOT_TRIED}: {why}"))
        remaining = [c for c in remaining if c.remedy.name != candidate.remedy.name]
    return missed


def _worth(candidate: Candidate, gain: Gain) -> float:
    """Of several settings of a remedy, one that keeps the bits may be a little slower."""
    return gain.speedup * (EXACT_IS_WORTH if candidate.keeps == "exact" else 1.0)


def with_advice(evidence: Evidence, findings: list[Finding]) -> list[Finding]:
    """Findings with the remedies that treat their cause and are predicted to pay, beyond what predictions are
    off by: others `tune` may try. What ends a run is treated at any price.
    """
    import msgspec

    told = []
    for finding in findings:
        advice = []
        for kind in all_remedies():
            one = kind()
            if finding.cause not in kind.treats:
                continue
            verdict = one.verdict(evidence)
            if not verdict.yes:
                continue
            settings = one.settings(evidence)
            gain, kept = one.predict(evidence, settings), one.kept(evidence, settings)
            pays = gain.speedup >= SMALLEST and gain.low >= 1.0
            if pays or finding.cause in URGENT:
                advised = Advice(
                    one.name, kept, gain, verdict.reason, kind.advice_only, kind.gain_of
                )
                advice.append(advised)
        advice.sort(key=lambda a: -a.predicted.speedup)
        told.append(msgspec.structs.replace(finding, remedies=tuple(advice)))
    return told

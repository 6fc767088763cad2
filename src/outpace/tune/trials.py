"""Trials inside the target's process: each remedy on top of those accepted, measured in pairs.

What keeps the bits is tried first, and of that the best-predicted remedy of the earliest stage. It is
accepted where the interval of its gain excludes "no gain". What is accepted changes what the next is
predicted to give; at the end the whole recipe is compared with the script as it is, and remedies that
gave little are tried again without: those that no longer pay leave. So do caches that the whole run is
too short for.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import msgspec

from outpace.measure.arms import Contest, Program, Scheduler, Spare, is_vague, settled
from outpace.records.evidence import Evidence
from outpace.records.files import read_json
from outpace.records.gain import Gain
from outpace.records.trial import Trial
from outpace.remedies.catalog import setup_of_trials
from outpace.remedies.compile_model import COMPILE_S
from outpace.remedies.model import kept_shares, predicted_gain
from outpace.seams.compiled import compiled_again, graphs_compiled
from outpace.seams.host import Step
from outpace.seams.setup import AS_IS, Setup
from outpace.tune.candidate import Candidate
from outpace.tune.children import total_gain
from outpace.tune.data_plan import LEAST_BETTER, Rival, cold, nearest_rival
from outpace.tune.files import EVIDENCE, MARKER, TRIALS, read, write
from outpace.tune.from_step import begin_there
from outpace.tune.observed import Observed
from outpace.tune.propose import best, candidates, in_steps

POOL = 2
"""batches that a warm cache is tried with"""
TRIAL_S = 8.0
QUEUES = 3.0
"""times as long that workers of both arms are compared"""
ROUNDS, BLOCK = 7, 3
"""of a trial of slow steps, each of two blocks of so many steps"""
COMPILING_S = 90.0
"""for a trial that compiles first: it ends as soon as it is decided"""
FINAL_S, FINAL_SHARE = 15.0, 0.25
"""seconds kept for the whole recipe; and the most that they may be of the time for trials"""
LITTLE = 1.06
RIVALS = 2
"""other ways to feed the steps that are tried in the accepted one's place"""
FEWEST_STEPS = 6
MOST_COMPILED_AGAIN = 1
"""a second shape compiles once more, for any size; more than that goes on and on"""


def steady(setup: Setup) -> Setup:
    """A Setup whose caches are warm: batches come from a few that are soon kept."""
    if not setup.decoded_bytes and setup.feed.fetch != "cache":
        return setup
    executor = "inline" if setup.feed.executor == "own" else setup.feed.executor
    return replace(setup, feed=replace(setup.feed, executor=executor, pool=POOL))


def in_own_processes(evidence: Evidence, arms: dict[str, Setup]) -> dict[str, Setup]:
    """Arms of several decoders, each with worker processes of its own: those that are at work by now keep the
    decoder that they began with.
    """
    own, data = ("own", "processes"), evidence.input
    at_work = [arm for arm in arms.values() if arm.feed.executor in own]
    if not data.workers or len({(arm.decoder, arm.scaled) for arm in at_work}) < 2:
        return arms

    def begun(arm: Setup) -> Setup:
        if arm not in at_work:
            return arm
        feed = replace(arm.feed, begun_with=f"{arm.decoder}{' scaled' * arm.scaled}")
        if feed.executor == "own":
            ahead = data.prefetch_factor or 2
            feed = replace(feed, executor="processes", workers=data.workers, prefetch=ahead)
        return replace(arm, feed=replace(feed, persistent=True))

    return {name: begun(arm) for name, arm in arms.items()}


def kept_share(evidence: Evidence, setup: Setup) -> float:
    """Share of batches' images that are kept, in later epochs; a pool's all are."""
    return sum(kept_shares(evidence, setup)) if setup.decoded_bytes else 1.0


def mixed(warm: Gain, share: float) -> Gain:
    """Speed-up where such a share of the images is kept, and the others are decoded as before."""

    def of(speedup: float) -> float:
        return 1 / (share / speedup + 1 - share)

    return msgspec.structs.replace(
        warm, speedup=of(warm.speedup), low=of(warm.low), high=of(warm.high)
    )


def product(gains: Iterable[Gain | None]) -> Gain:
    """Gains on top of each other, multiplied; None: of what was not measured."""
    speedup = low = high = 1.0
    for gain in gains:
        if gain is not None:
            speedup, low, high = speedup * gain.speedup, low * gain.low, high * gain.high
    return Gain(speedup, low, high, "predicted")


def keeps_samples(trial: Trial) -> bool:
    """Whether a remedy gives more once data are met again."""
    setup = setup_of_trials([trial])
    return cold(setup) != setup


def without(trials: list[Trial], out: list[Trial], why: str) -> list[Trial]:
    """The trials, with those not accepted after all that paid when they were tried."""
    return [
        msgspec.structs.replace(trial, accepted=False, reason=f"{trial.reason}, {why}")
        if trial in out
        else trial
        for trial in trials
    ]


class Trials:
    """The program of one trying process."""

    def __init__(self, observed: Observed) -> None:
        spec = observed.spec
        self.observed = observed
        self.time_s = float(spec["time_s"])
        self.evidence = read_json(Path(spec["evidence"]) / EVIDENCE, Evidence)
        self.asked: list[str] = spec.get("only", [])
        self.redraw: bool = spec["redraw"]
        """whether there is time to prove what deals out random numbers in another order"""
        self.remaining = candidates(self.evidence, self.asked, spec.get("skip", ()))
        self.remaining = [c for c in self.remaining if in_steps(c)]
        state = read(observed.session / TRIALS, {})
        self.trials = [msgspec.convert(t, Trial) for t in state.get("trials", [])]
        self.final: dict[str, Any] = state.get("final", {})
        self.unfinished: dict[str, Any] = state.get("unfinished", {})
        """the contest that the script came to its end in, and what was compared by then"""
        self.excluded: dict[str, str] = spec.get("excluded", {})
        self.begun = 0.0
        self.graphs: list[int] = []
        self.scheduler = Scheduler(
            observed.host,
            self.program(),
            marker=observed.session / MARKER,
            progress=self.told,
            done=observed.stop,
            workers=observed.worker_pids,
            queued=observed.queued,
            settle=lambda: settled(*observed.host.roots),
        )
        observed.host.listeners.append(self.on_step)
        observed.until_another()
        observed.before_finish.append(self.cut_short)
        observed.watcher.recording = False
        observed.watcher.validation.end()

    def on_step(self, step: Step) -> None:
        """A step ended."""
        self.begun = self.begun or perf_counter() - float(self.observed.spec.get("spent_s", 0.0))
        self.observed.pause_sampler(True)
        self.observed.safely(self.scheduler.on_step, step)

    def left(self) -> float:
        """Seconds left."""
        return self.time_s - (perf_counter() - self.begun)

    def contest(self, arms: dict[str, Setup], seconds: float, name: str, **options: Any) -> Contest:
        """Arms to compare, with what an earlier run of the script came to know of just these."""
        arms = in_own_processes(self.evidence, arms)
        contest = Contest(arms, seconds, name, **options)
        if self.unfinished.get("of") == repr(arms):
            pairs = self.unfinished["pairs"]
            contest.pairs = {arm: [tuple(p) for p in rows] for arm, rows in pairs.items()}
            contest.spare = {arm: Spare(*s) for arm, s in self.unfinished["spare"].items()}
            contest.spent = self.unfinished["spent"]
            self.unfinished = {}
        return contest

    def cut_short(self) -> None:
        """The script comes to its end: what is not clear by now goes on in the next run of it.

        Where it ends by an error that tells nothing of what is compared.
        """
        if getattr(sys, "last_value", None) is None:
            contest = self.scheduler.cut_short()
            if contest is not None and contest.rounds:
                spare = {arm: (s.taken, s.before) for arm, s in contest.spare.items()}
                self.unfinished = {
                    "of": repr(contest.arms),
                    "pairs": contest.pairs,
                    "spare": spare,
                    "spent": contest.spent,
                }
        self.write()

    @property
    def final_s(self) -> float:
        """Seconds kept for the whole recipe."""
        return min(FINAL_S, FINAL_SHARE * self.time_s)

    def told(self, contest: Contest) -> None:
        """Pass progress on."""
        self.graphs.append(graphs_compiled())
        done = self.time_s - self.left()
        self.observed.tell("trials", min(done, self.time_s), self.time_s, contest.name, contest)

    @property
    def accepted(self) -> list[Trial]:
        """Trials that were accepted."""
        return [t for t in self.trials if t.accepted]

    def recipe(self, *leave: str) -> Setup:
        """What is accepted, as a Setup."""
        return setup_of_trials(t for t in self.accepted if t.remedy not in leave)

    def program(self) -> Program:
        """Try, drop, compare."""
        for _ in range(FEWEST_STEPS):
            yield None
        self._leave_tried()
        rivals = 0
        while self.left() > self.final_s:
            chosen = best(
                self.evidence, self.remaining, self.recipe(), self.asked, redraw=self.redraw
            )
            if chosen is not None:
                yield from self.attempt(*chosen)
            else:
                rival = nearest_rival(self.evidence, self.accepted, self.remaining)
                if rival is None or rivals == RIVALS:
                    break
                rivals += 1
                yield from self.try_instead(rival)
            self.write()
        if not self.final:
            yield from self.drop()
            yield from self.compare()
        self.write()

    def _leave_tried(self) -> None:
        """What an earlier process tried, or ended in, is not tried again."""
        for trial in self.trials:
            self._forget(trial.remedy, trial.settings, trial.accepted)
        for candidate in list(self.remaining):
            name = candidate.remedy.name
            if name in self.excluded:
                self.remaining.remove(candidate)
                gain = candidate.predict(self.evidence)
                if all(t.remedy != name for t in self.trials):
                    self.trials.append(candidate.trial(gain, None, False, self.excluded[name]))

    def _forget(self, name: str, settings: Any, accepted: bool) -> None:
        self.remaining = [
            c
            for c in self.remaining
            if c.remedy.name != name or (not accepted and c.settings != settings)
        ]

    def _forget_worse(self, slower: Candidate, base: Setup, predicted: Gain) -> None:
        """Other settings of a remedy that was slower, and are predicted to be no better."""
        self.remaining = [
            c
            for c in self.remaining
            if c.remedy.name != slower.remedy.name
            or c.predict(self.evidence, base).speedup > predicted.speedup
        ]

    def compared(
        self, name: str, base: Setup, after: Setup, label: str, seconds: float
    ) -> Generator[Contest, None, tuple[Contest, Gain | None]]:
        """A contest of a steady step under two Setups, and its gain; None where steps were too few."""
        arms = {"accepted": steady(base), name: steady(after)}
        # As long as it takes to warm up and compare six times where steps are slow.
        most = max(seconds, ROUNDS * 2 * BLOCK * self.evidence.steps.mean_s)
        if in_own_processes(self.evidence, arms) != arms:
            most *= QUEUES  # what workers have made ahead hides in each block what they take
        limit = min(most, max(3.0, self.left() - self.final_s))
        contest = self.contest(arms, limit, label, narrow=0.03)
        yield contest
        measured = contest.gain(name) if contest.pairs.get(name) else None
        if measured is not None and after.decoded_bytes and not base.decoded_bytes:
            measured = mixed(measured, kept_share(self.evidence, after))
        return contest, measured

    def attempt(self, candidate: Candidate, predicted: Gain) -> Iterator[Contest]:
        """One trial."""
        name, base = candidate.remedy.name, self.recipe()
        after = candidate.on(base)
        compiles = after.compiled and not base.compiled
        self.graphs = []
        limit = COMPILING_S if compiles else TRIAL_S
        contest, measured = yield from self.compared(name, base, after, f"trying {name}", limit)
        accepted = measured is not None and measured.low > 1.0 and measured.speedup >= LEAST_BETTER
        reason = contest.failed.get(name) or _why(measured, accepted)
        again = compiled_again(self.graphs) if compiles else 0
        if again > MOST_COMPILED_AGAIN:
            accepted, reason = False, f"its shapes change: compiled {again} times more in the trial"
        if accepted and compiles and not self.outlasts_compiling(measured):
            accepted = False
            reason += f", and the whole run no faster: compiling takes about {COMPILE_S[1]:.0f} s"
        self.trials.append(candidate.trial(predicted, measured, accepted, reason, contest.spent))
        self._forget(name, candidate.settings, accepted)
        if measured is not None and measured.high < 1.0:
            self._forget_worse(candidate, base, predicted)

    def try_instead(self, rival: Rival) -> Iterator[Contest]:
        """One trial of another way to feed the steps, which takes the accepted one's place if it pays.

        What it gains is then told of the recipe without either.
        """
        name, recipe = rival.candidate.remedy.name, self.recipe()
        place = " and ".join(rival.instead_of)
        label = f"trying {name} in place of {place}"
        contest, measured = yield from self.compared(name, recipe, rival.setup, label, TRIAL_S)
        taken = measured is not None and rival.pays(self.evidence, recipe, measured)
        why = contest.failed.get(name) or f"{_why(measured, taken)}, in place of {place}"
        predicted = predicted_gain(self.evidence, recipe, rival.setup)
        if taken:
            before = self.recipe(*rival.instead_of)
            predicted = predicted_gain(self.evidence, before, rival.setup)
            gone = [t for t in self.accepted if t.remedy in rival.instead_of]
            measured = product([*(t.measured for t in gone), measured])
            self.trials = without(self.trials, gone, f"{name} in its place faster still")
        self.trials.append(rival.candidate.trial(predicted, measured, taken, why, contest.spent))
        self._forget(name, rival.candidate.settings, True)

    def outlasts_compiling(self, measured: Gain | None) -> bool:
        """Whether steps that are so much faster win back the time of compiling."""
        final = {"recipe": {"gain": measured}, "compiling_s": COMPILE_S[1]}
        whole = total_gain(self.evidence, final)
        return whole is not None and whole.speedup > 1.0

    def drop(self) -> Iterator[Contest]:
        """Remedies that gave little are measured once more, against the recipe without them."""
        for trial in list(self.accepted)[:-1]:
            little = trial.measured is not None and trial.measured.speedup < LITTLE
            if not little or self.left() < self.final_s:
                continue
            arms = {
                "without": steady(self.recipe(trial.remedy)),
                "recipe": steady(self.recipe()),
            }
            contest = self.contest(arms, 6.0, f"does {trial.remedy} still pay", narrow=0.03)
            yield contest
            if contest.pairs.get("recipe") and contest.gain("recipe").high < 1.0:
                at = self.trials.index(trial)
                self.trials[at] = msgspec.structs.replace(
                    trial, accepted=False, reason="no longer pays beside the others"
                )

    def compare(self) -> Iterator[Contest]:
        """The whole recipe against the script as it is: steady, and as its first epoch runs."""
        recipe = self.recipe()
        if recipe == AS_IS:
            return
        arms = {"as_is": AS_IS, "recipe": steady(recipe)}
        if cold(recipe) != recipe:
            arms["cold"] = cold(recipe)
        contest = self.contest(
            arms, max(8.0, min(FINAL_S, self.left())), "the whole recipe", narrow=0.02, min_rounds=8
        )
        yield contest
        whole = contest.gain("recipe") if contest.pairs.get("recipe") else None
        if whole is not None and (why := _why_none(whole, contest)):
            # Each paid when it was tried: another program may have gone meanwhile.
            self.trials = without(self.trials, self.accepted, why)
            return
        final: dict[str, Any] = {
            arm.name: msgspec.to_builtins(arm) for arm in contest.results() if arm.failed is None
        }
        final["kept"] = kept_share(self.evidence, recipe)
        final["compiling_s"] = COMPILE_S[1] if recipe.compiled else 0.0
        total = total_gain(self.evidence, final)
        if total is not None and total.speedup <= 1.0 and cold(recipe) != recipe:
            figure = f"{total.speedup:.2f}x, the first epoch among its epochs"
            keeping = [trial for trial in self.accepted if keeps_samples(trial)]
            self.trials = without(self.trials, keeping, f"and the whole run no faster: {figure}")
            yield from self.compare()  # the others were measured on top of them
            return
        self.final = final

    def write(self) -> None:
        """Keep what is known by now."""
        write(
            self.observed.session / TRIALS,
            {
                "trials": [msgspec.to_builtins(t) for t in self.trials],
                "final": self.final,
                "unfinished": self.unfinished,
            },
        )


def _why(measured: Gain | None, accepted: bool) -> str:
    if measured is None:
        return "could not be measured: too few steps"
    figure = measured.in_words
    if accepted:
        return f"measured {figure}"
    if measured.high < 1.0:
        return f"measured slower: {figure}"
    if is_vague(measured):
        return f"too few steps to tell: {figure}"
    return f"not clearly faster: {figure}"


def _why_none(whole: Gain, contest: Contest) -> str:
    """Why a whole recipe is none; empty where it is faster, clearly so if it was compared for long enough."""
    figure = whole.in_words
    if whole.high < 1.0:
        return f"and the whole recipe slower afterwards: {figure}"
    unclear = whole.low <= 1.0 and contest.rounds >= contest.min_rounds
    if unclear or whole.speedup < LEAST_BETTER:
        return f"and the whole recipe no faster: {figure}"
    return ""


def begin(spec: dict[str, Any]) -> None:
    """Start trying remedies on the target that is about to run in this process."""
    begin_there(spec, _observe)


def _observe(spec: dict[str, Any]) -> None:
    observed = Observed(spec, switching=True)
    Trials(observed)
    observed.begin()

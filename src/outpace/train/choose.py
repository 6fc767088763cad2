"""What "auto" chooses by trying: the largest rate, and strategies that the facts speak for.

First what costs nothing, and other ways to compute the same steps, which a handful of steps settle
(`outpace.train.faster`). Then the rate: lr_finder's, then trainings at three times what it tells and at a
third, on in the direction that is better, and what that ends at against the first one from more seeds.
First weights are tried before that, the other candidates after it, each on top of what was taken, and
then the rate once more if something was. All of it, lr_finder included, takes at most `SHARE` of the
training's time or steps, and next to nothing where that is too short for an answer. What is not clearly
better is left out (`outpace.train.trials.verdict` says how sure that is).

Of several ranks all try together; what the first one chose is what all of them do.

The rate is looked at only where both the rate and its course are left to "auto". With a target nothing
but steps and first weights is: it may be reached in less time than the trials of a whole budget take.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import final

from outpace.errors import UsageError
from outpace.records.training import Tried
from outpace.train import faster, ranks
from outpace.train.auto import Asked, Known, automatic, chosen
from outpace.train.candidates import CANDIDATES, Candidate, Settled
from outpace.train.expected import expected
from outpace.train.facts import Facts, facts_of
from outpace.train.optimizers import has_own_optimizer
from outpace.train.rate import LONG
from outpace.train.result import Choice, Spent
from outpace.train.strategies import STRATEGIES, Accumulation, LrFinder, Strategy
from outpace.train.strategies.base import FALLING, Course, check
from outpace.train.strategies.lr_finder import FEWEST_STEPS, LEAST, WITH_TRIALS, cost
from outpace.train.strategies.lr_finder import STEPS as FINDING
from outpace.train.trials import FORWARD, Parts, Purse, Trials, Variant, held_of

SHARE = WITH_TRIALS
"""of the training's time or steps that trials may take"""
PART, FEWEST = 0.01, 30
"""of the training's steps that one trial takes, and steps at least"""
LOOKS = 8
"""batches that are looked at first, and steps that tell how long one takes"""
TIMES, MOVES = 3.0, 3
"""how far the rate's neighbours are, and how often it may move to one"""
PAIRS, RUNS = 2, 6
"""seeds that an answer takes at least; trials of one about the rate"""
LOWER = 0.05
"""of the first loss that what is free is to save"""
GUARDS = {"divergence", "lr_finder", "target", "early_stopping"}
"""that trials go without"""
BY_METRIC = {candidate.name for candidate in CANDIDATES if candidate.by_metric}
BY_EPOCHS = {"batch_size", "batch_warmup", "loss_sampling", "subset"}
"""of which trials show nothing"""


def settled(
    parts: Parts, own: Sequence[Strategy], known: Known, say: Callable[[str], None]
) -> tuple[Choice, list[str], Spent]:
    """What is chosen, the notes that were told of it, and what it took. ``own``: the user's strategies."""
    choosing = Choosing(parts, own, known, say)
    try:
        choosing.settle()
    except Exception as error:
        choosing.note(f"auto: nothing more is tried ({type(error).__name__}: {error})")
    spent = choosing.purse.spent()
    return ranks.first((choosing.choice, choosing.notes, spent), parts.world)  # type: ignore[no-any-return]


@final
class Choosing:
    """The choice so far, and what it rests on."""

    def __init__(
        self, parts: Parts, own: Sequence[Strategy], known: Known, say: Callable[[str], None]
    ) -> None:
        self.parts, self.own, self.known, self.say = parts, own, known, say
        self.aims = known.target is not None or any(each.name == "target" for each in own)
        self.timed = parts.clock.seconds < math.inf
        steps = math.inf if parts.total is None else SHARE * parts.total
        self.purse = Purse(parts.clock.read, SHARE * parts.clock.seconds, steps)
        self.choice = Choice()
        self.notes: list[str] = []

    def settle(self) -> None:
        """Go through all of it, as far as there is room."""
        if not self.known.end or self.purse.steps < 2 * LOOKS:
            return
        few = Trials(self.looked_at(), steps=LOOKS, total=None, purse=self.purse, metric=False)
        if not self.affords(few, 1):
            return
        facts = self.facts(few)
        for candidate, why in self.suggested(facts, "the first loss"):
            self.take_free(few, candidate, why)
        for candidate, why in self.suggested(facts, "the time of a step"):
            self.take_faster(few, candidate, why)
        if self.aims and not facts.trained:  # of new weights alone it is known how many fewer
            for candidate, why in self.suggested(facts, "trials"):
                if candidate.fewer > 1.0:
                    self.take_fewer(few, candidate, why)
        begins = any(candidate.begins for candidate, _ in self.suggested(facts, "trials"))
        if self.aims and not begins:
            return  # it may be reached long before the end, of which trials would take their share
        total = self.steps_ahead(few)
        if total is None:
            return
        trials = Trials(
            self.parts,
            steps=length(total),
            total=min(total, LONG) if self.aims else total,  # as lr_finder reckons by itself
            purse=self.purse,
            metric=any(each.by_metric for each, _ in self.suggested(facts, "trials")),
        )
        trials.step_s = few.step_s
        if few.step_s:
            facts = facts._replace(input=trials.batch_s / few.step_s)
        facts = facts._replace(epochs=total / (self.parts.train.length or 1))
        finds = self.finds_rate()
        base = self.found(trials) if finds else self.variant("without it")
        tried = self.suggested(facts, "trials")
        for candidate, why in (each for each in tried if each[0].begins):
            base = self.attempt(trials, base, candidate, why)
        if self.aims:
            return
        if finds:
            base = self.moved(trials, base)
        before = self.choice.taken
        for candidate, why in (each for each in tried if not each[0].begins):
            base = self.attempt(trials, base, candidate, why)
        if finds and self.choice.taken != before:
            self.moved(trials, base)

    def looked_at(self) -> Parts:
        """The same, judged by batches to learn from where there are enough: each of those to validate on
        may be worth many steps.
        """
        enough = self.parts.train.whole is None or self.parts.train.whole >= 2 * LOOKS
        return self.parts._replace(valid=None) if enough else self.parts

    # --- what there is ---------------------------------------------------------------------------

    def facts(self, few: Trials) -> Facts:
        """Of model, data and the default's course."""
        module, objective = self.parts.module, self.parts.objective
        facts: Facts = ranks.first(
            facts_of(module, objective, self.parts.train, few.batches), self.parts.world
        )
        falls = any(strategy.name in FALLING for strategy in self.strategies())
        trained = facts.trained or any(each.name == "transfer" for each in self.own)
        return facts._replace(timed=self.timed, falls=falls, trained=trained)

    def steps_ahead(self, few: Trials) -> float | None:
        """How many steps the training will have, with a budget by how long one takes; None where they
        are too few for trials.
        """
        if not self.timed:
            return self.enough(self.parts.total or math.inf, 0.0)
        if not self.affords(few, 1):
            return None
        few.untrained(Variant("pace"))  # the first one warmed up
        long = few.step_s and self.enough(self.by_time(few), few.step_s) is None
        if long or not few.room(1):
            return None
        few.trained(self.variant("pace"), 0)
        return self.enough(self.by_time(few), few.step_s)

    def by_time(self, few: Trials) -> float:
        """Steps that there is time for."""
        by_time = self.parts.clock.seconds / few.step_s if few.step_s else math.inf
        return min(self.parts.total or math.inf, by_time)

    def enough(self, total: float, step_s: float) -> float | None:
        """As many steps, where an answer takes no more than the share of them."""
        steps = needed(total) if total < math.inf else math.inf
        if steps > min(SHARE * total, self.purse.steps):
            return None
        return total if self.purse.holds(0.0, steps * step_s) else None

    def affords(self, few: Trials, times: int) -> bool:
        """Whether there is time to judge so often."""
        return self.purse.holds(0.0, times * few.judging * few.step_s)

    def suggested(self, facts: Facts, by: Settled) -> list[tuple[Candidate, str]]:
        """Candidates that something speaks for, and that go with what there is."""
        found = []
        given = self.parts.optimizer is not None or any(map(has_own_optimizer, self.own))
        for candidate in CANDIDATES:
            why = candidate.why(facts) if candidate.by == by else None
            if why is None or (candidate.own_optimizer and given):
                continue
            if self.goes(candidate):
                gives = expected(candidate.name, facts)
                found.append((candidate, f"{why}; expected: {gives}" if gives else why))
        return found

    def goes(self, candidate: Candidate) -> bool:
        """Whether it goes with the user's strategies, and with what was taken so far."""
        try:
            strategies = self.strategies(candidate.name)
            check(strategies, validation=self.known.validation, end=self.known.end)
        except UsageError:
            return False
        return True

    def strategies(self, *more: str) -> list[Strategy]:
        """The default with what was taken so far, and with some more."""
        choice = Choice((*self.choice.taken, *more))
        return automatic(self.own, self.known, choice)[0]

    def variant(self, name: str, *more: str, rate: float | None = None) -> Variant:
        """The same, as trials take it: without guards, and without the user's own classes, which may do
        more than to train.
        """
        kinds = tuple(STRATEGIES.values())
        kept = (s for s in self.strategies(*more) if s.name not in GUARDS and isinstance(s, kinds))
        return Variant(name, tuple(kept), rate)

    # --- what is taken ---------------------------------------------------------------------------

    def take(self, *names: str, rate: float | None = None, tried: Sequence[Tried] = ()) -> None:
        """Add to the choice."""
        before = self.choice
        rate = before.rate if rate is None else rate
        self.choice = Choice((*before.taken, *names), rate, (*before.tried, *tried))
        for each in tried:
            self.note(each.told())

    def note(self, text: str) -> None:
        """Tell it, and keep it."""
        self.notes.append(text)
        self.say(text)

    def take_free(self, few: Trials, candidate: Candidate, why: str) -> None:
        """Take what costs nothing where the first loss is lower for it."""
        if not self.affords(few, 2):
            return
        try:
            loss = few.untrained(self.variant(candidate.name, candidate.name)).loss
        except Exception:
            return  # it does not apply here
        before = few.untrained(self.variant("without it")).loss
        saves = before - loss > LOWER * abs(before)
        self.note(
            f"{candidate.name} ({why}): the first loss is {loss:.3g} for {before:.3g}: "
            f"{'taken' if saves else 'left out'}"
        )
        if saves:
            self.take(candidate.name)

    def take_faster(self, few: Trials, candidate: Candidate, why: str) -> None:
        """Take what makes steps faster, on top of what does already."""
        if not self.can_time(few):
            return
        found = self.timed_steps(few, candidate, why, faster.WORTH)
        if found is not None:
            self.note(f"{candidate.name} ({why}): {found.told()}")
            if found.taken:
                self.take(candidate.name)

    def take_fewer(self, few: Trials, candidate: Candidate, why: str) -> None:
        """Take what is known to need fewer steps, unless these are seen to be too slow for it."""
        least, gain = faster.WORTH / candidate.fewer, None
        if self.can_time(few):
            found = self.timed_steps(few, candidate, why, least)
            if found is None:
                return
            gain = found.gain
        slow = gain is not None and gain.high < least
        if gain is None:
            came = "taken, with no time to see how long its steps are"
        else:
            came = f"{faster.in_words(gain)}: {'left out' if slow else 'taken'}"
        self.note(f"{candidate.name} ({why}): {came}")
        if not slow:
            self.take(candidate.name)

    def can_time(self, few: Trials) -> bool:
        """Whether there is time to compare steps."""
        if not self.affords(few, 1):
            return False
        few.untrained(Variant("pace"))  # what was timed so far warmed up
        steps = faster.COSTS + self.kept_for_rate(few)
        return self.purse.holds(steps, steps * few.step_s)

    def timed_steps(
        self, few: Trials, candidate: Candidate, why: str, least: float
    ) -> faster.Faster | None:
        """Steps with it against those without; None where it does not work, which is noted."""
        names = [each.name for each in CANDIDATES if each.by == "the time of a step"]
        before = tuple(STRATEGIES[name]() for name in self.choice.taken if name in names)
        base = Variant("as it is", before)
        other = Variant(candidate.name, (*before, STRATEGIES[candidate.name]()))
        try:
            return faster.compared(few, base, other, self.kept_for_rate(few), least)
        except Exception as error:
            self.note(f"{candidate.name} ({why}): {error}")
            return None

    def kept_for_rate(self, few: Trials) -> float:
        """Steps that are to be left where lr_finder would find a rate by itself: more hangs on that."""
        total, finder = self.by_time(few), LrFinder()
        finds = any(each.name == finder.name for each in self.strategies())
        if not finds or total == math.inf:
            return 0.0
        return LEAST if finder.room(int(total), together=self.parts.train.together) else 0.0

    def finds_rate(self) -> bool:
        """Whether the rate is for us to find, and its course for us to choose. Of batches that are small at
        first trials know nothing: lr_finder itself tries rates with those.
        """
        if any(isinstance(each, Course) or each.name == "batch_warmup" for each in self.own):
            return False
        return any(strategy.name == "lr_finder" for strategy in self.strategies())

    def found(self, trials: Trials) -> Variant:
        """The default at the rate that lr_finder tells."""
        usual = LrFinder(steps=FEWEST_STEPS) if self.aims else trials.finder
        trials.finder = next((s for s in self.own if isinstance(s, LrFinder)), usual)
        rate, words = trials.rate_of(self.variant("lr_finder"))
        for each in self.own:
            if isinstance(each, LrFinder):  # it does not come to run, and its svg() draws this
                each.made, each.found = trials.finder.made, trials.finder.found
        self.note(f"{words}; rates are tried over {trials.steps} steps")
        self.take(rate=rate)
        return self.variant(f"rate {rate:.2g}", rate=rate * trials.horizon)

    def moved(self, trials: Trials, base: Variant) -> Variant:
        """To the rate that is best around it.

        What suits a short training is between the rate itself and ``horizon`` times it. So larger rates
        are compared with all of them raised by that, smaller ones as they are: what is better then is
        so wherever between both the truth is.
        """
        assert base.rate is not None
        first = base.rate / trials.horizon
        for way, raised in ((1, trials.horizon), (-1, 1.0)):
            around = [self.at(base, first * TIMES ** (way * i), raised) for i in range(MOVES + 1)]
            if way > 0:
                around[0] = base  # of which something is known
            now = 0
            while now < MOVES:
                pair = around[now : now + 2]
                # Room is kept for another seed of both ends of the way.
                if not trials.room(trials.unknown(pair, 0) + PAIRS):
                    break
                tried = trials.contest(pair[0], [(pair[1], "")], seeds=1)
                self.take(tried=tried)
                if not any(each.verdict == "ahead" for each in tried):
                    break
                now += 1
            if now:
                tried = trials.contest(around[0], [(around[now], "")])
                self.take(tried=tried)
                if any(each.better for each in tried):
                    rate = first * TIMES ** (way * now)
                    self.take(rate=rate)
                    return self.at(base, rate, trials.horizon)
        return base

    def at(self, base: Variant, rate: float, raised: float) -> Variant:
        """The same at another rate."""
        return base._replace(name=f"rate {rate:.2g}", rate=rate * raised)

    def attempt(self, trials: Trials, base: Variant, candidate: Candidate, why: str) -> Variant:
        """Try a strategy against what was taken so far; the better of both."""
        name, rate = candidate.name, base.rate
        if not self.goes(candidate):
            return base
        finds = candidate.own_rate and rate is not None
        new = PAIRS + sum(trials.unknown([base], seed) for seed in range(PAIRS))
        # All but one of the trials that an answer takes: contest sees to the rest.
        if not trials.room(new - 1, cost(FINDING) if finds else 0.0):
            self.note(f"{name} ({why}): not tried, as trials have used their share")
            return base
        try:
            if finds:
                rate = trials.horizon * trials.rate_of(self.variant(name, name))[0]
        except Exception as error:
            self.note(f"{name} ({why}): {error}")
            return base
        other = self.variant(name, name, rate=rate)
        other = other._replace(timed=candidate.timed or base.timed, by_metric=candidate.by_metric)
        tried = trials.contest(base, [(other, why)])
        if not any(each.better for each in tried):
            self.take(tried=tried)
            return base
        self.take(name, rate=rate and rate / trials.horizon, tried=tried)
        return other


def length(total: float) -> int:
    """Steps of a trial, where the training has so many."""
    return max(FEWEST, int(PART * total))


def needed(total: float) -> float:
    """Steps that an answer about the rate takes."""
    steps = length(total)
    return cost(FINDING) + RUNS * steps + (RUNS + 1) * FORWARD * held_of(steps)


def compared(
    parts: Parts, known: Known, variants: Mapping[str, Asked], steps: int, seeds: int
) -> list[Tried]:
    """Each of ``variants`` against the first one, at the rates that lr_finder tells where none is given; all
    rates are raised alike, as short trainings bear larger ones than the whole one.
    """
    if len(variants) < 2 or seeds < PAIRS:
        raise UsageError(
            f"{len(variants)} variants from {seeds} seeds", f"give two or more, and {PAIRS} seeds"
        )
    purse = Purse(parts.clock.read, math.inf, math.inf)
    trials = Trials(parts, steps=steps, total=parts.total or LONG, purse=purse)
    found = []
    for name, asked in variants.items():
        strategies, _ = chosen(asked, known)
        check(strategies, validation=known.validation, end=True)
        if any(isinstance(each, Accumulation) and each.given is None for each in strategies):
            raise UsageError(
                f"{name}: accumulation finds its number before a whole training, and short ones have none",
                "give the number: Accumulation(4)",
            )
        if untold := [each.name for each in strategies if each.name in BY_EPOCHS]:
            raise UsageError(
                f"{name}: {', '.join(untold)} draws other samples, or other sizes of batches, as epochs go "
                "by; short trainings go through the same batches again and again",
                "compare whole trainings with and without it",
            )
        kept = tuple(each for each in strategies if each.name not in GUARDS)
        by_metric = parts.objective.metric is not None and any(s.name in BY_METRIC for s in kept)
        variant = Variant(name, kept, by_metric=by_metric)
        for each in strategies:
            if isinstance(each, LrFinder):
                trials.finder = each
                variant = variant._replace(rate=trials.rate_of(variant)[0])
        found.append(variant._replace(raised=trials.horizon))
    return trials.contest(found[0], [(each, "") for each in found[1:]], seeds)

"""outpace.Trainer as its docstring has it: it is given the budget and the target, and chooses."""

from typing import Any

from race import Race

from outpace import Trainer


class Told:
    """Notes the Trainer's own validations."""

    def __init__(self, race: Race) -> None:
        self.race = race

    def validated(self, run: Any) -> None:
        """One."""
        self.race.note(run.step, run.history[-1].metric)

    def end(self, run: Any) -> None:
        """What they took, by the last."""
        self.race.judging_s = run.clock.validation_s * len(run.history)


def train(race: Race) -> None:
    """Within the budget."""
    work = race.work
    trainer = Trainer(
        race.model,
        loss=work.loss,
        metric=work.metric(),
        larger_is_better=work.larger,
        train=race.train,
        valid=race.valid,
        batch_size=work.batch,
        budget=race.left_s,
        target=race.target,
        strategies="auto",
        validate_every=work.every,
        seed=race.seed,
        callbacks=[Told(race)],
    )
    result = trainer.fit(quiet=True)
    race.notes += [*result.notes, f"ended by {result.stopped} at step {result.steps}"]

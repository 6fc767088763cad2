"""THE table of learning-health rules: from losses and a few steps looked at closely to a finding.

What is judged is as much of the run as was watched, often its first some hundred steps: what comes
up later, overfitting for one, is told where a run is short or is watched for longer. Thresholds
name their source; "calibrated" ones were set on the cases of bench/truth/learning and the examples,
none of which was held out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from outpace.diagnose.rules_of_looks import (
    crossed_targets,
    dead_units,
    drops_in_evaluation,
    gradients_carried,
    gradients_lost,
    imbalance,
    not_optimized,
    not_reached,
    probabilities_as_logits,
    same_random_numbers,
    saturated_units,
    trains_in_evaluation_mode,
    unshuffled,
    validates_in_training_mode,
    vanishing,
)
from outpace.diagnose.rules_of_losses import (
    learns_nothing,
    noisy,
    overfitting,
    plateau,
)
from outpace.diagnose.rules_of_rates import (
    exploding,
    not_a_number,
    rate_gone,
    rate_too_high,
    rate_too_low,
)
from outpace.records.evidence import Evidence
from outpace.records.finding import Learning

Rule = Callable[[Evidence], Iterator[Learning]]

TABLE: tuple[Rule, ...] = (
    not_a_number,
    exploding,
    rate_too_high,
    rate_gone,
    probabilities_as_logits,
    crossed_targets,
    not_optimized,
    not_reached,
    gradients_carried,
    gradients_lost,
    unshuffled,
    same_random_numbers,
    rate_too_low,
    vanishing,
    dead_units,
    saturated_units,
    learns_nothing,
    plateau,
    noisy,
    overfitting,
    imbalance,
    validates_in_training_mode,
    drops_in_evaluation,
    trains_in_evaluation_mode,
)


def learning(evidence: Evidence) -> list[Learning]:
    """What the losses and the looks tell of the learning's health."""
    return [told for rule in TABLE for told in rule(evidence)]

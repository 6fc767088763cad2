"""What a strategy is expected to give before it is tried: by arithmetic from the facts, or by a paper.

In words, as what is gained is of different kinds: steps in the same time, fewer of them to the same loss,
a first loss that need not be learnt. Whether it comes true is what a trial tells beside it. Of some
nothing can be told beforehand, and nothing is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from outpace.train.facts import Facts
from outpace.train.strategies.progressive_resizing import ProgressiveResizing
from outpace.train.strategies.sequence_length import SequenceLength

FEWER = 1.35
"""times as few tokens to the same loss by Muon as by AdamW (Jordan et al. 2024, NanoGPT speedruns)"""


def expected(name: str, facts: Facts) -> str:
    """``steps 2.1 times as many in the same time ...``; nothing where nobody can tell."""
    tell = EXPECTED.get(name)
    return tell(facts) if tell is not None else ""


def first_loss(facts: Facts) -> str:
    """That of who guesses by how frequent classes are, the entropy of their shares; CTC has another."""
    if not facts.told:
        return ""
    by_chance = math.log(len(facts.classes))
    entropy = -math.fsum(share * math.log(share) for share in facts.classes if share > 0.0)
    return f"a cross-entropy of {entropy:.3g} at first, not {by_chance:.3g} or more"


def half_precision(facts: Facts) -> str:
    """Half the bytes; units for it multiply more often, but no step is products alone."""
    return "steps up to twice as fast where memory bounds them, and more where products do"


def smaller_images(facts: Facts) -> str:
    """Time goes with the pixels."""
    return f"{ProgressiveResizing().more():.1f} times as many steps in the same time, if it goes with pixels"


def shorter_sequences(facts: Facts) -> str:
    """Time goes with the tokens at least."""
    return f"{SequenceLength().more():.1f} times as many steps in the same time, if it goes with tokens"


def all_directions(facts: Facts) -> str:
    """Fewer steps, each of which takes longer."""
    long = 1.0 + facts.muon
    return (
        f"{FEWER / long:.2f} times as fast to the same loss: {FEWER} times as few steps (Jordan et al. "
        f"2024), each {long:.2f} times as long"
    )


def drawn_again(facts: Facts) -> str:
    """By the formula of LVIS, the threshold being an equal share."""
    rarest = min(facts.classes) * len(facts.classes)
    return f"the rarest class comes {max(1.0, 1.0 / math.sqrt(rarest)):.1f} times as often"


def no_fall(facts: Facts) -> str:
    """What the paper shows."""
    return "as good as the best fall to zero, wherever it ends (Defazio et al. 2024)"


EXPECTED: Mapping[str, Callable[[Facts], str]] = {
    "class_prior": first_loss,
    "bf16": half_precision,
    "fp16": half_precision,
    "progressive_resizing": smaller_images,
    "sequence_length": shorter_sequences,
    "muon": all_directions,
    "repeat_factor": drawn_again,
    "schedule_free": no_fall,
}

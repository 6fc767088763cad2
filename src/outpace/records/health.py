"""What a few steps that were looked at closely tell of learning; `diagnose.learning` judges it."""

from __future__ import annotations

import msgspec

HUGE = 1e30
"""for what is not finite, which JSON cannot tell"""
WEAK = 1e-6
"""largest |gradient| of a weight matrix, below which it is weak"""


class Health(msgspec.Struct, frozen=True):
    """Gradients, updates, activations and labels of the steps looked at."""

    update_ratio: float | None = None
    """|change of the weights| / |weights| a step: median over weight matrices, then over looks

    Matrices that began at zero, or whose gradient is 0, are left out."""
    first_update_ratio: float | None = None
    """the same at the first looks"""
    first_gradient: float | None = None
    """|gradient| / |weights| of all weight matrices, before the first update; `HUGE` if not finite"""
    first_where: str | None = None
    """the matrix whose gradient is largest there"""
    warming_up: bool = False
    """a schedule holds the learning rate far below what it will be"""
    rate_gone: tuple[float, float, int] | None = None
    """the largest learning rate, the one now, where that is next to nothing of it, and for how many steps it
    has been at the least"""
    learners: int = 1
    """models, or groups of them, that have optimizers of their own: adversaries, a policy and its critic"""
    acts: bool = False
    """no DataLoader feeds it, and numbers are drawn by what a model gave, a policy's actions, or one of its
    shapes tells what to learn, as in Q-learning
    """
    shuffles: bool | None = None
    """whether the DataLoader draws at random, or by a sampler of the script's, which may; None where there is
    none"""
    streams: bool = False
    """the DataLoader's is an IterableDataset, which has an order of its own"""
    weakest_gradient: float | None = None
    """largest |gradient| of the weight matrix where it is smallest"""
    weakest_where: str | None = None
    strongest_gradient: float | None = None
    weak_share: float = 0.0
    """of the weight matrices, those where it is below `WEAK`"""
    bad_gradient: str | None = None
    """the first parameter, from the input on, whose gradient was not finite"""
    bad_made: str | None = None
    """where the first loss that was not finite came from, in words"""
    noise_scale: float | None = None
    """samples in a batch at which noise and gradient are as large (McCandlish et al. 2018, B_simple)"""
    batch: int = 0
    """samples that a step learns from"""
    not_optimized: tuple[str, ...] = ()
    """parameters that get gradients and are in no optimizer"""
    without_gradient: tuple[str, ...] = ()
    """parameters that an optimizer is to change, which had no gradient and were not changed in many steps"""
    carried: bool = False
    """gradients of one step were still there when the next one's backward pass began"""
    lost_again: bool = False
    """gradients of a backward pass were gone before the step that it was for"""
    dead: float = 0.0
    """largest share of units of one ReLU that gave 0 for every sample of a batch, where that leaves fewer
    than the next layer has"""
    dead_layer: str | None = None
    saturated: float = 0.0
    """largest share of one sigmoid's or tanh's outputs that lie at its limits"""
    saturated_layer: str | None = None
    softmax_twice: str | None = None
    """line of a loss that takes a softmax of what a softmax gave; empty where that is not known"""
    sigmoid_twice: str | None = None
    """the same of a sigmoid"""
    crossed: str | None = None
    """line of a loss that holds each prediction, one a sample, against the targets of all samples"""
    labels: tuple[int, ...] = ()
    """how often each class was the label, the most frequent first"""
    classes: int = 0
    """outputs that the loss chooses from"""
    weighted: bool = False
    """the loss has a weight for each class"""
    purity: float | None = None
    """share of the most frequent label in a batch, on average"""
    validated_training: int = 0
    """calls without gradients, outside of steps, of a model in training mode with dropout or batch norm"""
    validated_where: str | None = None
    drops_in_evaluation: str | None = None
    """a function by which a model drops in evaluation mode too"""
    drops_where: str | None = None
    left_in_evaluation: int = 0
    """steps since a model with dropout or batch norm was in training mode last, in which it has learnt on"""
    left_where: str | None = None

    @property
    def need_not_fall(self) -> bool:
        """Whether losses are of adversaries, or of what acts: they do not tell how good the model is."""
        return self.learners > 1 or self.acts

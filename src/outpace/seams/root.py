"""What is known of a root: a module that the script calls itself, and not another module."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Caller = tuple[str, str, int, tuple[str, ...]]
"""file, function, line, and the variables there that hold a model's input"""


@dataclass
class Evaluations:
    """A model's calls without learning that were taken for a validation."""

    helps: bool = False
    """they belong to the steps, as those of a teacher do"""
    calls: int = 0
    with_grad: int = 0
    with_grad_where: str | None = None
    in_training: int = 0
    in_training_where: str | None = None
    draws: bool | None = None
    """a call in evaluation mode drew random numbers, and is to be looked into; None until it was asked"""
    drops: str | None = None
    """the function that dropped in one"""
    drops_where: str | None = None


@dataclass
class RootFacts:
    """A module that the script calls itself, as it was seen."""

    training_calls: int = 0
    since: int = 0
    """steps before the first of these"""
    learns: bool = False
    """called to learn since the first step: before it a model may be tried out"""
    in_training: bool = False
    """called to learn in training mode"""
    trained_at: int = 0
    """steps before its newest call to learn in training mode"""
    trained: int = 0
    """steps with such a call"""
    taught_in_evaluation: bool = False
    """it was learnt from in evaluation mode, after it was in training mode"""
    taught: bool = False
    """an optimizer that was stepped has parameters of it; known of models in evaluation mode alone"""
    steppers: int = 0
    """optimizers that had been stepped when that was asked"""
    looks: int = 0
    """at calls to learn, from where a backward pass came after one"""
    called_at: Any = None
    """its newest call to learn: the code and the line"""
    learnt_at: set[Any] = field(default_factory=set)
    """where a backward pass came after the call"""
    where: str | None = None
    callers: list[Caller] = field(default_factory=list)
    """outwards from the call"""
    has_parameters: bool = False
    gradients_pass: bool = True
    """through what it gave last; else it is no part of the model, as a metric or a mix of samples is none"""
    channels_last: bool = False
    behaves_otherwise: bool | None = None
    """in training mode than in evaluation; None until it was asked"""
    asked_at: int = -1
    """steps before its newest call without learning"""
    asked: int = 0
    """steps in a row with such a call"""
    evaluations: Evaluations = field(default_factory=Evaluations)
    compiled: Any = None

"""Trainings whose loop is a library's, transformers' Trainer or Lightning's: their length, and their end.

They are asked where they train, by attributes that both have had for years; where one is missing, or
a training has no end, nothing is known. Neither package is imported.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

from outpace.measure.expressions import Unknown, variable
from outpace.seams.where import is_user_file

ENTRIES = ("train", "fit")
"""their functions that train"""
TRANSFORMERS = ("transformers.trainer",)
LIGHTNING = ("lightning.pytorch.trainer.trainer", "pytorch_lightning.trainer.trainer")


def library_ends() -> bool:
    """Whether a library's loop around the calling step ends after it: it is asked to."""
    return any(map(ask_to_end, trainers(sys._getframe(1))))


def library_judges() -> bool:
    """Whether a library's loop around the calling step validates once more where it is asked to end."""
    return any(map(judges_at_end, trainers(sys._getframe(1))))


def trainers(frame: FrameType | None) -> Iterator[Any]:
    """Of the libraries' frames around a step, the innermost first."""
    while frame is not None:
        if not is_user_file(frame.f_code.co_filename):
            yield trainer_of(frame)
        frame = frame.f_back


def trainer_of(frame: FrameType) -> Any:
    """What a library's function around the step may train with."""
    if frame.f_code.co_name not in ENTRIES:
        return None
    try:
        return variable(frame, "self")
    except Unknown:
        return None


def knows(trainer: Any) -> bool:
    """Whether it is one that can be asked."""
    return trainer is not None and (_is_of(TRANSFORMERS, trainer) or _is_of(LIGHTNING, trainer))


def steps_of(trainer: Any) -> int | None:
    """Steps from where a trainer began, or went on from a checkpoint; None where it does not tell."""
    try:
        if _is_of(TRANSFORMERS, trainer):
            return _of_transformers(trainer)
        if _is_of(LIGHTNING, trainer):
            return _of_lightning(trainer)
    except (AttributeError, TypeError, ValueError):
        pass
    return None


def ask_to_end(trainer: Any) -> bool:
    """Have a trainer end its training after this step, as it does where it stops early; whether it will."""
    if _is_of(TRANSFORMERS, trainer) and hasattr(trainer, "control"):
        trainer.control.should_training_stop = True
        # As at its own end: what is done every so many steps is done after the last one.
        trainer.control.should_save |= _strategy(trainer, "save_strategy") == "steps"
        trainer.control.should_evaluate |= _strategy(trainer, "eval_strategy") == "steps"
        return True
    if _is_of(LIGHTNING, trainer) and hasattr(trainer, "should_stop"):
        trainer.should_stop = True
        # below `min_epochs` or `min_steps` it goes on, and ends when it has come to them
        return bool(getattr(getattr(trainer, "fit_loop", None), "_can_stop_early", True))
    return False


def judges_at_end(trainer: Any) -> bool:
    """Whether a trainer that is asked to end validates before it does."""
    if _is_of(TRANSFORMERS, trainer):
        return _strategy(trainer, "eval_strategy") in ("steps", "epoch")
    return _is_of(LIGHTNING, trainer) and bool(getattr(trainer, "enable_validation", False))


def _strategy(trainer: Any, name: str) -> str:
    """When transformers' Trainer saves, or evaluates: ``no``, ``steps`` or ``epoch``."""
    found = getattr(getattr(trainer, "args", None), name, "no")
    return str(getattr(found, "value", found))


def _of_transformers(trainer: Any) -> int:
    before = getattr(trainer, "_initial_global_step", None)
    if (
        before is None
    ):  # older ones tell where they are alone; the step that is running is not counted yet
        before = max(0, getattr(trainer.state, "global_step", 0) - 1)
    return int(trainer.state.max_steps - before)


def _is_of(library: tuple[str, ...], trainer: Any) -> bool:
    kinds = type(trainer).__mro__
    return any(kind.__name__ == "Trainer" and kind.__module__ in library for kind in kinds)


def _of_lightning(trainer: Any) -> int | None:
    epochs, most, gone = trainer.max_epochs, trainer.max_steps, trainer.global_step
    several = len(getattr(trainer, "optimizers", ()))
    if several > 1 and not trainer.lightning_module.automatic_optimization:
        # It counts the steps of all of them.
        most, gone = most // several if most and most > 0 else most, gone // several
    limits = [most] if most is not None and most >= 0 else []
    epoch = trainer.num_training_batches / trainer.accumulate_grad_batches
    if epochs is not None and epochs >= 0 and math.isfinite(epoch):
        limits.append(epochs * math.ceil(epoch))
    # The step that is running is not counted yet; those of a checkpoint are.
    return int(min(limits)) - max(0, int(gone) - 1) if limits else None

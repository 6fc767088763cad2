"""What a Trainer is given: mistakes that can be seen before anything is computed are told at once.

What only a batch can show (shapes, kinds of numbers, labels out of range) is left to torch.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset

from outpace.errors import UsageError
from outpace.seams.held import held_by
from outpace.serve.loader import Loader
from outpace.train.data import is_ready
from outpace.train.objective import Objective
from outpace.train.optimizers import check_steps
from outpace.train.strategies.base import EVENTS, Strategy, listens

LONGEST_SAMPLE = 16
"""parts of a sample that is a list: more are samples"""
OPTIMIZER = (
    "give an optimizer of torch, made of model.parameters(), or a function from parameters to one: "
    "optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1)"
)


def check_whole(name: str, number: Any, least: int | None = None) -> None:
    """Raise UsageError unless it is None or a whole number of that size."""
    if number is None:
        return
    try:
        whole = operator.index(number)
        enough = least is None or whole >= least
    except TypeError:
        enough = False
    if not enough:
        size = "" if least is None else f", {least} or more"
        raise UsageError(f"{name}={number!r}", f"{name} is a whole number{size}")


def check_target(target: Any, valid: Any) -> None:
    """Raise UsageError where it cannot be reached, or be told to be."""
    if target is None:
        return
    if not isinstance(target, int | float | np.number) or not math.isfinite(target):
        raise UsageError(f"target={target!r}", "it is a number: target=0.94")
    if valid is None:
        raise UsageError(f"a target of {target:g}, and no valid=", "give data to validate on")


def check_model(model: Any) -> None:
    """Raise UsageError where it is none."""
    if isinstance(model, type) and issubclass(model, torch.nn.Module):
        raise UsageError(
            f"model is the class {model.__name__}", f"give a model: {model.__name__}(...)"
        )
    if not isinstance(model, torch.nn.Module):
        raise UsageError(f"a {type(model).__name__} is no torch.nn.Module", "give the model")


def check_optimizer(optimizer: Any, model: torch.nn.Module, objective: Objective) -> None:
    """Raise UsageError where it would learn nothing of what is given, or cannot be stepped."""
    if optimizer is None or (
        callable(optimizer) and not isinstance(optimizer, torch.optim.Optimizer)
    ):
        return
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise UsageError(f"optimizer={optimizer!r}", OPTIMIZER)
    check_steps(optimizer)
    has = held_by(optimizer)
    modules = (model, *objective.losses.values())
    if not any(id(weight) in has for module in modules for weight in module.parameters()):
        raise UsageError(
            "optimizer= has none of the model's weights",
            "make it of the model that is given: torch.optim.AdamW(model.parameters())",
        )


def check_rows(name: str, source: Any) -> None:
    """Raise UsageError for what cannot be indexed, and for tensors or arrays together that are no data set of
    their rows.

    Not to be asked of a list of ready batches.
    """
    if isinstance(source, IterableDataset):
        raise UsageError(
            f"{name}= is an IterableDataset, of which no sample can be drawn by its index",
            f"give {name}=DataLoader(data, batch_size=64), or batch_size=None where it gives batches",
        )
    if isinstance(source, Mapping):
        raise UsageError(
            f"{name}= is a {type(source).__name__} with the keys {', '.join(map(repr, list(source)[:3]))}",
            f"give a tuple of tensors, {name}=(x, y), or a data set whose samples are dicts",
        )
    if hasattr(source, "iloc"):
        raise UsageError(
            f"{name}= is a {type(source).__name__}, whose [index] is a column",
            f"give tensors: {name}=(torch.tensor(frame[inputs].values).float(), "
            "torch.tensor(frame[target].values)), .float() too where the target is a quantity",
        )
    if not isinstance(source, tuple | list) or not 1 < len(source) < 4:
        return  # a list of more is a data set of samples
    kinds = {type(part) for part in source}
    if np.ndarray in kinds and kinds <= {np.ndarray, torch.Tensor}:
        raise UsageError(
            f"{name}= is a {type(source).__name__} of arrays",
            f"give tensors: {name}=(torch.from_numpy(x).float(), torch.from_numpy(y)), .float() too "
            "where y is a quantity",
        )
    if isinstance(source, tuple) and any(map(is_column, source)):
        told = " and ".join(dict.fromkeys(type(part).__name__ for part in source))
        raise UsageError(
            f"{name}= is a tuple of {told}, of which each would be one sample",
            f"give tensors, {name}=(x, y), or a list of samples: list(zip(x, y))",
        )
    if kinds != {torch.Tensor} or any(part.dim() == 0 for part in source):
        return
    rows = [len(part) for part in source]
    if isinstance(source, list) and len({part.shape for part in source}) > 1:
        raise UsageError(f"{name}= is a list of tensors", f"give a tuple: {name}=(x, y)")
    if isinstance(source, tuple) and len(set(rows)) > 1:
        told = " and ".join(f"{count:,}" for count in rows)
        raise UsageError(
            f"{name}= has tensors of {told} rows", "each row of one goes with that of the others"
        )


def is_column(part: Any) -> bool:
    """Whether it has a value of each sample, and is none itself: a column of a table, or a long list."""
    return hasattr(part, "iloc") or (isinstance(part, list) and len(part) > LONGEST_SAMPLE)


def check_made(name: str, source: Any, batch_size: int | None, **settings: Any) -> None:
    """Raise UsageError for settings of how batches are made where a source gives them ready."""
    if source is None or not is_ready(source, batch_size):
        return
    for setting, value in settings.items():
        if value is not None:
            loader = isinstance(source, DataLoader | Loader)
            to = f"the {type(source).__name__}" if loader else "what makes the batches"
            raise UsageError(
                f"{setting}= would not be used: {name}= gives ready batches",
                f"give it to {to}, or give {name}= the data set, and batch_size=",
            )


def check_callbacks(callbacks: Any) -> None:
    """Raise UsageError for those that would never be called."""
    if not isinstance(callbacks, Sequence) or isinstance(callbacks, str):
        raise UsageError(f"callbacks={callbacks!r}", "give a list: callbacks=[...]")
    for each in callbacks:
        if isinstance(each, type):
            raise UsageError(f"callbacks= has the class {each.__name__}", f"give {each.__name__}()")
        if isinstance(each, Strategy):
            raise UsageError(
                f"callbacks= has the strategy {type(each).__name__}",
                f"give it to strategies=: ['auto', {type(each).__name__}(...)]",
            )
        if not callable(each) and not listens(each):
            raise UsageError(
                f"callbacks= has a {type(each).__name__} without a method for any event",
                f"events are {', '.join(EVENTS)}",
            )

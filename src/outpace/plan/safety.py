"""A checkpoint that is written before a training is ended: what the script would need to go on.

``torch.load(path)`` reads it with ``weights_only=True``: ``models`` (averages over steps among them),
``optimizers``, ``schedulers`` and ``scalers`` (state dicts of modules, optimizers, learning-rate schedulers
and GradScalers; the order of several means nothing), ``weights`` (those that the optimizers learn and no
model holds, in their order), ``random`` (states of the generators of torch, numpy and Python) and ``steps``.
It is written within the last step's ``optimizer.step()``: schedulers and scalers are as that call found them.
"""

from __future__ import annotations

import gc
import io
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.amp import GradScaler
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.swa_utils import AveragedModel

from outpace.measure.generators import random_states
from outpace.measure.machine import free_memory
from outpace.seams.batch import map_tensors
from outpace.seams.held import held_by, learned_by

ROOM = 0.8
"""share of main memory that is free which a device's tensors may take: who takes it all is killed"""


class Saved(NamedTuple):
    """What came of it."""

    left_out: tuple[str, ...]
    """classes whose state, or the part of it that is named, cannot be loaded again"""
    written_s: float
    """of the file alone, once all that goes into it was found"""


def write_checkpoint(path: Path, optimizers: Iterable[torch.optim.Optimizer], steps: int) -> Saved:
    """Write it whole or not at all; OSError where it cannot be written."""
    optimizers = list(optimizers)
    # Looked for only here: watching the calls of all modules would cost every step.
    kinds = (torch.nn.Module, LRScheduler, GradScaler)
    objects = [each for each in gc.get_objects() if issubclass(type(each), kinds)]
    models = models_of(optimizers, objects)
    models += averages_of(models, objects)
    held = {id(weight) for model in models for weight in model.parameters()}
    guides = guides_of(optimizers, objects)
    states = [(each, _plain_state(each)) for each in guides]
    kept = [(each, state) for each, state in states if state is not None]
    left_out: list[str] = []
    content = {
        "models": [_of_model(model, left_out) for model in models],
        "weights": [each.detach() for each in learned_by(optimizers) if id(each) not in held],
        "optimizers": [_of_optimizer(optimizer, left_out) for optimizer in optimizers],
        "schedulers": [state for each, state in kept if isinstance(each, LRScheduler)],
        "scalers": [state for each, state in kept if isinstance(each, GradScaler)],
        "random": random_states(),
        "steps": steps,
    }
    began = time.perf_counter()
    if (needed := bytes_elsewhere(content)) and needed > ROOM * free_memory():
        raise OSError(f"main memory has no room for {needed / 2**30:.1f} GiB of a device's")
    write(path, on_host(content))
    written_s = time.perf_counter() - began
    saved = {id(each) for each, _ in kept}
    left_out += [type(each).__name__ for each in guides if id(each) not in saved]
    return Saved(tuple(left_out), written_s)


def _plain_state(guide: LRScheduler | GradScaler) -> dict[str, Any] | None:
    """Its state where that is plain: a scheduler that a user wrote may hold functions and more."""
    try:
        state = plain(guide.state_dict())
    except Exception:
        return None
    return state if loadable(state) else None


def _of_model(model: torch.nn.Module, left_out: list[str]) -> dict[str, Any]:
    """Its state, without what a module adds to it that cannot be loaded again."""
    state = model.state_dict()
    for name, value in list(state.items()):
        if not isinstance(value, torch.Tensor):
            state[name] = plain(value)
            if not loadable(state[name]):
                del state[name]
                left_out.append(f"{type(model).__name__}.{name}")
    return state


def _of_optimizer(optimizer: torch.optim.Optimizer, left_out: list[str]) -> dict[str, Any]:
    """Its state, without settings of its groups that cannot be loaded again, as functions."""
    state: dict[str, Any] = plain(optimizer.state_dict())
    for group in state["param_groups"]:
        for name in [name for name, value in group.items() if not loadable(value)]:
            del group[name]
            left_out.append(f"{type(optimizer).__name__}.{name}")
    return state


def plain(value: Any) -> Any:
    """The same with numpy's numbers as Python's, which `torch.load` takes."""
    if isinstance(value, np.generic):
        return value.item()
    if type(value) is dict:
        return {plain(key): plain(item) for key, item in value.items()}
    return type(value)(map(plain, value)) if type(value) in (list, tuple) else value


def loadable(value: Any) -> bool:
    """Whether it can be loaded again; what tensors hold is not looked at."""
    file = io.BytesIO()
    try:
        torch.save(map_tensors(value, _empty, dataclasses=False), file)
        file.seek(0)
        torch.load(file, weights_only=True)
    except Exception:
        return False
    return True


def _empty(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty(0, dtype=tensor.dtype)


def bytes_learnt(optimizers: Iterable[torch.optim.Optimizer]) -> int:
    """Of the weights that optimizers learn, and of what they keep of each: about those of a checkpoint."""
    states = [state for each in optimizers for state in each.state.values()]
    kept = [value for state in states if isinstance(state, dict) for value in state.values()]
    learned = learned_by(optimizers)
    return sum(each.nbytes for each in [*learned, *kept] if isinstance(each, torch.Tensor))


def bytes_elsewhere(content: Any) -> int:
    """Of the tensors that `on_host` copies."""
    held: dict[int, int] = {}

    def noted(tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_cpu:
            storage = tensor.untyped_storage()
            held[storage.data_ptr()] = max(held.get(storage.data_ptr(), 0), storage.nbytes())
        return tensor

    map_tensors(content, noted, dataclasses=False)
    return sum(held.values())


def on_host(content: Any) -> Any:
    """The same with a GPU's tensors in main memory, for machines without one; shared ones stay shared."""
    copies: dict[tuple[Any, ...], torch.Tensor] = {}

    def copied(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.is_cpu:
            return tensor
        at = (
            tensor.untyped_storage().data_ptr(),
            tensor.storage_offset(),
            tensor.shape,
            tensor.stride(),
        )
        if at not in copies:
            copies[at] = tensor.detach().cpu()
        return copies[at]

    return map_tensors(content, copied, dataclasses=False)


def write(path: Path, content: Any) -> None:
    """Write a file whole or not at all, and have it on the disk; OSError where that fails."""
    part = path.with_suffix(".part")
    try:
        with part.open("wb") as file:
            torch.save(content, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except BaseException as error:
        part.unlink(missing_ok=True)
        if isinstance(error, RuntimeError) and (full := of_disk(error)) is not None:
            raise full from None
        raise


def of_disk(error: BaseException | None) -> OSError | None:
    """The OSError behind an error: torch's writer of files puts a RuntimeError in its place."""
    while error is not None and not isinstance(error, OSError):
        error = error.__context__
    return error


def is_sharded(optimizer: torch.optim.Optimizer) -> bool:
    """Whether its weights are parts of larger ones, which only all ranks together could save."""
    return any(
        hasattr(weight, "device_mesh")
        or type(weight).__name__ == "FlatParameter"
        or getattr(weight, "_fsdp_flattened", False)  # a part of one, with use_orig_params=True
        for weight in learned_by([optimizer])
    )


def models_of(
    optimizers: Iterable[torch.optim.Optimizer], objects: Iterable[Any]
) -> list[torch.nn.Module]:
    """The outermost modules that hold what the optimizers learn."""
    learned = held_by(*optimizers)
    found = [
        each
        for each in objects
        if issubclass(type(each), torch.nn.Module)
        and any(id(weight) in learned for weight in each.parameters())
    ]
    inner = {id(child) for each in found for child in each.modules() if child is not each}
    return [each for each in found if id(each) not in inner]


def averages_of(models: Iterable[torch.nn.Module], objects: Iterable[Any]) -> list[torch.nn.Module]:
    """The outermost modules of other weights like theirs: averages over steps, that a script may judge by."""
    models = list(models)
    there = {id(inner) for model in models for inner in model.modules()}
    shapes = [_shapes(model) for model in models]
    found = [
        each
        for each in objects
        if issubclass(type(each), torch.nn.Module)
        and id(each) not in there
        and (isinstance(each, AveragedModel) or _shapes(each) in shapes)
    ]
    inner = {id(child) for each in found for child in each.modules() if child is not each}
    return [each for each in found if id(each) not in inner]


def _shapes(model: torch.nn.Module) -> dict[str, torch.Size]:
    return {name: weight.shape for name, weight in model.named_parameters()}


def guides_of(
    optimizers: Iterable[torch.optim.Optimizer], objects: Iterable[Any]
) -> list[LRScheduler | GradScaler]:
    """The outermost schedulers of these optimizers, and the GradScalers that are in use."""
    guided = {id(optimizer) for optimizer in optimizers}
    found: list[LRScheduler | GradScaler] = [
        each for each in objects if issubclass(type(each), (LRScheduler, GradScaler))
    ]
    inner = {id(child) for each in found for child in vars(each).get("_schedulers", ())}
    return [
        each
        for each in found
        if id(each) not in inner
        and (
            each.is_enabled()
            if isinstance(each, GradScaler)
            else id(vars(each).get("optimizer")) in guided
        )
    ]

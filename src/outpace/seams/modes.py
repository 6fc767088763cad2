"""Training and evaluation mode of a model's layers, each put back as it was."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from torch import nn


def set_modes(modes: Mapping[nn.Module, bool]) -> None:
    """Of layers, outer ones first. Their own ``train`` may do more than to set a flag: merge what is learnt
    into a weight, empty what was kept.
    """
    for layer, mode in modes.items():
        if layer.training != mode:
            layer.train(mode)
    for layer, mode in modes.items():
        layer.training = mode


@contextmanager
def modes_kept(model: nn.Module) -> Iterator[None]:
    """Afterwards layers are in training or in evaluation mode as they were."""
    modes = {layer: layer.training for layer in model.modules()}
    try:
        yield
    finally:
        set_modes(modes)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Inside, all of it is in evaluation mode."""
    with modes_kept(model):
        model.eval()
        yield

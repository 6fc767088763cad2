"""muon: matrices between the first and the last layer move in all directions alike."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, final

import torch
from torch import nn
from torch.optim import AdamW, Optimizer

from outpace.errors import UsageError
from outpace.train.optimizers import RATE, fusible, groups, matrices
from outpace.train.rate import EMBEDDINGS
from outpace.train.strategies.base import Strategy

if TYPE_CHECKING:
    from outpace.train.run import Run


@final
class MuonAdamW(Optimizer):
    """torch's Muon for ``matrices`` and its AdamW for ``others``, which is groups of parameters.

    Both step on the groups and the state of this one: to schedules, checkpoints, copies and those who
    count steps it is one optimizer. Muon's updates are scaled to the size of AdamW's (Liu et al. 2025,
    section 2.2), so that one rate suits both.
    """

    def __init__(
        self,
        matrices: list[nn.Parameter],
        others: list[dict[str, Any]],
        rate: float = RATE,
        *,
        weight_decay: float = 0.01,
        momentum: float = 0.95,
        fused: bool | None = None,
    ) -> None:
        self.inner: tuple[Optimizer, ...] = (
            torch.optim.Muon(
                matrices,
                rate,
                weight_decay=weight_decay,
                momentum=momentum,
                adjust_lr_fn="match_rms_adamw",
            ),
            AdamW(others or [{"params": []}], rate, weight_decay=weight_decay, fused=fused),
        )
        own = [group for each in self.inner for group in each.param_groups]
        super().__init__(own, self.inner[1].defaults)

    def __getstate__(self) -> dict[str, Any]:
        """What a copy is made of: torch would leave both out."""
        return {**super().__getstate__(), "inner": self.inner}

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """One step of both; there is no closure."""
        for inner in self.inner:
            takes = isinstance(inner, torch.optim.Muon)
            inner.state = self.state
            inner.param_groups = [g for g in self.param_groups if ("ns_steps" in g) == takes]
            # Not inner.step(): torch's hooks would tell of three steps where there is one.
            inspect.unwrap(type(inner).step)(inner)


@final
class Muon(Strategy):
    """Muon for the matrices of hidden layers, AdamW for all other weights, as one optimizer.

    What: the momentum of a matrix's gradient is made orthogonal, nearly so, by five Newton-Schulz
    steps before it is used, so that directions which are rare in the gradients are learnt as fast as
    the others. First and last layer, embeddings, biases, norms and convolutions have AdamW. Any course
    of the rate goes with it, and rates are as large as AdamW's. Momentum stays at ``momentum``.
    Helps: transformers and deep nets of linear layers, whose gradients are of low rank: fewer steps
    to the same loss, and half of the optimizer's memory for these matrices.
    Harms: its step costs about 5 n / B of the forward and backward pass, n the shorter side of the
    matrices, B the samples or tokens of a batch: with fewer than some tens of n of them it takes
    longer than it saves, as in most trainings on a CPU. A weight that holds several matrices, as the
    gates of a GRU, is taken for one. Weights that AdamW has trained gain less.
    Source: Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks"; Liu et al.
    2025, arXiv 2502.16982 (Muon is scalable for LLM training).
    """

    name = "muon"
    sets = ("the optimizer",)

    def __init__(self, *, weight_decay: float = 0.01, momentum: float = 0.95) -> None:
        self.weight_decay, self.momentum = weight_decay, momentum

    def optimizer(self, model: nn.Module) -> Optimizer:
        """Both."""
        matrices = hidden(model)
        if not matrices:
            raise UsageError(
                "muon: the model has no matrices between its first and its last layer",
                "leave it out: without them it is AdamW",
            )
        ours = {id(parameter) for parameter in matrices}
        others = groups(model, self.weight_decay)
        for group in others:
            group["params"] = [p for p in group["params"] if id(p) not in ours]
        return MuonAdamW(
            matrices,
            [group for group in others if group["params"]],
            weight_decay=self.weight_decay,
            momentum=self.momentum,
            fused=fusible(model) or None,
        )

    def begin(self, run: Run) -> None:
        """Say what is whose."""
        if not isinstance(run.optimizer, MuonAdamW):
            kind = type(run.optimizer).__name__
            raise UsageError(
                f"muon has an optimizer of its own, and optimizer= is {kind}", "leave one out"
            )
        counts = {True: 0, False: 0}
        for group in run.optimizer.param_groups:
            counts["ns_steps" in group] += sum(p.numel() for p in group["params"])
        run.note(f"muon: {counts[True]:,} weights by Muon, {counts[False]:,} by AdamW")


def hidden(model: nn.Module) -> list[nn.Parameter]:
    """Matrices of the layers between the first and the last one that a model defines.

    Those of embeddings are none, nor those that stand beside layers, such as embeddings of places, nor
    scales of norms.
    """
    whole = matrices(model)
    owned = [
        (layer, parameter)
        for layer in model.modules()
        for parameter in layer.parameters(recurse=False)
        if id(parameter) in whole
        and (isinstance(layer, nn.MultiheadAttention) or not any(layer.children()))
    ]
    if not owned:
        return []
    ends = {owned[0][0], owned[-1][0]}
    tied = {id(p) for layer, p in owned if layer in ends or isinstance(layer, EMBEDDINGS)}
    found = {id(p): p for _, p in owned if p.requires_grad and p.dim() == 2 and id(p) not in tied}
    return list(found.values())

"""muon: matrices between the first and the last layer move in all directions alike."""

from __future__ import annotations

import inspect
import math
from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, final

import torch
from torch import nn
from torch.optim import AdamW, Optimizer

from outpace.errors import UsageError
from outpace.train.layers import CONVOLUTIONS
from outpace.train.native import has_bf16
from outpace.train.optimizers import RATE, TABLES, check_dense, fusible, groups, matrices
from outpace.train.strategies.base import Strategy

if TYPE_CHECKING:
    from outpace.train.run import Run


STEPS = 5
A, B, C = 3.4445, -4.7750, 2.0315
"""of Newton and Schulz's, and their coefficients, by which all singular values end at 0.7 to 1.2 (Jordan)"""
GATES = {nn.GRU: 3, nn.GRUCell: 3, nn.LSTM: 4, nn.LSTMCell: 4}
SIZE = 0.2
"""of AdamW's updates, root mean square (Liu et al. 2025, equation 4)"""
TINY = 1e-7


def orthogonal(matrices: torch.Tensor) -> torch.Tensor:
    """The nearest orthogonal matrices, nearly so: U V' of each U S V'.

    ``matrices``: (matrices, rows, columns), made all at once, in bfloat16 where the device has it and in
    float32 elsewhere. Jordan et al. 2024: X <- a X + (b X X' + c (X X')^2) X.
    """
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if tall else matrices
    x = x.to(torch.bfloat16 if has_bf16(matrices.device.type) else torch.float32)
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=TINY)
    for _ in range(STEPS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=B, alpha=C), x, beta=A)
    return x.mT if tall else x


@final
class MuonAdamW(Optimizer):
    """Muon for ``matrices`` and torch's AdamW for ``others``, both groups of parameters.

    AdamW steps on the groups and the state of this one: to schedules, checkpoints, copies and those who
    count steps it is one optimizer. Muon's updates are scaled to the size of AdamW's (Liu et al. 2025,
    section 2.2), so that one rate suits both. torch has a Muon, which takes one matrix after the other,
    and in bfloat16 wherever it is. A group's ``parts``: matrices below each other that each of its
    weights holds; a kernel is a matrix with a row for each channel that it makes.
    """

    def __init__(
        self,
        matrices: list[dict[str, Any]],
        others: list[dict[str, Any]],
        rate: float = RATE,
        *,
        weight_decay: float = 0.01,
        momentum: float = 0.95,
        fused: bool | None = None,
    ) -> None:
        self.adamw = AdamW(others or [{"params": []}], rate, weight_decay=weight_decay, fused=fused)
        own = {"lr": rate, "weight_decay": weight_decay, "momentum": momentum}
        groups = [*({**own, **group} for group in matrices), *self.adamw.param_groups]
        super().__init__(groups, self.adamw.defaults)

    def __getstate__(self) -> dict[str, Any]:
        """What a copy is made of: torch would leave AdamW out."""
        return {**super().__getstate__(), "adamw": self.adamw}

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """One step of both; there is no closure."""
        for group in filter(is_muons, self.param_groups):
            self.turn(group)
        self.adamw.state = self.state
        self.adamw.param_groups = [g for g in self.param_groups if not is_muons(g)]
        # Not adamw.step(): torch's hooks would tell of two steps where there is one.
        inspect.unwrap(AdamW.step)(self.adamw)

    def turn(self, group: dict[str, Any]) -> None:
        """Muon's step, for matrices of one shape at once."""
        weights = [weight for weight in group["params"] if weight.grad is not None]
        if not weights:
            return
        gradients: list[Any] = [weight.grad for weight in weights]
        means = [self.mean_of(weight) for weight in weights]
        torch._foreach_lerp_(means, gradients, 1.0 - group["momentum"])
        ahead = torch._foreach_lerp(gradients, means, group["momentum"])  # as Nesterov's
        alike: dict[Any, list[int]] = defaultdict(list)
        for place, weight in enumerate(weights):
            alike[weight.shape, weight.dtype, weight.device, type(weight)].append(place)
        rate = float(group["lr"])
        torch._foreach_mul_(weights, 1.0 - rate * group["weight_decay"])
        for places in alike.values():
            parts = [as_matrices(ahead[place], group["parts"]) for place in places]
            found = orthogonal(torch.cat(parts))
            scale = -rate * SIZE * math.sqrt(max(found.shape[1:]))
            for place, update in zip(places, found.chunk(len(places)), strict=True):
                weights[place].add_(update.reshape(weights[place].shape), alpha=scale)

    def mean_of(self, weight: nn.Parameter) -> torch.Tensor:
        """Of its gradients so far."""
        state = self.state[weight]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(weight)
        found: torch.Tensor = state["momentum_buffer"]
        return found


def as_matrices(weight: torch.Tensor, parts: int) -> torch.Tensor:
    """(parts, rows, columns). What is in shards is one matrix: its parts may lie across them."""
    rows = weight.flatten(1)
    return rows.reshape(1 if hasattr(weight, "full_tensor") else parts, -1, rows.shape[1])


def is_muons(group: dict[str, Any]) -> bool:
    """Whether its weights are matrices that Muon moves."""
    return "momentum" in group


@final
class Muon(Strategy):
    """Muon for the matrices of hidden layers, AdamW for all other weights, as one optimizer.

    What: the momentum of a matrix's gradient is made orthogonal, nearly so, by five Newton-Schulz
    steps before it is used, so that directions which are rare in the gradients are learnt as fast as
    the others. A convolution's kernel is a matrix with a row for each channel that it makes; gates of
    recurrent layers, and queries, keys and values of `MultiheadAttention`, are matrices each. First and
    last layer, embeddings, biases, norms and convolutions in groups have AdamW. Any course of the rate
    goes with it, and rates are as large as AdamW's. Momentum stays at ``momentum``.
    Helps: transformers and deep nets of linear layers and convolutions, whose gradients are of low rank:
    fewer steps to the same loss, and half of the optimizer's memory for these matrices.
    Harms: its step costs about 5 n / B of the forward and backward pass, n the shorter side of the
    matrices, B the samples, tokens or places of a batch: with fewer than some tens of n of them it takes
    longer than it saves, as in most trainings of tables. Queries, keys and values in one linear layer
    are taken for one matrix. Weights that AdamW has trained gain less.
    Source: Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks"; Liu et al.
    2025, arXiv 2502.16982 (Muon is scalable for LLM training).
    """

    name = "muon"
    sets = ("the optimizer",)

    def __init__(self, *, weight_decay: float = 0.01, momentum: float = 0.95) -> None:
        self.weight_decay, self.momentum = weight_decay, momentum

    def optimizer(self, model: nn.Module) -> Optimizer:
        """Both."""
        check_dense(model, "muon")
        found = hidden(model)
        if not found:
            raise UsageError(
                "muon: the model has no matrices between its first and its last layer",
                "leave it out: without them it is AdamW",
            )
        matrices: dict[int, list[nn.Parameter]] = defaultdict(list)
        for weight, parts in found:
            matrices[parts].append(weight)
        ours = {id(weight) for weight, _ in found}
        others = groups(model, self.weight_decay)
        for group in others:
            group["params"] = [p for p in group["params"] if id(p) not in ours]
        return MuonAdamW(
            [{"params": weights, "parts": parts} for parts, weights in matrices.items()],
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
            counts[is_muons(group)] += sum(p.numel() for p in group["params"])
        run.note(f"muon: {counts[True]:,} weights by Muon, {counts[False]:,} by AdamW")


def hidden(model: nn.Module) -> list[tuple[nn.Parameter, int]]:
    """Matrices of the layers between the first and the last one that a model defines, and how many each
    of these weights holds.

    Those of embeddings are none, nor those that stand beside layers, such as embeddings of places, nor
    scales of norms, nor kernels of a few channels each.
    """
    whole = matrices(model)
    owned = [
        (layer, name, weight)
        for layer in model.modules()
        for name, weight in layer.named_parameters(recurse=False)
        if id(weight) in whole
        and (isinstance(layer, nn.MultiheadAttention) or not any(layer.children()))
    ]
    if not owned:
        return []
    ends = {owned[0][0], owned[-1][0]}
    tied = {
        id(w)
        for layer, name, w in owned
        if isinstance(layer, TABLES)
        or (layer in ends and (not isinstance(layer, nn.RNNBase) or "ih_l0" in name))
    }
    found = {
        id(w): (w, parts)
        for layer, name, w in owned
        if w.requires_grad and id(w) not in tied and (parts := parts_of(layer, name, w))
    }
    return list(found.values())


def parts_of(layer: nn.Module, name: str, weight: nn.Parameter) -> int:
    """How many matrices a weight of a layer holds; none where it is no matrix, or one of complex numbers."""
    if weight.is_complex():
        return 0
    if isinstance(layer, CONVOLUTIONS):
        # A transposed one has a row for each channel that it is given.
        return 1 if layer.groups == 1 else 0
    if weight.dim() != 2:
        return 0
    if name == "in_proj_weight":
        return 3
    gates = next((count for kind, count in GATES.items() if isinstance(layer, kind)), 1)
    return 1 if name.startswith("weight_hr") else gates

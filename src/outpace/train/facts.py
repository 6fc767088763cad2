"""What a model and its first batches look like, before the first step: what "auto" goes by."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from outpace.errors import UsageError
from outpace.serve.loader import Loader
from outpace.train.data import Batches
from outpace.train.layers import MULTIPLY, look_at, traceless
from outpace.train.native import has_bf16, has_fp16_alone
from outpace.train.objective import PAIRS, Objective
from outpace.train.pretrained import pretrained
from outpace.train.strategies.class_prior import ignored
from outpace.train.strategies.dropout_off import dropped
from outpace.train.strategies.ema import SHORT
from outpace.train.strategies.muon import STEPS, hidden
from outpace.train.strategies.progressive_resizing import side_of
from outpace.train.strategies.sequence_length import length_of
from outpace.train.unreduced import unreduced

MOST_CLASSES = 10_000
ROUNDED = 0.1
"""of the deviation of targets that outputs may be rounded by"""
NORMS = torch.nn.modules.batchnorm._BatchNorm


class Facts(NamedTuple):
    """``classes``: the share of each class among the targets seen; ``side``: of images; ``length``: of
    sequences with a target for each token; ``deviations``: between samples, of what each layer gives,
    in their order, the last one left out; ``samples``: batches are drawn by a Loader; ``input``: how
    many times as long as a step it takes to make a batch; ``timed``: the end is a time; ``falls``: the
    rate is zero there. ``alone``: each sample has one target; ``told``: the loss can tell that of each;
    ``accuracy``: the metric is the share of targets that are told right. ``dropout``: the highest;
    ``epochs``: of the training. ``hidden``: share of the weights in the matrices that Muon is for, between
    the first and the last layer; ``muon``: of a step's time that Muon would take for them. ``halves``:
    weights are in float32, the device has bfloat16 too and targets are told apart in it; ``scaled``: it
    has float16 alone. ``short``: some weights are in half precision; ``turned``: there are images, and
    convolutions whose weights do not lie with their channels innermost; ``trained``: weights were
    trained before.
    """

    classes: tuple[float, ...] = ()
    side: tuple[int, int] | None = None
    length: int | None = None
    deviations: tuple[float, ...] = ()
    batch_norm: bool = False
    samples: bool = False
    input: float = 0.0
    metric: bool = False
    timed: bool = False
    falls: bool = True
    alone: bool = False
    told: bool = False
    accuracy: bool = False
    dropout: float = 0.0
    epochs: float = math.inf
    hidden: float = 0.0
    muon: float = math.inf
    halves: bool = False
    scaled: bool = False
    turned: bool = False
    short: bool = False
    trained: bool = False


def facts_of(
    module: torch.nn.Module, objective: Objective, train: Batches, batches: Sequence[Any]
) -> Facts:
    """What can be seen of them; what the training is to be is left as it is."""
    classes = classes_of(batches, ignored(objective.loss))
    inner, muon = matrices_of(module, objective, batches[0])
    return Facts(
        classes=classes,
        side=side_of(batches[0]),
        length=tokens_told(batches[0]),
        deviations=deviations_of(module, objective, batches[0]),
        batch_norm=has_batch_norm(module),
        samples=isinstance(train.source, Loader),
        metric=objective.metric is not None,
        alone=bool(classes) and batches[0][1].dim() == 1,
        told=tells_each(objective.loss),
        accuracy=bool(classes) and is_accuracy(module, objective, batches),
        dropout=max((each.share for each in dropped(module)), default=0.0),
        hidden=inner,
        muon=muon,
        halves=halves(module) and told_apart(batches, torch.bfloat16),
        scaled=halves(module, has_fp16_alone) and told_apart(batches, torch.float16),
        short=any(weight.dtype in SHORT for weight in module.parameters()),
        turned=side_of(batches[0]) is not None and turned(module),
        trained=pretrained(module),
    )


def halves(module: torch.nn.Module, has: Callable[[str], bool] = has_bf16) -> bool:
    """Whether it could be called in a precision that its device ``has``, and is not called in any."""
    weights = [weight for weight in module.parameters() if weight.is_floating_point()]
    kinds = {(weight.device.type, weight.dtype) for weight in weights}
    if len(kinds) != 1:
        return False
    device, kind = next(iter(kinds))
    return kind is torch.float32 and has(device) and not torch.is_autocast_enabled(device)


def told_apart(batches: Sequence[Any], kind: torch.dtype) -> bool:
    """Whether targets that are quantities vary by far more than outputs of that precision are rounded by:
    years around 1990, 8 apart in bfloat16, do not.
    """
    floating = [
        each
        for each in targets_of(batches)
        if isinstance(each, torch.Tensor) and each.is_floating_point()
    ]
    values = [each.detach().flatten().float() for each in floating]
    if sum(each.numel() for each in values) < 2:
        return True
    together = torch.cat(values)
    rounded = torch.finfo(kind).eps * together.abs().max()
    return bool(rounded <= ROUNDED * together.std()) or not bool(together.isfinite().all())


def turned(module: torch.nn.Module) -> bool:
    """Whether its convolutions of images look at them channel by channel."""
    kinds = (torch.nn.Conv2d, torch.nn.ConvTranspose2d)
    found = [each.weight for each in module.modules() if isinstance(each, kinds)]
    return bool(found) and not all(
        weight.is_contiguous(memory_format=torch.channels_last) for weight in found
    )


def has_batch_norm(module: torch.nn.Module) -> bool:
    """Whether it keeps statistics of batches."""
    return any(isinstance(each, NORMS) for each in module.modules())


def targets_of(batches: Sequence[Any]) -> list[Any]:
    """Of batches that are pairs."""
    return [batch[1] for batch in batches if isinstance(batch, PAIRS) and len(batch) == 2]


def classes_of(batches: Sequence[Any], ignore: int = -100) -> tuple[float, ...]:
    """The share of each class that is seen; none where targets are no numbers of classes."""
    targets = targets_of(batches)
    if not targets or not all(isinstance(each, torch.Tensor) for each in targets):
        return ()
    kinds = [each.dtype for each in targets]
    if any(kind.is_floating_point or kind.is_complex or kind == torch.bool for kind in kinds):
        return ()
    counts: Counter[int] = Counter()
    for each in targets:  # all together are a picture's worth of numbers for each sample
        flat = each.flatten().cpu().long()  # among bytes -100 would be class 156
        seen = torch.unique(flat[(flat >= 0) & (flat != ignore)], return_counts=True)
        counts.update(dict(zip(*(part.tolist() for part in seen), strict=True)))
        if len(counts) > MOST_CLASSES:
            return ()
    total = counts.total()
    return tuple(counts[number] / total for number in sorted(counts))


def tells_each(loss: Any) -> bool:
    """Whether it can tell the loss of each target."""
    try:
        unreduced(loss, "auto")
    except UsageError:
        return False
    return True


def is_accuracy(module: torch.nn.Module, objective: Objective, batches: Sequence[Any]) -> bool:
    """Whether the metric is the share of targets that the largest output tells, on outputs by chance."""
    if objective.metric is None or objective.gathers or objective.takes_model:
        return False
    with traceless(module):
        outputs, _ = objective.given(module, batches[0])
    targets = torch.cat([batch[1].flatten() for batch in batches])
    if (
        not isinstance(outputs, torch.Tensor)
        or outputs.dim() != 2
        or len(torch.unique(targets)) < 2
    ):
        return False
    chance = torch.Generator().manual_seed(0)
    drawn = torch.rand(len(targets), outputs.shape[1], generator=chance).to(outputs)
    share = float((drawn.argmax(1) == targets).float().mean())
    try:
        return math.isclose(float(objective.metric(drawn, targets)), share, abs_tol=1e-6)
    except Exception:
        return False  # it is the user's, and may want more of its outputs


def matrices_of(module: torch.nn.Module, objective: Objective, batch: Any) -> tuple[float, float]:
    """Of the matrices that Muon is for: their share of the weights, and of a step's time that it takes.

    By operations, as of Jordan et al. 2024: six for each weight and place that it is multiplied at, in the
    forward and the backward pass; 4 m m n + 2 m m m for each of Newton and Schulz's steps on a matrix
    with sides m <= n.
    """
    found = hidden(module)
    total = sum(weight.numel() for weight in module.parameters())
    if not found:
        return 0.0, math.inf
    step = 0.0

    def look(name: str, layer: Any, given: tuple[Any, ...], output: Any) -> None:
        nonlocal step
        weights = [weight for weight in layer.parameters(recurse=False) if weight.dim() > 1]
        step += 6.0 * sum(weight.numel() for weight in weights) * places_of(layer, given, output)

    look_at(module, objective, batch, look, MULTIPLY)
    muon = 0.0
    for weight, parts in found:
        m, n = sorted((weight.shape[0] // parts, weight[0].numel()))
        muon += parts * STEPS * (4.0 * m * m * n + 2.0 * m**3)
    share = sum(weight.numel() for weight, _ in found) / total
    return share, muon / step if step else math.inf


def places_of(layer: Any, given: tuple[Any, ...], output: Any) -> float:
    """How often a layer's weights are multiplied with what it is given: samples, times tokens or pixels."""
    inputs = getattr(given[0], "data", given[0])  # of a packed sequence
    if isinstance(layer, torch.nn.RNNBase | torch.nn.MultiheadAttention | torch.nn.Linear):
        return float(inputs.numel() / inputs.shape[-1])
    if layer.transposed:
        return float(inputs.numel() / layer.in_channels)
    return float(output.numel() / layer.out_channels)


def tokens_told(batch: Any) -> int | None:
    """How long sequences are, where there is something to be told at each of their tokens."""
    length = length_of(batch)
    if length is None or not isinstance(batch, PAIRS) or len(batch) != 2:
        return None
    targets = batch[1]
    told = isinstance(targets, torch.Tensor) and targets.dim() > 1 and targets.shape[1] == length
    return length if told else None


def deviations_of(module: torch.nn.Module, objective: Objective, batch: Any) -> tuple[float, ...]:
    """Of what each linear and convolutional layer gives, the last one left out."""
    found: list[float] = []

    def look(name: str, layer: Any, given: tuple[Any, ...], output: torch.Tensor) -> None:
        # Over samples: what is the same for all of them, a bias, tells nothing of them.
        found.append(float(output.float().std(0).mean()))

    look_at(module, objective, batch, look)
    return tuple(found[:-1])

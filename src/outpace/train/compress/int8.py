"""Weights in int8 after training: a quarter of the bytes, and faster products where they are large.

Weights of linear, recurrent and convolutional layers and of embeddings become int8, each output (each
gate's of recurrent layers, each row of an embedding) with a scale of its own, symmetric around zero
(Krishnamoorthi 2018, arXiv 1806.08342, sections 2 and 3). Several models are made, and the fastest whose
metric is kept is taken: linear layers either multiply in int8 on the CPU, each row of their inputs rounded
as it comes, or multiply their weights out at each call, as convolutions and recurrent layers do, whose
float kernels then run; and with torchao's layers, where that is installed.

`torch.ao.quantization` and tensors of quantized dtypes are not used: torch 2.13 deprecates both. Left as
they are: recurrent cells, attention and transposed convolutions, layers of fewer than 256 weights, and
subclasses.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, final

import torch
from torch import nn
from torch.nn import functional as F

from outpace.errors import UsageError
from outpace.seams.batch import to_float32
from outpace.train.compress.judging import Judging
from outpace.train.compress.result import Made

LEAST = 256
"""weights of a layer below which its scales and its overhead are not worth it"""
CONVOLVE: dict[type[nn.Module], Callable[..., torch.Tensor]] = {
    nn.Conv1d: F.conv1d,
    nn.Conv2d: F.conv2d,
    nn.Conv3d: F.conv3d,
}
RECURRENT = (nn.LSTM, nn.GRU, nn.RNN)
SIZES = (
    "input_size",
    "hidden_size",
    "num_layers",
    "bias",
    "batch_first",
    "dropout",
    "bidirectional",
    "proj_size",
)
"""that models read of their recurrent layers"""
WHOLE = (nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)
"""modules that use their layers' weights without calling them"""
PRODUCT: Callable[..., torch.Tensor] | None = getattr(torch, "_int_mm", None)
"""int8 [rows, in] and [in, out] -> int32 [rows, out]; not a public name, so it may go"""


def quantized(model: nn.Module, judging: Judging, allowed: float) -> list[Made]:
    """``model`` with int8 weights, in all the ways that there are."""
    linear = any(is_linear(layer) for layer in model.modules())
    plain = copy.deepcopy(model)
    count = replace(plain, products=False)
    if not count:
        raise UsageError(f"no layer of {type(model).__name__} has weights that can be int8")
    weights = f"the weights of {count} {'layer' if count == 1 else 'layers'} are int8"
    made = [Made(plain, f"{weights}, multiplied out at each call")]
    if linear and PRODUCT is not None:
        multiplying = copy.deepcopy(model)
        replace(multiplying, products=True)
        made.insert(0, Made(multiplying, f"{weights}, as are the products of linear ones"))
    if linear and find_spec("torchao") is not None:
        by_torchao(model)
        replace(model, products=False)
        said = (
            f"the weights of {count} layers are int8, linear ones by torchao (save its state_dict)"
        )
        made.append(Made(model, said))
    problems = [problem(each.model, judging) for each in made]
    if all(problems):
        raise UsageError(f"with int8 weights the model does not run: {problems[0]}")
    return [each for each, why in zip(made, problems, strict=True) if why is None]


def problem(model: nn.Module, judging: Judging) -> str | None:
    """Why a model cannot be called, if so: its code may read a weight that is no longer there."""
    try:
        with torch.no_grad():
            judging.call(model)
    except (RuntimeError, AttributeError, TypeError, NotImplementedError) as error:
        return str(error) or type(error).__name__
    return None


def is_linear(layer: nn.Module) -> bool:
    """Whether it is a linear layer whose weights are worth it."""
    return type(layer) is nn.Linear and layer.weight.numel() >= LEAST


def replace(model: nn.Module, *, products: bool) -> int:
    """Have a model's layers store int8, in place, and linear ones multiply in it; how many did."""
    found, made = eligible(model), dict[int, nn.Module]()
    for name, layer in found.items():
        if id(layer) not in made:  # else it has several names, and stays one layer
            made[id(layer)] = int8_layer(layer, products=products)
        put(model, name, made[id(layer)])
    return len(made)


def eligible(model: nn.Module) -> dict[str, nn.Module]:
    """The layers inside of a model that there are int8 ones for, by all of their names."""
    named = list(model.named_modules(remove_duplicate=False))
    whole = tuple(f"{name}." for name, module in named if isinstance(module, WHOLE) and name)
    return {n: layer for n, layer in named if n and fits(layer) and not n.startswith(whole)}


def put(model: nn.Module, name: str, layer: nn.Module) -> None:
    """Have a layer stand where another of a model has its name."""
    parent, _, own = name.rpartition(".")
    setattr(model.get_submodule(parent), own, layer)


def fits(layer: nn.Module) -> bool:
    """Whether there is an int8 layer for one, and its weights are worth it."""
    if layer._forward_hooks or layer._forward_pre_hooks or "forward" in vars(layer):
        return False  # they would go with the layer
    if type(layer) in RECURRENT:
        weights = list(layer.parameters())
        plain = all(type(weight) is nn.Parameter for weight in weights)
        # What is pruned or normalised by hooks has fewer weights of its own.
        whole = len(weights) == len(layer.all_weights) * len(layer.all_weights[0])  # type: ignore[arg-type, index]
        return plain and whole and max(weight.numel() for weight in weights) >= LEAST
    weight = getattr(layer, "weight", None)
    if type(weight) is not nn.Parameter or weight.numel() < LEAST or weight.is_complex():
        return False
    if type(layer) is nn.Embedding:
        return layer.max_norm is None
    return type(layer) is nn.Linear or (
        type(layer) in CONVOLVE and getattr(layer, "padding_mode", None) == "zeros"
    )


def int8_layer(layer: nn.Module, *, products: bool = False) -> nn.Module:
    """The same layer with int8 weights; of those that `fits`."""
    if type(layer) is nn.Linear:
        return Int8Linear(layer, products=products)
    if type(layer) is nn.Embedding:
        return Int8Embedding(layer)
    if isinstance(layer, nn.RNNBase):
        return Int8Recurrent(layer)
    return Int8Convolution(layer)


def rounded(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """int8 values, and a scale for each index of the first dimension (shaped to be multiplied with)."""
    wide = to_float32(
        values.detach()
    )  # in bfloat16 the largest would come out as 128, which int8 does not hold
    largest = wide.flatten(1).abs().amax(1).clamp(min=1e-30)
    scale = (largest / 127.0).view(-1, *[1] * (values.dim() - 1))
    return (wide / scale).round_().to(torch.int8), scale.to(values.dtype)


class Int8Layer(nn.Module):
    """Abstract. A layer with int8 weights and their scales."""

    int8: torch.Tensor
    scale: torch.Tensor
    bias: torch.Tensor | None

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        super().__init__()
        int8, scale = rounded(weight)
        self.register_buffer("int8", int8)
        self.register_buffer("scale", scale)
        self.register_buffer("bias", None if bias is None else bias.detach().clone())

    def multiplied(self) -> torch.Tensor:
        """The weights that the int8 values stand for."""
        return self.int8 * self.scale

    def extra_repr(self) -> str:
        """The weights' shape."""
        return " x ".join(map(str, self.int8.shape))


@final
class Int8Linear(Int8Layer):
    """``nn.Linear``. ``products``: of a CPU's float32 inputs are made in int8, with a scale for each row."""

    def __init__(self, layer: nn.Linear, *, products: bool) -> None:
        super().__init__(layer.weight, layer.bias)
        self.in_features, self.out_features = layer.in_features, layer.out_features
        self.products = products

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., in] -> [..., out]."""
        suits = x.device.type == "cpu" and x.dtype == torch.float32 and x.numel() > 0
        if PRODUCT is None or not (self.products and suits):
            return F.linear(x, self.multiplied(), self.bias)
        rows, scale = rounded(x.reshape(-1, self.in_features))
        found = PRODUCT(rows, self.int8.t()) * scale * self.scale.view(-1)
        if self.bias is not None:
            found += self.bias
        return found.view(*x.shape[:-1], self.out_features)


@final
class Int8Convolution(Int8Layer):
    """``nn.Conv1d``, ``nn.Conv2d`` and ``nn.Conv3d`` that pad with zeros."""

    def __init__(self, layer: Any) -> None:
        super().__init__(layer.weight, layer.bias)
        self.convolve = CONVOLVE[type(layer)]
        self.settings = (layer.stride, layer.padding, layer.dilation, layer.groups)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """As the layer's."""
        return self.convolve(x, self.multiplied(), self.bias, *self.settings)


@final
class Int8Embedding(Int8Layer):
    """``nn.Embedding``: only the rows that are looked up are multiplied out."""

    def __init__(self, layer: nn.Embedding) -> None:
        super().__init__(layer.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[...] -> [..., size]."""
        return self.int8[x] * self.scale[x].view(*x.shape, 1)


@final
class Int8Recurrent(nn.Module):
    """``nn.LSTM``, ``nn.GRU`` and ``nn.RNN``; biases stay as they are."""

    def __init__(self, layer: nn.RNNBase) -> None:
        super().__init__()
        self.names: dict[str, bool] = {}
        """of the weights, and whether they are int8"""
        for name in SIZES:
            vars(self)[name] = getattr(layer, name)
        shell = copy.deepcopy(layer)
        for name, weight in layer.named_parameters():
            self.names[name] = weight.dim() > 1
            if weight.dim() > 1:
                int8, scale = rounded(weight)
                self.register_buffer(f"{name}_int8", int8)
                self.register_buffer(f"{name}_scale", scale)
            else:
                self.register_buffer(name, weight.detach().clone())
            delattr(shell, name)
            setattr(shell, name, None)
        vars(self)["shell"] = shell  # the layer without weights, and no part of this one's state

    def forward(self, x: Any, hx: Any = None) -> Any:
        """As the layer's."""
        layer = copy.deepcopy(vars(self)["shell"])  # its own for each thread that calls
        layer.train(self.training)
        for name, is_int8 in self.names.items():
            if is_int8:
                weight = getattr(self, f"{name}_int8") * getattr(self, f"{name}_scale")
            else:
                weight = getattr(self, name)
            setattr(layer, name, weight)
        return layer(x, hx)

    def flatten_parameters(self) -> None:
        """As some models ask for; there is nothing to flatten."""

    def extra_repr(self) -> str:
        """The layer's."""
        return f"{vars(self)['shell']}"


def by_torchao(model: nn.Module) -> None:
    """Linear layers of int8 weights and inputs, in place."""
    from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_

    # Else it sets options of torch.compile for the whole process.
    config = Int8DynamicActivationInt8WeightConfig(set_inductor_config=False)
    quantize_(model, config, filter_fn=lambda layer, name: is_linear(layer))

"""How each operation of a model's graph passes channels on: a rule for each.

A tensor's layout says in which dimension its channels are, and whose they are. A rule takes a node and
gives the layout of its output; None where that has no channels that could be removed: those that come to
the node are kept then.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, final

import torch
from torch import fx, nn

from outpace.train.compress.graph import Shapes, unusual
from outpace.train.compress.layouts import Channels, Layout, Part
from outpace.train.layers import KINDS

NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
SIZES = {"size", "getattr", "dim", "ndim", "getitem", "len"}
"""what a tensor's shape is asked by"""
ELEMENTWISE = """
    relu relu6 leakyrelu elu selu celu gelu silu mish tanh sigmoid logsigmoid hardtanh hardswish
    hardsigmoid softplus softsign threshold dropout dropout1d dropout2d dropout3d alphadropout
    identity abs exp log sqrt square sin cos neg clamp contiguous float half bfloat16 to type
    detach clone pow add sub mul div truediv iadd isub imul itruediv radd rmul rsub maximum
    minimum where lerp addcmul
"""
POOLS = [
    *(f"{a}{k}pool{d}d" for a in ("", "adaptive") for k in ("max", "avg") for d in (1, 2, 3)),
    *("upsample", "interpolate", "upsamplingnearest2d", "upsamplingbilinear2d"),
]
REDUCTIONS = ("mean", "sum", "amax", "amin", "squeeze")


@final
class Walk:
    """Goes through a graph in the order of its calls; ``made``: all channels that layers make."""

    def __init__(self, model: nn.Module, graph: fx.Graph, shapes: Shapes) -> None:
        self.modules = dict(model.named_modules())
        self.shapes = shapes
        self.unusual = unusual(model, graph)
        self.layouts: dict[fx.Node, Layout] = {}
        self.made: list[Channels] = []
        for node in graph.nodes:
            layout = self.layout(node)
            if layout is not None:
                self.layouts[node] = layout

    def layout(self, node: fx.Node) -> Layout | None:
        """Of what a node gives."""
        if node.op in ("placeholder", "get_attr"):
            return None
        if node.op == "output":
            return self.keep(node, "are what the model gives")
        kind = self.kind(node)
        if node not in self.shapes:
            return None if kind in SIZES else self.keep(node, f"go through {kind}")
        layer = self.layer(node)
        if layer is not None:
            if why := self.unusual.get(str(node.target)):
                return self.keep(node, f"go through {node.target}, which {why}")
            if type(layer) in KINDS:
                return self.mixed(node, layer)
            if type(layer) in NORMS:
                return self.carried(node)
        rule = RULES.get(kind)
        return rule(self, node) if rule is not None else self.keep(node, f"go through {kind}")

    def kind(self, node: fx.Node) -> str:
        """``relu`` for nn.ReLU, torch.relu, F.relu and x.relu_()."""
        layer = self.layer(node)
        target = type(layer) if layer is not None else node.target
        return str(getattr(target, "__name__", target)).replace("_", "").lower()

    def layer(self, node: fx.Node) -> nn.Module | None:
        """The module that a node calls, if it does."""
        return self.modules[str(node.target)] if node.op == "call_module" else None

    def keep(self, node: fx.Node, why: str) -> Layout | None:
        """All channels that come to a node."""
        for source in node.all_input_nodes:
            if source in self.layouts:
                for channels, _ in self.layouts[source].parts:
                    root = channels.root()
                    root.kept = root.kept or why
        return None

    def source(self, node: fx.Node) -> Layout | None:
        """The layout of a node's first input."""
        inputs = node.all_input_nodes
        return self.layouts.get(inputs[0]) if inputs else None

    def given(self, node: fx.Node) -> torch.Size:
        """The shape of a node's first input."""
        return self.shapes[node.all_input_nodes[0]]

    def rank(self, node: fx.Node) -> int:
        """Dimensions of what a node gives."""
        return len(self.shapes[node])

    # --- layers --------------------------------------------------------------------------------

    def mixed(self, node: fx.Node, layer: Any) -> Layout | None:
        """A layer that reads channels and makes others."""
        linear = type(layer) is nn.Linear
        if not linear and self.rank(node) != layer.weight.dim():
            return self.keep(node, "are not in batches")
        if not linear and layer.groups > 1:
            depthwise = layer.groups == layer.in_channels == layer.out_channels
            return self.carried(node) if depthwise else self.keep(node, "are read in groups")
        layout, name = self.source(node), str(node.target)
        at = self.rank(node) - 1 if linear else 1
        if layout is not None and layout.dim == at:
            for channels, slot in layout.slots(name):
                channels.readers.append(slot)
        else:
            self.keep(node, "are not what the layer mixes")
        made = Channels(layer.out_features if linear else layer.out_channels)
        made.makers.append(name)
        self.made.append(made)
        return Layout(at, (Part(made, 1),))

    def carried(self, node: fx.Node) -> Layout | None:
        """A layer that has weights for each channel by itself."""
        layout = self.source(node)
        if layout is None or layout.dim != 1:
            return self.keep(node, "are in another dimension than the layer's")
        for channels, slot in layout.slots(str(node.target)):
            channels.carriers.append(slot)
        return layout

    # --- operations ----------------------------------------------------------------------------

    def elementwise(self, node: fx.Node) -> Layout | None:
        """Tensors of one shape or broadcast to it, each element by itself."""
        shape = self.shapes[node]
        inputs = [each for each in node.all_input_nodes if each in self.shapes]
        # Dimensions from the end, where shapes are aligned.
        layouts = {n: self.layouts[n] for n in inputs if n in self.layouts}
        at = {layout.dim - self.rank(n) for n, layout in layouts.items()}
        if len(at) != 1:
            return self.keep(node, "meet others in another dimension")
        dim = at.pop()
        for each in inputs:
            size = self.shapes[each][dim] if self.rank(each) >= -dim else 1
            if size != shape[dim] if each in layouts else size != 1:
                return self.keep(node, "meet values that are not of the same channels")
        first, *others = layouts.values()
        widths = [(channels.size, width) for channels, width in first.parts]
        for other in others:
            if [(channels.size, width) for channels, width in other.parts] != widths:
                return self.keep(node, "meet others that are put together in another way")
            for one, two in zip(first.parts, other.parts, strict=True):
                one.channels.join(two.channels)
        return Layout(dim + len(shape), first.parts)

    def pooled(self, node: fx.Node) -> Layout | None:
        """Places are put together, channels are not."""
        layout = self.source(node)
        if layout is None or layout.dim != 1 or self.rank(node) < 3:
            return self.keep(node, "are pooled")
        return layout

    def reduced(self, node: fx.Node) -> Layout | None:
        """Some dimensions are gone."""
        layout, dims = self.source(node), whole(argument(node, 1, "dim"))
        if layout is None or not dims:
            return self.keep(node, "are reduced")
        rank = len(self.given(node))
        gone, fewer = {dim % rank for dim in dims}, rank - self.rank(node)
        if layout.dim in gone or fewer not in (0, len(gone)):
            return self.keep(node, "are reduced")
        before = sum(dim < layout.dim for dim in gone) if fewer else 0
        return Layout(layout.dim - before, layout.parts)

    def unsqueezed(self, node: fx.Node) -> Layout | None:
        """A dimension of one is put in."""
        layout, dims = self.source(node), whole(argument(node, 1, "dim"))
        if layout is None or not dims:
            return self.keep(node, "are reshaped")
        return Layout(layout.dim + (dims[0] % self.rank(node) <= layout.dim), layout.parts)

    def flattened(self, node: fx.Node) -> Layout | None:
        """Dimensions from the second on, or some after the channels', become one."""
        layer, layout, shape = self.layer(node), self.source(node), self.given(node)
        if isinstance(layer, nn.Flatten):
            ends = whole((layer.start_dim, layer.end_dim))
        else:
            ends = whole((argument(node, 1, "start_dim", 0), argument(node, 2, "end_dim", -1)))
        start, end = (each % len(shape) for each in ends) if ends else (0, 0)
        if layout is not None and start > layout.dim:
            return layout
        if layout is None or (start, end) != (1, len(shape) - 1) or layout.dim != 1:
            return self.keep(node, "are flattened")
        return layout.widened(prod(shape[2:]))

    def reshaped(self, node: fx.Node) -> Layout | None:
        """Flattened, or with dimensions of one put behind; by sizes that follow the channels'."""
        layout, sizes = self.source(node), several(node.args[1:])
        shape, made = self.given(node), self.shapes[node]
        free = len(sizes) > 1 and (isinstance(sizes[1], fx.Node) or sizes[1] == -1)
        if layout is None or layout.dim != 1 or not free:
            return self.keep(node, "are reshaped to a number that is written down")
        if tuple(made) == (shape[0], prod(shape[1:])):
            return layout.widened(prod(shape[2:]))
        if made[: len(shape)] == shape and prod(made[len(shape) :]) == 1:
            return layout
        return self.keep(node, "are reshaped")

    def turned(self, node: fx.Node) -> Layout | None:
        """Dimensions change places."""
        layout, dims, rank = self.source(node), whole(several(node.args[1:])), self.rank(node)
        if layout is None or not dims:
            return self.keep(node, "are turned")
        order = [dim % rank for dim in dims]
        if self.kind(node) == "transpose":
            one, two = order
            order = list(range(rank))
            order[one], order[two] = two, one
        return Layout(order.index(layout.dim), layout.parts)

    def concatenated(self, node: fx.Node) -> Layout | None:
        """Channels stand side by side."""
        dims = whole(argument(node, 1, "dim", 0))
        if not dims or any(n not in self.shapes for n in node.all_input_nodes):
            return self.keep(node, "are put together")
        dim, parts = dims[0] % self.rank(node), list[Part]()
        for tensor in several(node.args[:1]):
            layout = self.layouts.get(tensor)
            if layout is None:  # such as the model's input
                other = Channels(self.shapes[tensor][dim], kept="are not made by a layer")
                layout = Layout(dim, (Part(other, 1),))
            if layout.dim != dim:
                return self.keep(node, "are put together in another dimension")
            parts += layout.parts
        return Layout(dim, tuple(parts))


Rule = Callable[[Walk, fx.Node], Layout | None]
RULES: dict[str, Rule] = {
    **dict.fromkeys(ELEMENTWISE.split(), Walk.elementwise),
    **dict.fromkeys(POOLS, Walk.pooled),
    **dict.fromkeys(REDUCTIONS, Walk.reduced),
    **dict.fromkeys(("view", "reshape"), Walk.reshaped),
    **dict.fromkeys(("permute", "transpose"), Walk.turned),
    **dict.fromkeys(("cat", "concat"), Walk.concatenated),
    "flatten": Walk.flattened,
    "unsqueeze": Walk.unsqueezed,
}


def argument(node: fx.Node, place: int, name: str, default: Any = None) -> Any:
    """What a call was given, by its place or its name."""
    return node.args[place] if len(node.args) > place else node.kwargs.get(name, default)


def several(given: Any) -> Any:
    """Arguments that were given one by one, or as one sequence."""
    return given[0] if len(given) == 1 and isinstance(given[0], tuple | list) else given


def whole(given: Any) -> tuple[int, ...]:
    """One or several numbers; none where they are known only when it runs."""
    found = tuple(given) if isinstance(given, tuple | list) else (given,)
    return found if all(isinstance(each, int) for each in found) else ()

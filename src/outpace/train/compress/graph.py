"""A model's graph by torch.fx, with the shape of each of its tensors. A forward that branches on data
cannot be traced.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, final

import torch
from torch import fx, nn

from outpace.errors import UsageError
from outpace.serve.nests import leaves

FACTORIES = ("arange", "zeros", "ones", "full", "empty")
Shapes = Mapping[fx.Node, torch.Size]


def traced(
    model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[fx.Graph, Shapes]:
    """The graph of a model in eval mode, and the shapes that a call with ``args``, ``kwargs`` gives.

    Raises UsageError where it cannot be traced.
    """
    try:
        signature = inspect.signature(model.forward)
        bound = signature.bind(*args, **kwargs)
        if bound.kwargs:
            raise TypeError(f"arguments by keyword only: {', '.join(bound.kwargs)}")
        constant = {
            name: parameter.default
            for name, parameter in signature.parameters.items()
            if name not in bound.arguments and parameter.default is not parameter.empty
        }
        tracer = fx.Tracer()
        tracer.proxy_buffer_attributes = True  # mask[:, :x.size(1)]
        with factories_traced(tracer):
            graph = tracer.trace(model, constant or None)
        shapes = _Shapes(fx.GraphModule(model, graph))
        with torch.no_grad():
            shapes.run(*bound.args)
    except Exception as error:
        first = str(error).strip().partition("\n")[0]
        raise UsageError(
            f"torch.fx cannot trace {type(model).__name__} ({type(error).__name__}: {first}), so "
            "its channels cannot be told apart",
            "leave 'channels' out of ways, or take branches on data out of forward",
        ) from error
    return graph, shapes.found


@contextmanager
def factories_traced(tracer: fx.Tracer) -> Iterator[None]:
    """Have ``torch.arange(x.size(1))`` and its like traced, whose arguments torch.fx does not look at."""

    def traced_call(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if any(isinstance(leaf, fx.Proxy) for leaf in leaves([args, kwargs])):
                return tracer.create_proxy("call_function", function, args, kwargs)
            return function(*args, **kwargs)

        return call

    plain = {name: getattr(torch, name) for name in FACTORIES}
    try:
        for name, function in plain.items():
            setattr(torch, name, traced_call(function))
        yield
    finally:
        for name, function in plain.items():
            setattr(torch, name, function)


@final
class _Shapes(fx.Interpreter):
    """Runs a graph and notes the shapes of its tensors."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module)
        self.found: dict[fx.Node, torch.Size] = {}

    def run_node(self, n: fx.Node) -> Any:
        """Run one."""
        made = super().run_node(n)
        if isinstance(made, torch.Tensor):
            self.found[n] = made.shape
        return made


def unusual(model: nn.Module, graph: fx.Graph) -> dict[str, str]:
    """Layers whose weights are used in more ways than by one call, and which."""
    calls = Counter(str(node.target) for node in graph.nodes if node.op == "call_module")
    read = {str(node.target) for node in graph.nodes if node.op == "get_attr"}
    owners = Counter(id(p) for m in model.modules() for p in m.parameters(recurse=False))
    found: dict[str, str] = {}
    for name, layer in model.named_modules():
        own = dict(layer.named_parameters(name, recurse=False))
        if calls[name] > 1:
            found[name] = "is called more than once"
        elif any(owners[id(p)] > 1 for p in own.values()) or own.keys() & read:
            found[name] = "has weights that are used elsewhere too"
        elif layer._forward_hooks or layer._forward_pre_hooks:
            found[name] = "has hooks"
    return found

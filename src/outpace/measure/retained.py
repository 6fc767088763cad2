"""Which variable of the script keeps tensors from step to step, and the line that adds to it.

When memory grows, the usual cause is a list of losses that still carry their graphs, or a running
total that does. `look` notes the sizes of what the script's variables hold; `find_retained` looks
again some steps later and names what has grown. A total has no length: its size is that of its
autograd graph.

Looked at are the locals of the user's running functions, the globals of their modules, attributes
of the user's own objects and modules two levels down, and containers inside of containers. Honest
limits: what only C++ holds, closures, and generators that are not running are not seen. A look
takes about a millisecond, more where graphs are long: take one when growth is suspected and another
some steps later.
"""

from __future__ import annotations

import functools
import gc
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from itertools import chain, islice
from types import FrameType
from typing import Any, NamedTuple

from outpace.measure.added import is_limited, where_added
from outpace.seams.where import is_functions, is_user_file, locals_of, short, user_frames

CONTAINERS = (list, dict, deque, set)
CACHED = type(functools.lru_cache(len))
"""a function whose results are kept by its arguments; tensors are never found again, each being another"""
FEWEST = 8
"""Things that something not seen before must hold to be suspected."""
MOST_NODES = 200_000
"""Autograd nodes counted at most, some 0.2 s."""
MOST_INSIDE = 64
"""Containers or modules looked at inside of one variable."""


class Holder(NamedTuple):
    """A variable that may keep tensors: its name in the source, and in whose scope that holds."""

    name: str
    value: Any
    scope: int
    frame: FrameType

    @property
    def key(self) -> tuple[int, str]:
        """The same variable at another look."""
        return self.scope, self.name


Look = Mapping[tuple[int, str], int]
"""Sizes of what the script's variables held."""


def look(frame: FrameType | None = None) -> Look:
    """Note the sizes now, seen from ``frame`` outwards (from the caller by default)."""
    return {holder.key: size_of(holder.value) for holder in holders(frame or sys._getframe(1))}


class Retained(NamedTuple):
    """What keeps tensors: its name, ``file:line``, and whether these carry autograd graphs."""

    name: str
    where: str
    graphs: bool


def find_retained(before: Look | None = None, frame: FrameType | None = None) -> Retained | None:
    """What has grown most since ``before`` and holds tensors.

    What carries autograd graphs goes before what does not. Without an earlier look, the largest
    container of tensors with graphs is named. None where nothing fits.
    """
    best: tuple[tuple[bool, int], Holder] | None = None
    for holder in holders(frame or sys._getframe(1)):
        more = _growth(holder, before)
        graph = carries_graph(holder.value) if more > 0 else None
        if graph is None or (before is None and not graph):
            continue
        most = best is None or (graph, more) > best[0]
        if most and not is_limited(holder.name, holder.frame):
            best = (graph, more), holder
    if best is None:
        return None
    (graphs, _), holder = best
    return Retained(holder.name, _where(holder), graphs)


def fills_up(before: Look | None = None, frame: FrameType | None = None) -> bool:
    """Whether what has a limit of its own holds tensors, has grown since ``before``, and is not full yet."""
    return any(map(functools.partial(_fills, before or {}), holders(frame or sys._getframe(1))))


def _fills(before: Look, holder: Holder) -> bool:
    value, had = holder.value, before.get(holder.key, 0)
    if isinstance(value, deque) and value.maxlen is not None:
        return had < len(value) < value.maxlen and carries_graph(value) is not None
    more = _growth(holder, before) > 0 and carries_graph(value) is not None
    return more and is_limited(holder.name, holder.frame)


def _where(holder: Holder) -> str:
    """``file:line`` of what adds to it."""
    code = getattr(getattr(holder.value, "__wrapped__", None), "__code__", None)
    if isinstance(holder.value, CACHED) and code is not None:
        return f"{short(code.co_filename)}:{code.co_firstlineno}"
    return where_added(holder.name, holder.frame)


def _is_bounded(value: Any) -> bool:
    """Whether it is filled, and then grows no more."""
    if isinstance(value, CACHED):
        return value.cache_parameters()["maxsize"] is not None
    return isinstance(value, deque) and value.maxlen is not None


def _growth(holder: Holder, before: Look | None) -> int:
    if _is_bounded(holder.value):
        return 0
    size = size_of(holder.value)
    if before is not None and holder.key in before:
        return size - before[holder.key]
    return size if isinstance(holder.value, (*CONTAINERS, CACHED)) and size >= FEWEST else 0


def holders(frame: FrameType | None) -> Iterator[Holder]:
    """Containers, and tensors with a graph, that the user's running code can name."""
    seen: set[int] = set()
    for each in user_frames(frame):
        scopes = [(each.f_globals, id(each.f_globals))]
        if is_functions(each.f_code):
            scopes.append((locals_of(each) or {}, id(each)))
        for variables, scope in scopes:
            if scope in seen:
                continue
            seen.add(scope)
            for name, value in list(variables.items()):
                if not name.startswith("__"):
                    yield from _inside(Holder(name, value, scope, each), seen)


def _inside(holder: Holder, seen: set[int], depth: int = 2) -> Iterator[Holder]:
    """A variable and what it holds: items of containers, attributes of objects two levels down."""
    value = holder.value
    if isinstance(value, CONTAINERS):
        if id(value) not in seen:
            seen.add(id(value))
            yield holder
            for key, item in islice(_items(value), MOST_INSIDE):
                if isinstance(item, CONTAINERS):
                    yield holder._replace(name=f"{holder.name}[{key!r}]", value=item)
    elif isinstance(value, CACHED) or _graph(value) is not None:
        yield holder
    elif depth > 0 and id(value) not in seen and _is_users(value):
        seen.add(id(value))
        try:
            owners = list(_owners(value))
        except Exception:  # raised by what the script's class has in place of an attribute
            return
        for path, owner in owners:
            kept = {k: v for k, v in vars(type(owner)).items() if isinstance(v, CACHED)}
            for name, item in [*vars(owner).items(), *kept.items()]:
                dotted = ".".join(part for part in (holder.name, path, name) if part)
                yield from _inside(Holder(dotted, item, id(owner), holder.frame), seen, depth - 1)


def _owners(value: Any) -> Iterator[tuple[str, Any]]:
    """An object and, of a module, the user's own modules inside of it, each with its path."""
    if hasattr(type(value), "named_modules"):
        inner = (pair for pair in value.named_modules() if _is_users(pair[1]))
        yield from islice(inner, MOST_INSIDE)
    else:
        yield "", value


def _items(container: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(container, dict):
        pairs = islice(container.items(), MOST_INSIDE)
        return iter([(k, v) for k, v in pairs if isinstance(k, (str, int))])
    return iter(list(enumerate(islice(container, MOST_INSIDE))))


def _is_users(value: Any) -> bool:
    """Whether an object is of a class that the user wrote."""
    module = sys.modules.get(getattr(type(value), "__module__", ""))
    filename = getattr(module, "__file__", None)
    return bool(filename) and is_user_file(str(filename)) and _has_own(value)


def _has_own(value: Any) -> bool:
    """Whether it has attributes of its own."""
    try:
        return type(object.__getattribute__(value, "__dict__")) is dict
    except AttributeError:
        return False


def size_of(value: Any) -> int:
    """How many things a container holds; of a tensor, how many nodes its graph has."""
    if isinstance(value, CONTAINERS):
        return len(value)
    if isinstance(value, CACHED):
        return int(value.cache_info().currsize)
    nodes: set[Any] = set()
    ahead = [_graph(value)]
    while ahead and len(nodes) < MOST_NODES:
        node = ahead.pop()
        if node is not None and node not in nodes:
            nodes.add(node)
            ahead.extend(following for following, _ in node.next_functions)
    return len(nodes)


def carries_graph(value: Any, depth: int = 3) -> bool | None:
    """Whether a thing holds tensors with a graph (True) or data without one; None for neither.

    Of a container the first and the newest things are looked at.
    """
    if _graph(value) is not None:
        return True
    if _is_data(value):
        return False
    if depth == 0:
        return None
    if isinstance(value, CACHED):
        kept = [each for each in gc.get_referents(value) if type(each) is dict and each]
        few = chain(*(islice(reversed(each.items()), 4) for each in kept))
    elif isinstance(value, dict):
        few = chain(islice(value.values(), 1), islice(reversed(value.values()), 4))
    elif isinstance(value, (list, tuple, deque)):
        few = chain(islice(value, 1), islice(reversed(value), 4))
    elif isinstance(value, (set, frozenset)):
        few = chain(islice(value, 4))
    else:
        return None
    found = [carries_graph(item, depth - 1) for item in few]
    return None if all(one is None for one in found) else any(found)


def _graph(value: Any) -> Any:
    """The autograd node that made a tensor; None for leaves and for anything else."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(value, torch.Tensor):
        return None
    try:
        return value.grad_fn
    except RuntimeError:  # a view from within no_grad, of a weight that was stepped since
        return None


def _is_data(value: Any) -> bool:
    """Whether a thing is a tensor, an array or bytes worth keeping account of."""
    if isinstance(value, (bytes, bytearray)):
        return len(value) >= 1024
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return True
    return hasattr(value, "__array_interface__") and getattr(value, "nbytes", 0) >= 1024

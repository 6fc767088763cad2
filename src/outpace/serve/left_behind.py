"""Whether making a sample leaves something behind for the next one, which threads would share.

A data set that holds the shard it read last, or a buffer that it fills anew, gives rows of another shard
where a second thread comes in between. It is read in the source of the functions that run for a sample, the
user's and those of a library's data set: what they set of their object, or change in place there. A lock is
not told from none; what comes to another name by a call, and what else a library keeps, is not seen.
"""

from __future__ import annotations

import ast
import functools
import threading
from collections import ChainMap, defaultdict
from collections.abc import Iterator
from types import CodeType, ModuleType
from typing import Any, NamedTuple, final

from torch.utils.data import Dataset

from outpace.measure.objects import closed_over
from outpace.measure.user_modules import attributes_of
from outpace.seams.where import short
from outpace.serve.reached import Closed, reached_or_closed
from outpace.serve.whose import is_users_function
from outpace.serve.written import Function, written

ASIDE = ("__init__", "__new__", "__post_init__", "__getstate__", "__setstate__", "__del__")
"""functions that run before there are samples, or after all"""
IN_PLACE = (
    *("append", "extend", "insert", "remove", "pop", "popitem", "clear", "update", "setdefault"),
    *("add", "discard", "sort", "reverse", "move_to_end", "fill", "seek", "readinto"),
)
"""methods that change what they are called on, besides those of tensors, whose names end in ``_``"""
BY_CALL = ("setattr", "delattr", "__setattr__", "next", "readinto", "copyto", "shuffle")
"""functions that change what they are given"""


class Change(NamedTuple):
    """An attribute of an object, or an outer variable, that is changed in a line. ``outside``: what a name of
    the module, or of the function around, stands for is.
    """

    name: str
    line: int
    outside: bool = False


def left_behind(*makers: Any) -> str | None:
    """Where data sets and functions leave something behind, in words; None where they are not seen to."""
    for found in reached_or_closed(*makers):
        if isinstance(found, Closed):
            return found.why
        function, owner = found
        code, held = function.__code__, attributes_of(owner)
        users = is_users_function(function)
        if code.co_name in ASIDE or not (users or isinstance(owner, Dataset)):
            continue
        if users and not written(code):
            return f"the source of {code.co_name} in {short(code.co_filename)} cannot be read"
        outer = ChainMap(closed_over(function), function.__globals__)
        for name, line, outside in _changed(code, owner is not None):
            value = (outer if outside else held).get(name)
            if outside and (name not in outer or isinstance(value, ModuleType)):
                continue
            if not isinstance(value, threading.local):
                return f"{short(code.co_filename)}:{line} changes {name}"
    return None


@functools.lru_cache(maxsize=1024)
def _changed(code: CodeType, bound: bool) -> tuple[Change, ...]:
    """What a function changes. ``bound``: its first parameter is the object that it is a method of."""
    return tuple(change for each in written(code) for change in _changes(each, bound))


def _changes(function: Function, bound: bool) -> Iterator[Change]:
    first = [each.arg for each in (*function.args.posonlyargs, *function.args.args)][:bound]
    nodes = list(ast.walk(function))
    outer = {n for each in nodes if isinstance(each, ast.Global | ast.Nonlocal) for n in each.names}
    names = Names("".join(first), nodes)
    for node in nodes:
        found: list[Root | None] = []
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()) if name in outer:
                found = [Root(name)]
            case ast.Attribute(ctx=ast.Store() | ast.Del()):
                found = [names.root(node)]
            case ast.Subscript(value=value, ctx=ast.Store() | ast.Del()):
                found = [names.root(value)]
            case ast.Call():
                found = list(_by_call(node, names))
        for each in found:
            if each is not None:
                yield Change(each.name, getattr(node, "lineno", 0), each.outside)


def _by_call(call: ast.Call, names: Names) -> Iterator[Root | None]:
    """What a method is called on, what a function is given, and where its result goes."""
    called = ""
    match call.func:
        case ast.Attribute(value=receiver, attr=called):
            in_place = called.endswith("_") and not called.startswith("_")
            if in_place or called in IN_PLACE:
                yield names.root(receiver)
        case ast.Name(id=called):
            pass
    if called in BY_CALL:
        for place, given in enumerate(call.args):
            itself = isinstance(given, ast.Name) and given.id == names.me
            root = Root(names.me) if itself else names.root(given)
            constant = root is not None and root.outside and place  # as what is given instead
            if not constant:
                yield root
    for word in call.keywords:
        if word.arg == "out":
            yield names.root(word.value)


class Root(NamedTuple):
    """An attribute of a method's object, or, ``outside``, a name that is not the function's own."""

    name: str
    outside: bool = False


@final
class Names:
    """By which names a function reaches what its object holds: its own, and local ones for parts of it."""

    def __init__(self, me: str, nodes: list[ast.AST]) -> None:
        self.me = me
        self.parts: dict[str, Root] = {}
        """a local variable that is never anything else -> what it is a part of"""
        bound = _bound(nodes)
        self.own = {me, *bound, *_imported(nodes)}
        more = True
        while more:
            more = False
            for name in bound.keys() - self.parts.keys():
                roots = [None if value is None else self.root(value) for value in bound[name]]
                if roots[0] is not None and None not in roots:
                    self.parts[name], more = roots[0], True

    def root(self, node: ast.AST) -> Root | None:
        """What an expression is, or is a part of."""
        match node:
            case ast.Attribute(value=ast.Name(id=self.me), attr=attribute):
                return Root(attribute)
            case ast.Attribute(value=inner) | ast.Subscript(value=inner):
                return self.root(inner)
            case ast.Name(id=name):
                return self.parts.get(name) if name in self.own else Root(name, outside=True)
        return None


def _imported(nodes: list[ast.AST]) -> Iterator[str]:
    """Names that a function imports, or defines."""
    for node in nodes:
        match node:
            case ast.alias(name=name, asname=other):
                yield other or name.split(".")[0]
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
                yield name


def _bound(nodes: list[ast.AST]) -> dict[str, list[ast.AST | None]]:
    """Local variables and what they are given; None: what is not told, as of a parameter."""
    given: dict[ast.AST, ast.AST] = {}
    for node in nodes:
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    given |= dict.fromkeys(ast.walk(target), value)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                given |= dict.fromkeys(ast.walk(target), value)
            case ast.NamedExpr(target=target, value=value):
                given[target] = value
            case ast.For(target=target, iter=value) | ast.comprehension(target=target, iter=value):
                given |= dict.fromkeys(ast.walk(target), value)
    found: dict[str, list[ast.AST | None]] = defaultdict(list)
    for node in nodes:
        match node:
            case ast.Name(id=name, ctx=ast.Store()):
                found[name].append(given.get(node))
            case ast.arg(arg=name):
                found[name].append(None)
    return found

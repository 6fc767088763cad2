"""Whether a data set decides anything by a sample's index, or by what is in the sample.

A slice decides that once for a whole batch, which goes unseen while no sample that is compared makes a
difference: ``if not np.isfinite(x).all(): x = zeros``. What attributes and constants alone decide, or the
type of something, is the same for each sample: ``if self.transform is not None``.

So is what is made of a whole sample, as by ``x.sum()``, but along an axis that is counted from the last one;
and what a method keeps of a sample in an attribute is one value, that others may decide by.

It is read in the source of the user's functions. Not seen is what a library decides, and what comes to
another name by a method, as by ``append``.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from types import CodeType
from typing import Any

from outpace.measure.syntax import leaves, name_of
from outpace.seams.where import short
from outpace.serve.reached import Closed, Found, reached_or_closed
from outpace.serve.wholes import of_all
from outpace.serve.whose import is_users_function
from outpace.serve.written import Function, written

BY_TYPE = ("isinstance", "issubclass", "is_tensor", "type", "hasattr", "callable")
"""what asks no more than the type of something"""
ELEMENTWISE = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE)
"""comparisons that a batch makes for each sample; not ``in`` or ``is``"""
YIELDED = "yield"
"""stands for what goes on where a generator yields, as inside of a context manager"""


def decided_by_samples(*makers: Any) -> str | None:
    """Where data sets or collate functions decide by a sample, in words; None where they are not seen to."""
    return next(filter(None, map(_why, reached_or_closed(*makers))), None)


def _why(found: Found | Closed) -> str | None:
    if isinstance(found, Closed):
        return found.why
    function, owner = found
    users = is_users_function(function)
    return decision(function.__code__, owner is not None) if users else None


@functools.lru_cache(maxsize=1024)
def decision(code: CodeType, bound: bool) -> str | None:
    """The first place of a user's function that decides by its parameters; not by a method's own object,
    which is the first of them where it is ``bound``.
    """
    file, functions = code.co_filename, written(code)
    if not functions:
        return f"the source of {code.co_name} in {short(file)} cannot be read"
    for function in functions:  # a line may hold several lambdas
        carried = _carried(function, bound)
        for node in ast.walk(function):
            for each, does in _telling(node, bound):
                if not carried.isdisjoint(_named(each)):
                    return f"{short(file)}:{each.lineno} {does}"
    return None


def _telling(node: ast.AST, bound: bool) -> Iterator[tuple[Any, str]]:
    """What to look for a sample in, and what is done where there is one."""
    for each in _decides_by(node):
        yield each, "decides something for each sample by itself"
    if bound and isinstance(node, ast.stmt):
        kept = (name for names, _ in _bindings(node) for name in names)
        if any("." in name for name in kept):
            yield node, "keeps something of each sample in an attribute"


def _decides_by(node: ast.AST) -> list[Any]:
    """What is looked at where something is decided, if it is here."""
    match node:
        case (
            ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test) | ast.Assert(test=test)
        ):
            return [test]
        case ast.BoolOp(values=[*values, _]):
            return values
        case ast.comprehension(ifs=tests):
            return tests
        case ast.Match(subject=subject):
            return [subject]
        case ast.Compare(ops=ops) if not all(isinstance(each, ELEMENTWISE) for each in ops):
            return [node]
        case ast.Compare():
            return [each for each in ast.walk(node) if _is_one_value(each)]
        case ast.Call() if of_all(node):
            return [node]
        case ast.Try(body=body, handlers=[_, *_]) | ast.TryStar(body=body):
            return body
        case ast.Try(body=body, finalbody=last) if leaves(last):
            return body
        case ast.With(body=body, items=items) if any(map(_suppresses, items)):
            return body
    return []


def _is_one_value(tree: ast.AST) -> bool:
    """Whether it is taken from a place, as ``x[0]``: in a slice that is the place of a sample."""
    match tree:
        case ast.Subscript(slice=ast.UnaryOp(operand=place) | place):
            return isinstance(place, ast.Constant) and isinstance(place.value, int)
    return False


def _suppresses(item: ast.withitem) -> bool:
    calls = (each for each in ast.walk(item.context_expr) if isinstance(each, ast.Call))
    return any(name_of(each.func) == "suppress" for each in calls)


def _carried(function: Function, bound: bool) -> set[str]:
    """The names of parameters, and of what is made of them."""
    first = [each.arg for each in (*function.args.posonlyargs, *function.args.args)][:bound]
    found = {node.arg for node in ast.walk(function) if isinstance(node, ast.arg)} - {*first}
    found.add(YIELDED)
    bindings = [pair for node in ast.walk(function) for pair in _bindings(node)]
    while new := {name for to, of in bindings if found & of for name in to} - found:
        found |= new
    return found


def _bindings(node: ast.AST) -> Iterator[tuple[set[str], set[str]]]:
    """Names that are given a value here, and those that it is made of."""
    match node:
        case ast.Assign(targets=targets, value=value):
            pass
        case (
            ast.AnnAssign(target=target, value=ast.expr() as value)
            | ast.AugAssign(target=target, value=value)
            | ast.NamedExpr(target=target, value=value)
            | ast.For(target=target, iter=value)
            | ast.AsyncFor(target=target, iter=value)
            | ast.comprehension(target=target, iter=value)
            | ast.withitem(optional_vars=ast.expr() as target, context_expr=value)
        ):
            targets = [target]
        case _:
            return
    for each in targets:
        # What it is kept under counts too: self.seen[index] = True.
        yield set(_bound(each)), {*_named(value), *_named(each)}


def _bound(target: ast.expr) -> Iterator[str]:
    match target:
        case ast.Name(id=name):
            yield name
        case ast.Attribute(value=ast.Name(id=name), attr=attribute):
            yield f"{name}.{attribute}"
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            for part in parts:
                yield from _bound(part)
        case ast.Attribute(value=inner) | ast.Subscript(value=inner) | ast.Starred(value=inner):
            yield from _bound(inner)


def _named(tree: ast.AST) -> Iterator[str]:
    """Names in an expression, and attributes as "self.x"; none in what asks for a type."""
    match tree:
        case ast.Call(func=function) if name_of(function) in BY_TYPE:
            return
        case ast.Name(id=name):
            yield name
        case ast.Attribute(value=ast.Name(id=name), attr=attribute):
            yield f"{name}.{attribute}"
        case ast.Yield() | ast.YieldFrom():
            yield YIELDED
    for child in ast.iter_child_nodes(tree):
        yield from _named(child)

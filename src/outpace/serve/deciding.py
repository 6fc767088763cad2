"""Whether a data set decides anything by a sample's index, or by what is in the sample.

A slice decides that once for a whole batch, which goes unseen while no sample that is compared makes a
difference: ``if not np.isfinite(x).all(): x = zeros``. What attributes and constants alone decide, or the
type of something, is the same for each sample: ``if self.transform is not None``.

It is read in the source of the user's functions. Not seen is what a library decides, and what comes to
another name by a method, as by ``append``.
"""

from __future__ import annotations

import ast
import functools
import linecache
from collections import defaultdict
from collections.abc import Iterator
from types import CodeType
from typing import Any

from outpace.seams.where import first_line, is_user_file, short
from outpace.serve.reached import reached

BY_TYPE = ("isinstance", "issubclass", "is_tensor", "type", "hasattr", "callable")
"""what asks no more than the type of something"""
OF_ALL = ("all", "any", "max", "min", "allclose", "equal", "array_equal")
"""what makes one value of a whole batch, unless it is told an axis: a rare sample changes it"""

ELEMENTWISE = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE)
"""comparisons that a batch makes for each sample; not ``in`` or ``is``"""

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def decided_by_samples(*makers: Any) -> str | None:
    """Where data sets or collate functions decide by a sample, in words; None where they are not seen to."""
    told = (
        decision(found.function.__code__, found.owner is not None) for found in reached(*makers)
    )
    return next(filter(None, told), None)


@functools.lru_cache(maxsize=1024)
def decision(code: CodeType, bound: bool) -> str | None:
    """The first place of a user's function that decides by its parameters; not by a method's own object,
    which is the first of them where it is ``bound``.
    """
    file = code.co_filename
    if not is_user_file(file):
        return None
    written = [
        each for each in _written_in(file)[code.co_firstlineno] if _name(each) == code.co_name
    ]
    if not written:
        return f"the source of {code.co_name} in {short(file)} cannot be read"
    for function in written:  # a line may hold several lambdas
        carried = _carried(function, bound)
        for node in ast.walk(function):
            for each in _decides_by(node):
                if not carried.isdisjoint(_named(each)):
                    return (
                        f"{short(file)}:{each.lineno} decides something for each sample by itself"
                    )
    return None


@functools.lru_cache(maxsize=64)
def _written_in(file: str) -> defaultdict[int, list[Function]]:
    """The functions of a file, by the line where each begins."""
    found: defaultdict[int, list[Function]] = defaultdict(list)
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError, RecursionError):
        return found
    for node in ast.walk(tree):
        if isinstance(node, Function):
            line = node.lineno if isinstance(node, ast.Lambda) else first_line(node)
            found[line].append(node)
    return found


def _name(function: Function) -> str:
    return "<lambda>" if isinstance(function, ast.Lambda) else function.name


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
        case ast.Call() if _of_all(node):
            return [node]
        case ast.Try(body=body, handlers=[_, *_]) | ast.TryStar(body=body):
            return body
    return []


def _of_all(call: ast.Call) -> bool:
    """Whether it makes one value of a whole batch."""
    numbers = [each for each in call.args if isinstance(each, ast.Constant | ast.UnaryOp)]
    axis = any(each.arg in ("axis", "dim") for each in call.keywords)
    return (
        _called(call) in OF_ALL
        and not axis
        and not (isinstance(call.func, ast.Attribute) and numbers)
    )


def _called(call: ast.Call) -> str:
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def _carried(function: Function, bound: bool) -> set[str]:
    """The names of parameters, and of what is made of them."""
    first = [each.arg for each in (*function.args.posonlyargs, *function.args.args)][:bound]
    found = {node.arg for node in ast.walk(function) if isinstance(node, ast.arg)} - {*first}
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
        case ast.Call() if _called(tree) in BY_TYPE:
            return
        case ast.Name(id=name):
            yield name
        case ast.Attribute(value=ast.Name(id=name), attr=attribute):
            yield f"{name}.{attribute}"
    for child in ast.iter_child_nodes(tree):
        yield from _named(child)

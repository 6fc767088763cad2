"""Trainings that a script comes to later: functions that its running ones call after the running line, and
lines that follow the loops around it.

Told of a script whose first training takes longer than experiments do. A function trains where it, or one
that it calls by name, has a ``backward`` and a ``step``; lines do where they have both, or give a ``step``
a closure. What stands in the other branch of a condition is none that comes later, and neither is one that
trains already.
"""

from __future__ import annotations

import ast
import dis
import inspect
from collections.abc import Iterator, Sequence
from types import CodeType, FrameType, FunctionType
from typing import Any, NamedTuple

from outpace.measure.loops import loops_around
from outpace.measure.syntax import parse
from outpace.seams.where import first_line, is_user_file, locals_of, short, user_frames

DEEP = 3
"""calls from one function to the next that are followed"""
TRAINS = {"backward", "step"}


class Later(NamedTuple):
    """A function that trains, or lines."""

    name: str
    """empty for lines"""
    where: str
    """``file:line`` of its definition, or of the first of them"""


def trainings_later(frame: FrameType | None, met: set[CodeType]) -> list[Later]:
    """Those after the running line of ``frame``, and of all around it; ``met``: what trains by now."""
    frames = list(user_frames(frame))
    known = met.union(each.f_code for each in frames)
    found: dict[CodeType, Later] = {}
    for each in frames:
        for function in _called_after(each):
            code = function.__code__
            if code not in known and _trains(function):
                at = f"{short(code.co_filename)}:{code.co_firstlineno}"
                found[code] = Later(code.co_name, at)
    return [*found.values(), *_lines_later(frames)]


def _lines_later(frames: Sequence[FrameType]) -> Iterator[Later]:
    """The first lines that train after the outermost loop: a step and its loop's other lines are of now."""
    for frame in reversed(frames):
        tree, loops = parse(frame.f_code.co_filename), loops_around(frame)
        body = _body_of(tree, frame.f_code) if tree is not None else None
        end = (loops[0].end_lineno or 0) if loops else frame.f_lineno
        names = _names_in(frame)
        for statement in _after(body or (), frame.f_lineno):
            line = _first_backward(statement, names) if statement.lineno > end else None
            if line is not None:
                yield Later("", f"{short(frame.f_code.co_filename)}:{line}")
                return
        if loops:
            return


def _names_in(frame: FrameType) -> dict[str, Any]:
    return {**frame.f_globals, **(locals_of(frame) or {})}


def _first_backward(statement: ast.stmt, names: dict[str, Any]) -> int | None:
    """The line of the first backward pass in a statement that trains, or of a step that makes them itself."""
    lines: dict[str, int] = {}
    for node in ast.walk(statement):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            lines.setdefault(node.func.attr, node.lineno)
            given = [*node.args, *(each.value for each in node.keywords)]
            if node.func.attr == "step" and any(_is_function(each, names) for each in given):
                return node.lineno
    return lines["backward"] if lines.keys() >= TRAINS else None


def _is_function(given: ast.expr, names: dict[str, Any]) -> bool:
    return isinstance(given, ast.Lambda) or _function(given, names) is not None


def _called_after(frame: FrameType) -> Iterator[FunctionType]:
    tree = parse(frame.f_code.co_filename)
    body = _body_of(tree, frame.f_code) if tree is not None else None
    if body is None:
        return
    names = _names_in(frame)
    for statement in _after(body, frame.f_lineno):
        for node in ast.walk(statement):
            if isinstance(node, ast.Call):
                function = _function(node.func, names)
                if function is not None and is_user_file(function.__code__.co_filename):
                    yield function


def _body_of(tree: ast.Module, code: CodeType) -> Sequence[ast.stmt] | None:
    if code.co_name == "<module>":
        return tree.body
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if (node.name, first_line(node)) == (code.co_name, code.co_firstlineno):
            return node.body
    return None


def _after(body: Sequence[ast.stmt], line: int) -> Iterator[ast.stmt]:
    """Statements that follow the one at a line, but for definitions, and other branches around it."""
    for statement in body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        if statement.lineno > line:
            yield statement
        elif line <= (statement.end_lineno or 0):
            for block in _blocks(statement):
                if block[0].lineno <= line <= (block[-1].end_lineno or 0):
                    yield from _after(block, line)
            if isinstance(statement, ast.Try):
                yield from (each for each in statement.finalbody if each.lineno > line)


def _blocks(statement: ast.stmt) -> Iterator[Sequence[ast.stmt]]:
    parts: list[Any] = [statement, *getattr(statement, "handlers", ())]
    parts += getattr(statement, "cases", ())
    for part in parts:
        for name in ("body", "orelse", "finalbody"):
            if block := getattr(part, name, None):
                yield block


def _function(called: ast.expr, names: dict[str, Any]) -> FunctionType | None:
    """What a name, or an attribute of one, stands for; looked up without running anything."""
    value: Any = None
    if isinstance(called, ast.Name):
        value = names.get(called.id)
    elif isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name):
        owner = names.get(called.value.id)
        if owner is not None:
            value = inspect.getattr_static(owner, called.attr, None)
    value = (
        getattr(value, "__func__", value)
        if isinstance(value, staticmethod | classmethod)
        else value
    )
    return value if isinstance(value, FunctionType) else None


def _trains(function: FunctionType) -> bool:
    """Whether what it does, or calls by name, has both a backward pass and a step."""
    names, functions, seen = set[str](), [function], set[CodeType]()
    for _ in range(DEEP):
        following = []
        for each in functions:
            seen.add(each.__code__)
            names.update(_names(each.__code__))
            # Not every name: `model.train()` is no call of a function `train`.
            called = (each.__globals__.get(name) for name in set(_looked_up(each.__code__)))
            following += [
                one
                for one in called
                if isinstance(one, FunctionType)
                and one.__code__ not in seen
                and is_user_file(one.__code__.co_filename)
            ]
        functions = following
    return names >= TRAINS


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _looked_up(code: CodeType) -> Iterator[str]:
    """Names that stand for something by themselves, and are no attributes."""
    for one in dis.get_instructions(code):
        if one.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            yield one.argval
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _looked_up(constant)

"""The line of the script's source that adds to a variable."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from types import FrameType

from outpace.measure.syntax import has_line, name_of, parse
from outpace.measure.user_modules import user_files
from outpace.seams.where import place, short

SCOPES = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
REMOVERS = ("pop", "popleft", "popitem", "remove")
ADDERS = ("append", "appendleft", "extend", "add", "update", "setdefault", "insert", "put")


def where_added(name: str, frame: FrameType) -> str:
    """``file:line`` of the line that adds to a variable, else that defines it, else that runs.

    Lines of the frame's own function go before others that use the same name.
    """
    files = dict.fromkeys([frame.f_code.co_filename, *user_files()])
    for matches in (_adds, _defines):
        for spelling in _SPELLINGS:
            for filename in files:
                found = [
                    line
                    for line, target in _targets(filename, matches)
                    if spelling(target) == spelling(name)
                ]
                if found:
                    own = [line for line in found if line in _lines_of(frame)]
                    own = own if filename == frame.f_code.co_filename else []
                    return f"{short(filename)}:{min(own or found)}"
    return place(frame) or "?"


def is_limited(name: str, frame: FrameType) -> bool:
    """Whether the script keeps something below a size: it adds to it only where it has fewer items than a
    number, or takes out again what it has added first.
    """
    own = _of_any_owner(name).partition("[")[0]
    file, line = frame.f_code.co_filename, frame.f_lineno
    files = dict.fromkeys([file, *(user_files() if "." in own else ())])
    trees = [tree for tree in map(parse, files) if tree is not None]
    scopes = [each for tree in trees for each in ast.walk(tree) if isinstance(each, SCOPES)]
    if "." in own:
        return any(_limits(scope, own) for scope in scopes)
    around = [one for one in scopes if has_line(one, line)]
    code = frame.f_code
    own_scope = around[-1:] if own in (*code.co_varnames, *code.co_cellvars) else []
    return any(_limits(scope, own) for scope in own_scope or trees)  # else any of the file's


def _limits(scope: ast.AST, name: str) -> bool:
    """Whether what is added to in a function, a class or a file is kept below a size there."""
    nodes = list(ast.walk(scope))
    added = any(_is(target, name) for target in map(_adds, nodes) if target is not None)
    return added and any(_takes_out(node, name) or _adds_to_fewer(node, name) for node in nodes)


def _is(node: ast.AST, name: str) -> bool:
    return _names(node) and _of_any_owner(ast.unparse(node)) == name


def _takes_out(node: ast.AST, name: str) -> bool:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr in REMOVERS and _is(node.func.value, name)
    deleted = node.targets if isinstance(node, ast.Delete) else []
    return any(isinstance(one, ast.Subscript) and _is(one.value, name) for one in deleted)


def _adds_to_fewer(node: ast.AST, name: str) -> bool:
    if not isinstance(node, ast.If) or not isinstance(node.test, ast.Compare):
        return False
    sides = (node.test.left, *node.test.comparators)
    counts = any(
        name_of(one.func) == "len" and _is(one.args[0], name)
        for one in sides
        if isinstance(one, ast.Call) and one.args
    )
    inside = (part for statement in node.body for part in ast.walk(statement))
    return counts and any(
        isinstance(part, ast.Call)
        and isinstance(part.func, ast.Attribute)
        and part.func.attr in ADDERS
        and _is(part.func.value, name)
        for part in inside
    )


def _targets(
    filename: str, matches: Callable[[ast.AST], ast.expr | None]
) -> Iterator[tuple[int, str]]:
    """Line and source of what statements of a file add to, or define."""
    tree = parse(filename)
    for node in ast.walk(tree) if tree is not None else ():
        target = matches(node)
        if target is not None:
            yield target.lineno, ast.unparse(target)


def _lines_of(frame: FrameType) -> set[int]:
    """Lines of the function that a frame runs."""
    return {line for _, _, line in frame.f_code.co_lines() if line is not None}


def _of_any_owner(text: str) -> str:
    _, dot, attribute = text.rpartition(".")
    return dot + attribute


_SPELLINGS: tuple[Callable[[str], str], ...] = (
    lambda text: text,
    _of_any_owner,
    lambda text: _of_any_owner(text).partition("[")[0],
)
"""As written; under another owner's name (``trainer.losses``, ``self.losses``); without its key."""


def _adds(node: ast.AST) -> ast.expr | None:
    """What a statement adds to, if it adds to something."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.value if node.func.attr in ADDERS else None
    if isinstance(node, ast.AugAssign):
        return node.target
    if isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Subscript):
                return target.value
            again = (ast.unparse(part) for part in ast.walk(node.value) if _names(part))
            if _names(target) and ast.unparse(target) in again:
                return target
    return None


def _defines(node: ast.AST) -> ast.expr | None:
    if isinstance(node, ast.Assign):
        return node.targets[0]
    return node.target if isinstance(node, ast.AnnAssign) else None


def _names(node: object) -> bool:
    return isinstance(node, (ast.Name, ast.Attribute))

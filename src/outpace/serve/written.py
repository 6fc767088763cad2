"""Functions as they are written: their syntax trees, by the code that runs."""

from __future__ import annotations

import ast
import functools
import linecache
from collections import defaultdict
from types import CodeType

from outpace.seams.where import first_line

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def written(code: CodeType) -> list[Function]:
    """How a function is written: several where a line holds several lambdas, none where its source cannot be
    read.
    """
    found = _written_in(code.co_filename)[code.co_firstlineno]
    return [each for each in found if _name(each) == code.co_name]


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

"""What several readers of the user's source ask of a syntax tree, and the tree itself."""

from __future__ import annotations

import ast
import functools
import os

import psutil

UNSURE_S = 2.0
"""by which the times of a file and of a process may differ; the system tells its own start by the second"""
LEAVES = (ast.Continue, ast.Break, ast.Return)
"""what goes on elsewhere, with no error"""


@functools.lru_cache(maxsize=64)
def parse(filename: str) -> ast.Module | None:
    """The syntax tree of a file; None where it cannot be read, or is no longer what is running."""
    try:
        with open(filename, encoding="utf-8") as file:
            if os.fstat(file.fileno()).st_mtime > _started() + UNSURE_S:
                return None  # edited since: its lines are others
            return ast.parse(file.read())
    except (OSError, SyntaxError, ValueError):
        return None


@functools.cache
def _started() -> float:
    """When this process was started, by the calendar's clock."""
    return psutil.Process().create_time()


def name_of(tree: ast.AST) -> str:
    """The last part of a name: ``save`` of ``torch.save``; empty for anything else."""
    match tree:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def names_in(tree: ast.AST) -> set[str]:
    """The plain names in it."""
    return {each.id for each in ast.walk(tree) if isinstance(each, ast.Name)}


def has_line(tree: ast.stmt | ast.expr, line: int) -> bool:
    """Whether a line is one of a statement's, or of an expression's."""
    return tree.lineno <= line <= (tree.end_lineno or line)


def leaves(body: list[ast.stmt]) -> bool:
    """Whether an error may end there: what a ``finally`` leaves by is all that is done."""
    return any(isinstance(each, LEAVES) for line in body for each in ast.walk(line))


def stored_in(node: ast.AST) -> set[str]:
    """Variables and attributes that a value is given to in it, as they are written."""
    return {
        ast.unparse(one)
        for one in ast.walk(node)
        if isinstance(one, (ast.Name, ast.Attribute)) and isinstance(one.ctx, ast.Store)
    }

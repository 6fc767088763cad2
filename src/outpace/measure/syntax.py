"""What several readers of the user's source ask of a syntax tree."""

from __future__ import annotations

import ast

LEAVES = (ast.Continue, ast.Break, ast.Return)
"""what goes on elsewhere, with no error"""


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

"""What readers of a script's source ask of it."""

from __future__ import annotations

import ast

import pytest

from outpace.measure.syntax import leaves, name_of


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("save", "save"),
        ("torch.save", "save"),
        ("made().save", "save"),
        ("made()", ""),
        ("a[0]", ""),
    ],
)
def test_the_last_part_of_a_name(text: str, name: str) -> None:
    assert name_of(ast.parse(text, mode="eval").body) == name


@pytest.mark.parametrize(
    ("text", "found"),
    [("return 1", True), ("if x:\n    break", True), ("x = 1", False), ("raise", False)],
)
def test_where_an_error_ends(text: str, found: bool) -> None:
    assert leaves(ast.parse(text).body) is found

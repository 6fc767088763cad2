"""A recipe's file: the command at its head can be pasted, and another schema is told as one."""

from __future__ import annotations

import shlex
from pathlib import Path

import msgspec
import pytest

from outpace.errors import RecipeError
from outpace.records.recipe_file import read_recipe, recipe_text, write_recipe
from tests.report.report_sessions import RECIPE


def test_the_command_at_its_head_names_the_file_as_it_was_given(tmp_path: Path) -> None:
    path = tmp_path / "my recipes" / "fast.toml"
    write_recipe(path, RECIPE)
    head = path.read_text().splitlines()[0].partition(": ")[2]
    assert shlex.split(head) == ["outpace", "run", "--recipe", str(path), *RECIPE.target.split()]


@pytest.mark.parametrize("evil", ["two\nlines = 1", "\x1b[31m", "\udce9"])
def test_whatever_its_name_it_is_a_comment(tmp_path: Path, evil: str) -> None:
    recipe = msgspec.structs.replace(RECIPE, target=shlex.join(["train.py", "two\nlines = 1"]))
    path = tmp_path / "outpace.toml"
    path.write_text(recipe_text(recipe, evil))
    assert read_recipe(path).remedies == RECIPE.remedies


def test_another_schema_is_told_as_one(tmp_path: Path) -> None:
    path = tmp_path / "outpace.toml"
    path.write_text('schema = 2\nnews = "unknown here"\n')
    with pytest.raises(RecipeError, match="has schema 2; this outpace reads schema 1"):
        read_recipe(path)
    path.write_bytes(b'schema = 1\ntarget = "\xff"\n')
    with pytest.raises(RecipeError, match="cannot be read"):
        read_recipe(path)

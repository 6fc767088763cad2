"""A recipe's TOML: written for people to read and edit, read back with clear errors."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import msgspec

from outpace.errors import RecipeError
from outpace.records.files import SCHEMA, Schema, write_text
from outpace.records.gain import Gain
from outpace.records.recipe import Recipe

HEAD = "# Made by outpace. Apply it with: outpace run --recipe {name} {target}\n"


def recipe_text(recipe: Recipe, name: str = "outpace.toml") -> str:
    """A recipe as TOML; ``name``: its file, as a command names it."""
    head = HEAD.format(name=_line(shlex.quote(name)), target=_line(recipe.target))
    lines = [head]
    keys = ("schema", "target", "outpace", "python", "torch", "machine", "fingerprint")
    lines += [f"{key} = {_value(getattr(recipe, key))}" for key in keys]
    if recipe.speedup is not None:
        lines.append(f"speedup = {_gain(recipe.speedup)}")
    if recipe.environment:
        lines.append("\n[environment]")
        lines += [f"{k} = {_value(v)}" for k, v in recipe.environment.items()]
    if recipe.proof is not None:
        lines.append("\n[proof]")
        told = msgspec.to_builtins(recipe.proof).items()
        lines += [f"{key} = {_value(value)}" for key, value in told if value is not None]
    for remedy in recipe.remedies:
        lines += [
            "\n[[remedies]]",
            f"name = {_value(remedy.name)}",
            f"keeps = {_value(remedy.keeps)}",
        ]
        if remedy.settings:
            pairs = ", ".join(f"{k} = {_value(v)}" for k, v in remedy.settings.items())
            lines.append(f"settings = {{{pairs}}}")
        if remedy.gain is not None:
            lines.append(f"gain = {_gain(remedy.gain)}")
        if remedy.reason:
            lines.append(f"reason = {_value(remedy.reason)}")
    return "\n".join(lines) + "\n"


def _line(text: str) -> str:
    """Text without what a comment in TOML cannot hold."""
    return "".join(c if c.isprintable() else " " for c in text)


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.6g}" if "." in f"{value:.6g}" or "e" in f"{value:.6g}" else f"{value:.1f}"
    return json.dumps(value, ensure_ascii=False)


def _gain(gain: Gain) -> str:
    return (
        f"{{speedup = {gain.speedup:.3f}, low = {gain.low:.3f}, high = {gain.high:.3f}, "
        f'how = "{gain.how}"}}'
    )


def write_recipe(path: Path, recipe: Recipe) -> None:
    """Write a recipe, whole or not at all."""
    write_text(path, recipe_text(recipe, str(path)))


def read_recipe(path: Path) -> Recipe:
    """Read a recipe; RecipeError names the file and what is wrong with it."""
    try:
        text = path.read_bytes()
        schema = msgspec.toml.decode(text, type=Schema).schema
        if schema != SCHEMA:
            raise RecipeError(
                f"{path} has schema {schema}; this outpace reads schema {SCHEMA}",
                "outpace tune --force makes it anew",
            )
        return msgspec.toml.decode(text, type=Recipe)
    except FileNotFoundError:
        raise RecipeError(f"{path} does not exist", "outpace tune makes a recipe") from None
    except (OSError, msgspec.MsgspecError, ValueError) as error:
        raise RecipeError(
            f"{path} cannot be read: {error}", "mend it, or make it anew: outpace tune --force"
        ) from error

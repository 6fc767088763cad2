"""Defaults of options from the nearest pyproject.toml's ``[tool.outpace]``.

Keys are the options' names: ``time = "2m"`` at the top serves every command that has ``--time``,
``[tool.outpace.tune]`` serves one. A relative path is taken from where pyproject.toml is.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

import click

from outpace.errors import UsageError

OPTIONS = {
    "diagnose": "time steps trace seed from allow verbose quiet json force output session",
    "tune": "time recipe diff seeds margin require-proof only skip ram disk from allow verbose quiet "
    "json force output session",
    "run": "recipe no-recipe deadline by reserve land schedule session quiet",
    "train": "budget session json quiet",
    "plan": "deadline by reserve flops params tokens unique-tokens served-tokens device count hours "
    "mfu dtype law fit steps epochs samples time memory batch cost objective usd-per-hour output "
    "force json quiet",
    "pack": "as resize quality float32 verify on-error jobs force json quiet",
    "live": "json",
    "report": "output json force",
    "compare": "markdown json",
    "remedies": "json",
    "env": "start json",
    "demo": "",
}
"""of each command; written down here so that none has to be imported for another's sake"""
OTHER_MEANING = {("plan", "steps")}
"""commands and options that mean another thing to them: the length of a training, and not where to stop"""
PATHS = ("session", "output", "recipe", "trace", "fit", "allow")
SEVERAL = ("only", "skip", "reserve", "allow")
"""may be lists"""


def defaults(folder: Path | None = None) -> dict[str, Any]:
    """Click's default map: of every command, its options' parameters."""
    file = _nearest(folder or Path.cwd())
    if file is None:
        return {}
    table = _read(file)
    options = {name: listed.split() for name, listed in OPTIONS.items()}
    shared = {k: v for k, v in table.items() if not isinstance(v, dict)}
    _check(file, "tool.outpace", list(shared), {o for known in options.values() for o in known})
    tables = {k: v for k, v in table.items() if isinstance(v, dict)}
    _check(file, "tool.outpace", list(tables), options)
    found: dict[str, Any] = {}
    for name, known in options.items():
        own = tables.get(name, {})
        _check(file, f"tool.outpace.{name}", list(own), known)
        common = {k: v for k, v in shared.items() if (name, k) not in OTHER_MEANING}
        found[name] = {_plain(k): _value(file, k, v) for k, v in {**common, **own}.items()}
    return found


def of_command(command: click.Command, given: dict[str, Any]) -> dict[str, Any]:
    """The same by the names of the command's parameters."""
    found = {}
    for param in command.params:
        for name in param.opts:
            plain = _plain(name.lstrip("-"))
            if isinstance(param, click.Option) and plain in given:
                value = given[plain]
                if isinstance(value, bool) and not param.is_flag:
                    said = f"{plain} = {str(value).lower()} in pyproject.toml"
                    raise UsageError(said, f"--{plain} takes a value")
                one = param.multiple and isinstance(value, str)
                found[str(param.name)] = [value] if one else value
    return found


def _nearest(start: Path) -> Path | None:
    places = (place / "pyproject.toml" for place in (start, *start.parents))
    # Path.is_file would raise for one that may not be looked at.
    return next((file for file in places if os.path.isfile(file)), None)


def _read(file: Path) -> dict[str, Any]:
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from error
    if "outpace" not in text:
        return {}
    import tomllib

    try:
        tools = tomllib.loads(text).get("tool", {})
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{file} cannot be read: {error}") from error
    table = tools.get("outpace", {}) if isinstance(tools, dict) else {}
    if not isinstance(table, dict):
        raise UsageError(f"tool.outpace in {file} is not a table")
    return table


def _plain(key: str) -> str:
    return key.replace("-", "_")


def _value(file: Path, key: str, value: Any) -> Any:
    """As it would be typed: Click reads it, and says what is wrong with it."""
    several = isinstance(value, list) and key in SEVERAL
    if not all(
        isinstance(each, str | bool | int | float) for each in (value if several else [value])
    ):
        raise UsageError(
            f"{key} in {file} is {value!r}", "write it as on the command line, in quotes"
        )
    if isinstance(value, bool):
        return value
    typed = [str(each) for each in (value if several else [value])]
    typed = [str(file.parent / each) for each in typed] if key in PATHS else typed
    return typed if several else typed[0]


def _check(file: Path, table: str, keys: list[str], known: Collection[str]) -> None:
    for key in keys:
        if key.replace("_", "-") not in known:
            near = difflib.get_close_matches(key.replace("_", "-"), known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(sorted(known))}"
            raise UsageError(f"unknown key {key!r} in [{table}] of {file}", hint)

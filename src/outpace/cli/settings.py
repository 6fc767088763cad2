"""Defaults of options from the nearest pyproject.toml's ``[tool.outpace]``.

Keys are the options' names: ``time = "2m"`` at the top serves every command that has ``--time``,
``[tool.outpace.tune]`` serves one. A relative path is taken from where pyproject.toml is.
"""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

import click

from outpace.errors import UsageError

TABLES = ("diagnose", "tune", "run", "report", "compare", "remedies", "env", "demo")
SHARED = (
    "session",
    "output",
    "force",
    "json",
    "quiet",
    "verbose",
    "time",
    "steps",
    "trace",
    "seed",
    "recipe",
    "no-recipe",
    "diff",
    "seeds",
    "margin",
    "require-proof",
    "only",
    "skip",
)
PATHS = ("session", "output", "recipe", "trace")
LATER = ("plan", "pack", "live")
"""tables of commands that other versions have"""


def defaults(folder: Path | None = None) -> dict[str, Any]:
    """Click's default map: of every command, its options' parameters."""
    file = _nearest(folder or Path.cwd())
    if file is None:
        return {}
    table = _read(file)
    _check(file, "tool.outpace", [k for k, v in table.items() if not isinstance(v, dict)], SHARED)
    tables = {k: v for k, v in table.items() if isinstance(v, dict)}
    _check(file, "tool.outpace", list(tables), (*TABLES, *LATER))
    shared = {k: v for k, v in table.items() if not isinstance(v, dict)}
    found: dict[str, Any] = {}
    for name in TABLES:
        own = tables.get(name, {})
        _check(file, f"tool.outpace.{name}", list(own), SHARED)
        found[name] = {_plain(k): _value(file, k, v) for k, v in {**shared, **own}.items()}
    return found


def of_command(command: click.Command, given: dict[str, Any]) -> dict[str, Any]:
    """The same by the names of the command's parameters."""
    found = {}
    for param in command.params:
        for name in param.opts:
            plain = _plain(name.lstrip("-"))
            if isinstance(param, click.Option) and plain in given:
                found[str(param.name)] = given[plain]
    return found


def _nearest(start: Path) -> Path | None:
    places = (place / "pyproject.toml" for place in (start, *start.parents))
    return next((file for file in places if file.is_file()), None)


def _read(file: Path) -> dict[str, Any]:
    text = file.read_text(encoding="utf-8", errors="replace")
    if "outpace" not in text:
        return {}
    import tomllib

    try:
        table = tomllib.loads(text).get("tool", {}).get("outpace", {})
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{file} cannot be read: {error}") from error
    if not isinstance(table, dict):
        raise UsageError(f"tool.outpace in {file} is not a table")
    return table


def _plain(key: str) -> str:
    return key.replace("-", "_")


def _value(file: Path, key: str, value: Any) -> Any:
    return str(file.parent / value) if key in PATHS and isinstance(value, str) else value


def _check(file: Path, table: str, keys: list[str], known: tuple[str, ...]) -> None:
    for key in keys:
        if key.replace("_", "-") not in known:
            near = difflib.get_close_matches(key.replace("_", "-"), known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(sorted(known))}"
            raise UsageError(f"unknown key {key!r} in [{table}] of {file}", hint)

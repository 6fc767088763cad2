"""Defaults of options from the nearest pyproject.toml's ``[tool.outpace]``."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from outpace.errors import UsageError

PER_COMMAND = ("diagnose", "tune", "run", "report")


def defaults(folder: Path | None = None) -> dict[str, Any]:
    """Click's default map; keys at the top serve every command, tables their own."""
    start = folder or Path.cwd()
    for place in (start, *start.parents):
        file = place / "pyproject.toml"
        if file.is_file():
            return _read(file)
    return {}


def _read(file: Path) -> dict[str, Any]:
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8")).get("tool", {}).get("outpace", {})
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{file} cannot be read: {error}") from error
    shared = {k.replace("-", "_"): v for k, v in table.items() if not isinstance(v, dict)}
    found: dict[str, Any] = {}
    for name in PER_COMMAND:
        own = {k.replace("-", "_"): v for k, v in table.get(name, {}).items()}
        found[name] = {**shared, **own}
    return found

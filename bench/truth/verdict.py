"""What Outpace says of a case, held against the label."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from cases import Case, output_of


def outpace(command: str, target: list[str], folder: Path, *options: str) -> Any:
    """What a command says of a target with --json; it runs in ``folder``."""
    line = [sys.executable, "-m", "outpace", command, "--json", *options, "--session"]
    line += [str(folder / "session"), *target]
    return json.loads(output_of(line, folder, 900.0))


def judged(case: Case, verdict: dict[str, Any]) -> dict[str, Any]:
    """The first finding, that of the planted cause, and what is advised."""
    findings = verdict["findings"]
    nothing = {"bound": "none", "cause": None, "where": None, "gain": None}
    top = findings[0] if findings else nothing
    same = [f for f in findings if (f["bound"], f["cause"]) == (case.bound, case.cause)]
    planted = same[0] if same else nothing
    file, _, line = (planted["where"] or ":0").rpartition(":")
    advised = {advice["name"] for finding in findings for advice in finding["remedies"]}
    return {
        "bound": top["bound"],
        "cause": top["cause"],
        "where": planted["where"],
        "top": [top["bound"], top["cause"]] == [case.bound, case.cause],
        "found": bool(same),
        "line_right": Path(file).resolve() == case.path and int(line) in case.lines,
        "gain": planted["gain"],
        "told": [[f["bound"], f["cause"], f["gain"]["speedup"]] for f in findings],
        "advised": sorted(advised),
        "advice_right": bool(advised & set(case.remedies)) if case.remedies else None,
    }

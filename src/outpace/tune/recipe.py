"""The recipe and the diff that come of the trials that were accepted."""

from __future__ import annotations

import os
import platform
import shlex
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

from outpace.records.evidence import Evidence
from outpace.records.gain import Gain
from outpace.records.machine import Machine
from outpace.records.recipe import Applied, Proven, Recipe
from outpace.records.target import Target
from outpace.records.trial import Proof, Trial
from outpace.remedies.base import unified
from outpace.remedies.catalog import remedy
from outpace.remedies.compile_model import COMPILE_S, CompileModel
from outpace.remedies.patch import patch_of
from outpace.tune.environment import environment_of
from outpace.tune.trials import keeps_samples, product

MARK = "\ufeff"
"""of the order of bytes, which some editors begin a file with"""


def by_trials(accepted: list[Trial]) -> dict[str, Any]:
    """What comparing the whole recipe would give `total_gain`, by the gains of its trials.

    Those count the images that are not kept already. In a first epoch what keeps samples gives nothing.
    """
    epochs = [t for t in accepted if remedy(t.remedy).gain_of == "epochs"]
    steps = [t for t in accepted if t not in epochs]
    at_first = [t for t in steps if not keeps_samples(t)]
    parts = {"recipe": steps, "epochs": epochs}
    if at_first != steps:
        parts["cold"] = at_first
    compiled = any(trial.remedy == CompileModel.name for trial in steps)
    found: dict[str, Any] = {
        name: {"gain": product(t.measured for t in trials)} for name, trials in parts.items()
    }
    return {**found, "compiling_s": COMPILE_S[1] if compiled else 0.0}


def on_top(final: Mapping[str, Any], added: list[Trial]) -> dict[str, Any]:
    """What comparing the recipe as a whole gave, with remedies that were accepted on top of it afterwards."""
    new, found = by_trials(added), dict(final)
    for name in final.keys() & {"recipe", "cold"}:
        compared = msgspec.convert(final[name]["gain"], Gain)
        found[name] = {"gain": product([compared, new.get(name, new["recipe"])["gain"]])}
    return {**found, "epochs": new["epochs"]}


def recipe_of(
    target: Target,
    machine: Machine,
    accepted: list[Trial],
    speedup: Gain | None,
    proof: Proof | None,
) -> Recipe:
    """The recipe as a record."""
    proven = None
    if proof is not None:
        proven = Proven(
            proof.proven,
            proof.seeds,
            proof.steps,
            proof.margin,
            proof.confidence,
            proof.high,
            proof.measure,
        )
    return Recipe(
        schema=1,
        target=shlex.join(target.words),
        outpace=version("outpace"),
        python=platform.python_version(),
        torch=version("torch"),
        machine=f"{machine.cpu}, {machine.cores} cores",
        fingerprint=machine.fingerprint,
        speedup=speedup,
        proof=proven,
        environment=environment_of((t.remedy, t.settings) for t in accepted),
        remedies=tuple(
            Applied(t.remedy, t.keeps, t.settings, t.measured, t.reason) for t in accepted
        ),
    )


def diff_of(
    target: Target, evidence: Evidence, accepted: list[Trial]
) -> tuple[str, tuple[str, ...]]:
    """The change that a person would make in the script for the accepted remedies, and the names of those
    that it is without, as they cannot be written there.
    """
    path = Path(target.cwd) / target.name
    chosen = [(trial.remedy, trial.settings) for trial in accepted]
    nothing = "", tuple(name for name, _ in chosen)
    if target.kind != "script" or not path.exists():
        return nothing
    try:
        text = path.read_bytes().decode("utf-8")
    except UnicodeDecodeError:
        return nothing  # a patch in another encoding would not apply
    source = text.removeprefix(MARK)
    patch = patch_of(source, evidence, chosen, target.name)
    changed = text.removesuffix(source) + patch.text
    name = os.path.relpath(path, target.cwd)
    diff = unified(text, changed, path.name if name.startswith(os.pardir) else name)
    return diff, patch.without

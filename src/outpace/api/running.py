"""A training under a recipe, and a deadline."""

from __future__ import annotations

import contextlib
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from outpace.adapters.folder import reserved
from outpace.adapters.launch import start, stop, wait
from outpace.adapters.work import Output
from outpace.errors import DeadlineError
from outpace.measure.machine import describe
from outpace.plan.budget import duration
from outpace.plan.countdown import Countdown, boot_id
from outpace.records.machine import Machine
from outpace.records.plan import Landed, Progress
from outpace.records.recipe import Recipe
from outpace.records.recipe_file import read_recipe
from outpace.records.target import Target, train_alike, trains
from outpace.report import words
from outpace.tune.files import PROGRESS, read

DEFAULT_RECIPE = Path("outpace.toml")
LAST_RUN = Path(".outpace", "last-run")
FEW_STEPS = 1
"""of a training that was late: what lacked was time for its start and a step"""


def run(
    target: Target,
    *,
    recipe: Path | None,
    session: Path | None = None,
    output: Output = "inherit",
    deadline: Countdown | None = None,
    land: Landed | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    reserved_s: float = 0.0,
) -> int:
    """Run the target under a recipe; its exit code.

    With a ``deadline`` it is watched for it, and with ``land`` ended in time: the learning rate then
    goes down as ``land`` says. ``reserved_s``: seconds after it that are kept for other things. Raises
    DeadlineError where it ended well, but too late, and RecipeError for a recipe that cannot be applied.
    """
    record = _checked(recipe, target) if recipe is not None else None
    with reserved(session or LAST_RUN, exactly=session is not None) as folder:
        if session is None and folder != LAST_RUN.absolute():
            print(
                f"outpace: another run is using {LAST_RUN}; what is noted of this one is in "
                f"{LAST_RUN.parent / folder.name}",
                file=sys.stderr,
            )
        code = _run(target, record, folder, output, deadline, land, on_progress)
        if deadline is not None and (left := deadline.left()) < 0:
            late = _too_late(-left, reserved_s, land, read(folder / PROGRESS))
            if code == 0:
                raise late
            print(f"warning: {late}\nhint: {late.hint}", file=sys.stderr)
        return code


def _run(
    target: Target,
    record: Recipe | None,
    folder: Path,
    output: Output,
    deadline: Countdown | None,
    land: Landed | None,
    on_progress: Callable[[Progress], None] | None,
) -> int:
    applied = record.remedies if record is not None else ()
    (folder / PROGRESS).unlink(missing_ok=True)  # not the checkpoint: the script may go on from it
    spec: dict[str, Any] = {
        "entry": "outpace.tune.apply:begin",
        "session": str(folder),
        "remedies": [{"name": r.name, "settings": r.settings} for r in applied],
    }
    if deadline is not None:
        spec["deadline"] = {
            "began": deadline.began,
            "boot": boot_id(),
            "began_at": time.time() - deadline.elapsed(),
            "seconds": deadline.seconds,
            "at": deadline.at,
            "land": land,
        }

    def tick() -> None:
        told = read(folder / PROGRESS)
        if told and on_progress is not None:
            with contextlib.suppress(OSError):  # nobody reads it any more, and the training goes on
                on_progress(msgspec.convert(told, Progress))

    env = record.environment if record is not None else {}
    child = start(target, session=folder, mode="run", spec=spec, env=env, output=output)
    try:
        return wait(child, on_tick=tick)
    except BaseException:
        stop(child)
        raise


def tune_into(recipe: Path, target: Target, *options: str) -> str:
    """The command that makes a recipe."""
    named = () if recipe == DEFAULT_RECIPE else ("--recipe", str(recipe))
    return words.outpace("tune", target, *options, *named)


def _elsewhere(recipe: Recipe, here: Machine) -> str:
    """What tells the recipe's machine from this one, as far as both are told."""
    own = f"{here.cpu}, {here.cores} cores"
    if recipe.machine != own:
        return f"on another machine ({recipe.machine}; here: {own})"
    if recipe.torch != here.torch:
        return f"with torch {recipe.torch} (here: {here.torch})"
    return "with another GPU, or other memory"


def _too_late(
    late: float, reserved_s: float, land: Landed | None, told: dict[str, Any] | None
) -> DeadlineError:
    within = late <= reserved_s
    missed = late if within else late - reserved_s
    by = duration(missed) if missed >= 10 else f"{max(0.1, missed):.1f}s"
    text = f"it ended {by} into what is reserved" if within else f"the deadline was missed by {by}"
    if reserved_s and not within:
        text += f"; the {duration(reserved_s)} that were reserved are over too"
    return DeadlineError(text, _why_late(land, told))


def _why_late(land: Landed | None, told: dict[str, Any] | None) -> str:
    if not told:
        return "no step of a training was seen in the script's process: it could not be watched"
    if land is None:
        return "--land ends it in time"
    if told["steps"] <= FEW_STEPS:
        return (
            f"it was at step {told['steps']} when the time was nearly up: its start, a step and its end "
            "alone take about so long, and --deadline has to leave more than that"
        )
    if not told["landing"]:
        return "it could not be ended earlier, or seemed to fit; an earlier --deadline leaves more room"
    return (
        "what came after the last step took longer than was kept for it; an earlier --deadline ends all "
        "of it earlier"
    )


def _checked(path: Path, target: Target) -> Recipe:
    """The recipe, if it can be applied; a warning where it is another script's, or another machine's."""
    from outpace.remedies.catalog import setup_of_recipe

    recipe, here = read_recipe(path), describe()
    # A person may have written the variables, or the remedies that need them, or both.
    needed = dict(setup_of_recipe(recipe, path).environment)
    recipe = msgspec.structs.replace(recipe, environment={**recipe.environment, **needed})
    try:
        measured = shlex.split(recipe.target)
    except ValueError:  # a quote that a person left open
        measured = recipe.target.split()
    again = tune_into(path, target, "--force")
    if measured and not train_alike(measured, target.words, target.cwd):
        print(
            f"warning: {path} was measured and proven with {trains(measured)}, not with "
            f"{trains(target.words)}\n"
            f"hint: {again}; --no-recipe runs without",
            file=sys.stderr,
        )
    if recipe.fingerprint != here.fingerprint:
        print(
            f"warning: this recipe was measured {_elsewhere(recipe, here)}\nhint: {again}",
            file=sys.stderr,
        )
    return recipe

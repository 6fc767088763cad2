"""A session: one use of Outpace as data, from which any report is made."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, get_args

import msgspec

from outpace.errors import SessionError
from outpace.records.evidence import Evidence, Overhead
from outpace.records.files import read_json
from outpace.records.finding import Bound, Finding, Learning
from outpace.records.gain import Gain
from outpace.records.ledger import Row
from outpace.records.machine import Machine
from outpace.records.memory import ByKind
from outpace.records.recipe import Recipe
from outpace.records.target import Target
from outpace.records.training import Training
from outpace.records.trial import Proof, Trial

Command = Literal["diagnose", "tune"]
Outcome = Literal["done", "no training", "failed", "interrupted"]


class StepSummary(msgspec.Struct, frozen=True):
    """The ``steps`` of the JSON contract."""

    count: int
    median_s: float
    cpu_s: float
    samples_per_s: float
    """of all ranks"""


class MemorySummary(msgspec.Struct, frozen=True):
    """The ``memory`` of the JSON contract."""

    peak_bytes: int
    by_kind: ByKind


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """What `diagnose --json` prints (schema 1)."""

    schema: int = 1
    outcome: Outcome
    target: Target
    machine: Machine
    steps: StepSummary
    ledger: tuple[Row, ...]
    bound: Bound
    cause: str | None
    findings: tuple[Finding, ...]
    learning: tuple[Learning, ...] = ()
    memory: MemorySummary
    overhead: Overhead | None
    notes: tuple[str, ...] = ()
    exit_code: int | None = None


class Session(Diagnosis, frozen=True, kw_only=True):
    """What `tune --json` prints and ``session.json`` holds: the diagnosis and what came after."""

    command: Command
    started: str
    seconds: float
    evidence: Evidence
    trials: tuple[Trial, ...] = ()
    proof: Proof | None = None
    speedup: Gain | None = None
    recipe: str | None = None
    recipe_record: Recipe | None = None
    diff: str = ""
    not_in_diff: tuple[str, ...] = ()
    """remedies of the recipe that the diff is without"""


class Kind(msgspec.Struct, frozen=True):
    """What of a ``session.json`` tells which record it is."""

    command: str | None = None


def read_session(path: Path) -> Session | Training:
    """Read a session of either kind. Raises SessionError, also where it is none."""
    command = read_json(path, Kind).command
    if command == "train":
        return read_json(path, Training)
    if command in get_args(Command):
        return read_json(path, Session)
    raise SessionError(
        f"{path} is no session of outpace", "diagnose, tune and train write a session.json"
    )

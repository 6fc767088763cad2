"""Checkpoints: whole or not at all, written beside the training, read with ``weights_only=True``.

What is written is a copy that the training's thread has made; a thread writes it, and the last two are
kept. A crash loses what came after the newest one, at most the interval between two.
"""

from __future__ import annotations

import pickle
import random
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, final

import numpy as np
import torch

from outpace.errors import DataError
from outpace.plan.safety import write
from outpace.seams.batch import tuple_like
from outpace.train import ranks

BEST = "best.pt"
STEP = f"step-{'[0-9]' * 10}"
"""of the names of checkpoints; what else is in their folder is the user's"""
KEPT = 2
FORMAT = 5
RETRY_S = 30.0
UNREADABLE = (OSError, RuntimeError, pickle.UnpicklingError, EOFError, DataError)


def copied(state: Any) -> Any:
    """A nest of containers with every tensor in it copied to the CPU."""
    if isinstance(state, torch.Tensor):
        tensor = state.detach()
        return tensor.clone() if tensor.device.type == "cpu" else tensor.to("cpu")
    if isinstance(state, dict):
        return versioned({key: copied(value) for key, value in state.items()}, state)
    if isinstance(state, tuple):
        return tuple_like(state, map(copied, state))
    if isinstance(state, list):
        return type(state)(copied(value) for value in state)
    if isinstance(state, np.ndarray):
        return state.copy()
    if isinstance(state, np.generic):
        return state.item()  # torch reads no numbers of numpy's back
    return state


def versioned(values: dict[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
    """Values taken from a state dict, with the versions of the modules that it is of: layers that know older
    state dicts go by them.
    """
    versions = getattr(state, "_metadata", None)
    if versions is None:
        return values
    found: Any = OrderedDict(values)  # what torch keeps them on
    found._metadata = versions
    return found  # type: ignore[no-any-return]


@final
class Checkpoints:
    """The checkpoints of a folder. ``every_s``: seconds of training between two.

    ``say`` is told where one could not be written; training goes on and another is tried.
    """

    def __init__(self, folder: Path, every_s: float, say: Callable[[str], None]) -> None:
        self.folder, self.every_s, self.say = folder, every_s, say
        self.next_s = every_s
        self.retry_s = 0.0
        """longer that the next one waits, where the last could not be written"""
        self.proven = False
        self.problem: Exception | None = None
        """why the last one could not be written"""
        self._thread: threading.Thread | None = None
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            hint = "name a folder that can be written to"
            raise DataError(f"no checkpoint can be kept in {folder}: {error}", hint) from error

    @property
    def busy(self) -> bool:
        """Whether one is being written."""
        return self._thread is not None and self._thread.is_alive()

    def paths(self) -> list[Path]:
        """The newest first."""
        return sorted(self.folder.glob(f"{STEP}.pt"), reverse=True)

    def newest(self) -> tuple[Path, dict[str, Any]] | None:
        """The newest that can be read. Raises DataError where there are some and none can be."""
        best = (self.folder / BEST).with_suffix(".part")
        for part in (best, *self.folder.glob(f"{STEP}.part")):
            part.unlink(missing_ok=True)  # a writer was killed
        problem: Exception | None = None
        unread: list[str] = []
        for path in self.paths():
            try:
                state = read(path)
            except UNREADABLE as error:
                problem = error
                unread.append(f"{path} cannot be read ({error}): the one before it is taken")
            else:
                for told in unread:
                    self.say(told)
                return path, state
        if problem is not None:
            hint = "name another folder, or delete this one to begin anew"
            raise DataError(f"no checkpoint in {self.folder} can be read: {problem}", hint)
        return None

    def due(self, elapsed: float, *, together: bool) -> bool:
        """Whether it is time for one. Ranks that save together go by the clock that all of them read, and
        by nothing that one of them alone knows.
        """
        if together:
            return elapsed >= self.next_s
        return elapsed >= self.next_s + self.retry_s and not self.busy

    def begin(
        self,
        state: dict[str, Any],
        step: int,
        elapsed: float,
        wrote: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        """Have a thread write a copy of a state, after the one that is being written; ``wrote`` is told how
        long it took.
        """
        self.wait()
        self.next_s, self.retry_s = elapsed + self.every_s, 0.0
        content = {"outpace_checkpoint": FORMAT, **state}
        path = self.folder / f"step-{step:010d}.pt"
        # No daemon: Python waits for it at its end.
        self._thread = threading.Thread(target=self._write, args=(path, content, wrote))
        self._thread.start()

    def _write(self, path: Path, content: dict[str, Any], wrote: Callable[[float], None]) -> None:
        began = time.perf_counter()
        try:
            write(path, content)
            if not self.proven:
                self.prove(path)
            for old in self.paths()[KEPT:]:
                old.unlink(missing_ok=True)
            self.problem = None
        except Exception as error:
            self.retry_s, self.problem = RETRY_S, error
            self.say(f"no checkpoint was written: {error}")
        wrote(time.perf_counter() - began)

    def prove(self, path: Path) -> None:
        """Say so where the first one cannot be read again: what models and sources keep may be anything."""
        self.proven = True
        try:
            read(path)
        except UNREADABLE as error:
            self.say(f"{path} cannot be read again, so that nobody could go on from it: {error}")

    def wait(self) -> None:
        """Until nothing is being written."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def lost(self) -> str | None:
        """Once nothing is being written: that the last one was not, and why, if so."""
        self.wait()
        if self.problem is None:
            return None
        newest = next(iter(self.paths()), None)
        then = f"goes on from {newest}" if newest is not None else "begins anew"
        return f"the last checkpoint could not be written ({self.problem}): started again it {then}"


def read(path: Path) -> dict[str, Any]:
    """A checkpoint. Raises one of `UNREADABLE`."""
    state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    if state.get("outpace_checkpoint") != FORMAT:
        raise DataError(f"{path} is no checkpoint of this version of outpace")
    return state


def newest(checkpoints: Checkpoints, world: int) -> tuple[Path, dict[str, Any]] | None:
    """The newest that the first rank can read, read by all. Raises DataError on all where one cannot."""
    if world == 1:
        return checkpoints.newest()
    found: tuple[Path, dict[str, Any]] | None = None
    problem: tuple[str, str | None] | None = None
    try:
        found = checkpoints.newest() if ranks.leads() else None
    except DataError as error:
        problem = str(error), error.hint
    path = ranks.first(found and found[0], world)
    if path is not None and found is None:
        try:
            found = path, read(path)
        except UNREADABLE as error:
            told = f"{path} cannot be read by rank {ranks.number()}: {error}"
            problem = told, "have all ranks see the same folder of checkpoints"
    for each in ranks.gathered(problem, world):
        if each is not None:
            raise DataError(*each)
    return found


def seed_all(seed: int) -> None:
    """Seed the generators of Python, numpy and torch."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)

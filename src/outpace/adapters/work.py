"""One use of Outpace under way: where its files are, and how it runs the target."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal

import msgspec

from outpace.adapters.folder import reserved
from outpace.adapters.launch import cpu_s_of, start, stop, wait
from outpace.adapters.thrown_away import ThrownAway
from outpace.adapters.unattended import unattended
from outpace.errors import UsageError
from outpace.measure.ceilings import MEASURING, ceilings
from outpace.measure.machine import describe
from outpace.records.machine import Machine
from outpace.records.target import Target
from outpace.tune.files import PROGRESS, STATUS, read, tell, write
from outpace.tune.silence import Silence

RANKS_GRACE_S = 5.0
"""time that other ranks have to write down what they measured, once the first has"""

Output = Literal["inherit", "stderr"] | Path
Progress = Callable[[str, float, float, str], None]


@contextmanager
def working(
    target: Target,
    session: Path,
    output: Output,
    progress: Progress | None,
    allow: Sequence[Path] = (),
) -> Iterator[Work]:
    """One use, in a session's folder of its own. Raises SessionError where another process is using that, and
    UsageError where a folder that the target may write to cannot be made.
    """
    for each in allow:
        try:
            each.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            why = error.strerror or error
            raise UsageError(f"--allow {each}: {why}", "name a folder") from error
    with reserved(session, exactly=True) as folder:
        yield Work(target, folder, output, progress, allow=tuple(each.absolute() for each in allow))


@dataclass
class Work:
    """One use of Outpace under way."""

    target: Target
    session: Path
    output: Output
    progress: Progress | None = None
    machine: Machine = field(default_factory=describe)
    begun: float = field(default_factory=time.monotonic)
    started: str = field(
        default_factory=lambda: datetime.now().astimezone().isoformat(timespec="seconds")
    )
    runs: int = 0
    notes: list[str] = field(default_factory=list)
    thrown_away: ThrownAway | None = None
    """the newest run, and what became of the target's files in all of them"""
    allow: tuple[Path, ...] = ()
    """folders that the target writes to as ever"""

    def __post_init__(self) -> None:
        def measuring() -> None:
            if self.progress is not None:
                self.progress(MEASURING, 0, 1, "")

        top = ceilings(self.machine, measuring)
        self.machine = msgspec.structs.replace(self.machine, ceilings=top)

    def launch(
        self, entry: str, spec: Mapping[str, Any], folder: Path, env: Mapping[str, str]
    ) -> int:
        """Run the target once; only the first run's output is the user's to see.

        Where it tells nothing for longer than ``spec["silent_s"]`` it is ended, and its status says so.
        """
        if not self.runs:
            return self._launch(entry, spec, folder, env, None)
        with unattended() as stdin:  # nobody sees what a later run asks
            return self._launch(entry, spec, folder, env, stdin)

    def _launch(
        self,
        entry: str,
        spec: Mapping[str, Any],
        folder: Path,
        env: Mapping[str, str],
        stdin: int | None,
    ) -> int:
        folder.mkdir(parents=True, exist_ok=True)
        self.runs += 1
        output = self.output if self.runs == 1 else self.session / f"target-{self.runs}.log"
        full = {**spec, "entry": entry, "session": str(folder), "shadow": True,
                "allow": [str(each) for each in (self.session, *self.allow)],
                "command": self.target.kind == "command",
                "machine": msgspec.to_builtins(self.machine)}  # fmt: skip
        child = start(self.target, session=folder, mode="experiment", spec=full, env=env,
                      output=output, stdin=stdin)  # fmt: skip
        stopped: list[float] = []
        hung: list[float] = []
        most_s = spec.get("silent_s") or math.inf

        def tick() -> None:
            self.tick(folder)
            if self.is_stopped(folder):
                stopped.append(time.monotonic())
                if all_stopped(folder) or stopped[-1] - stopped[0] > RANKS_GRACE_S:
                    stop(child)
            elif silence.look() > most_s:
                hung.append(silence.seconds)
                stop(child)

        for old in (folder / STATUS, folder / PROGRESS, *folder.glob(f"rank-*/{STATUS}")):
            old.unlink(missing_ok=True)
        silence = Silence(folder, partial(cpu_s_of, child.pid))
        try:
            code = wait(child, on_tick=tick)
        except BaseException:
            stop(child)
            raise
        if child.thrown_away is not None:
            if self.thrown_away is not None:
                child.thrown_away.follow(self.thrown_away)
            self.thrown_away = child.thrown_away
        if child.told_to_end or (child.interrupted and self.runs > 1):
            raise KeyboardInterrupt
        if hung:
            with suppress(OSError):
                write(folder / STATUS, {**read(folder / STATUS, {}), "hung": hung[0]})
            return code or 1
        ended_in_time = self.is_stopped(folder) and not child.interrupted
        return 0 if stopped or ended_in_time else code

    def is_stopped(self, folder: Path) -> bool:
        """Whether all is measured, and what the target has started goes on: it is ours to end."""
        told = read(folder / STATUS, {})
        # A launcher of ranks may be named as the Python script that it is.
        goes_on = self.target.kind == "command" or told.get("together")
        return bool(goes_on and told.get("stopped"))

    def tick(self, folder: Path) -> None:
        """Pass on how far the running process is."""
        told = read(folder / PROGRESS)
        if told and self.progress is not None:
            self.progress(told["phase"], told["done"], told["total"], told["note"])

    def tell(self, phase: str, done: float, total: float, note: str = "") -> None:
        """Say how far we are, to `outpace live` too."""
        tell(self.session, phase=phase, done=done, total=total, note=note)
        if self.progress is not None:
            self.progress(phase, done, total, note)

    @property
    def told(self) -> list[str]:
        """What became of the target's files, and what else there is to say."""
        files = self.thrown_away.notes if self.thrown_away is not None else []
        return [*files, *self.notes]

    @property
    def seconds(self) -> float:
        """Since the begin."""
        return time.monotonic() - self.begun


def all_stopped(folder: Path) -> bool:
    """Whether every rank has measured all that it wants, the first having done so."""
    return all(read(rank / STATUS, {}).get("stopped") for rank in folder.glob("rank-*"))

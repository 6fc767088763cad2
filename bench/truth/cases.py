"""The cases of the truth bench: scripts in cases/ and the truth about them, from their docstrings."""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Case:
    """A script and what is true of it."""

    path: Path
    bound: str
    cause: str
    lines: tuple[int, ...]
    """where the plant is: any of these"""
    remedies: tuple[str, ...]
    """any of these is right"""
    amounts: tuple[str, ...]
    """of the plant, ascending; none: a control"""
    timed: bool
    """the plant costs time (a leak costs memory)"""
    ranks: int
    """processes that train together, under torchrun"""

    def target(self, amount: str, seed: int = 0) -> list[str]:
        """The words by which outpace is to run it."""
        args = self.arguments(amount, seed)
        if self.ranks == 1:
            return [str(self.path), *args]
        return ["--", *self.command(self.path, *args)]

    def arguments(self, amount: str, seed: int) -> list[str]:
        """What the script is given: its dose, which a control has none of, and its seed."""
        return [*([amount] if amount else []), str(seed)]

    def command(self, script: Path, *args: str) -> list[str]:
        """The words that run ``script`` as this case is to be run."""
        if self.ranks == 1:
            return [sys.executable, str(script), *args]
        torchrun = str(Path(sys.executable).with_name("torchrun"))
        return [torchrun, "--nproc-per-node", str(self.ranks), str(script), *args]

    @property
    def name(self) -> str:
        """The script's name."""
        return self.path.stem

    @property
    def held_out(self) -> bool:
        """Whether nothing may be tuned on it: a third of all, by a hash of the name."""
        return hashlib.sha256(self.name.encode()).digest()[0] % 3 == 0


def read_case(path: Path) -> Case:
    """A case by its docstring."""
    text = path.read_text()
    head, _, body = text.partition('"""')[2].partition('"""')
    facts = dict(line.split(": ", 1) for line in head.split("\n") if ": " in line[:12])
    skipped = text.count("\n", 0, text.index(body))
    lines = [
        skipped + index
        for index, line in enumerate(body.split("\n"), start=1)
        if any(text in line for text in facts["line"].split(" | "))
    ]
    bound, cause = facts["truth"].split()
    return Case(
        path,
        bound,
        cause,
        tuple(lines),
        tuple(facts.get("remedies", "").split()),
        tuple(facts.get("amounts", "").split()),
        "untimed" not in facts,
        int(facts.get("ranks", 1)),
    )


def all_cases(folder: str = "cases") -> list[Case]:
    """Every case, by name; those in "gpu" need one."""
    return [read_case(path) for path in sorted((HERE / folder).glob("*.py"))]


ENDING_S = 10.0
"""that a command has to end in once it is asked to"""


def kill(child: subprocess.Popen[str]) -> None:
    """A command and all that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)


def output_of(command: list[str], folder: Path, seconds: float = 300.0) -> str:
    """What a command prints that runs in ``folder``. Raises RuntimeError where it fails or hangs.

    All that it started is ended with it: a rank that is left would disturb what comes next.
    """
    child = subprocess.Popen(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        printed, errors = child.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(ENDING_S)
        kill(child)
        child.wait()
        raise RuntimeError(f"{command} took more than {seconds:.0f} s") from None
    if child.returncode:
        raise RuntimeError(f"{command}: exit code {child.returncode}\n{errors}")
    return printed


@contextlib.contextmanager
def beside_a_hog(wanted: bool) -> Iterator[None]:
    """With another program that keeps a core busy meanwhile."""
    if not wanted:
        yield
        return
    hog = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        hog.kill()
        hog.wait()

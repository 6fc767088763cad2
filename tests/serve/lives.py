"""A training of several ranks that is killed and goes on: python -m tests.serve.lives FOLDER KILLS SEED

Each life is a group of processes, a rank each, with other workers, ranks and batch size than the one
before. The first rank writes down what all have drawn, every few steps; at a random step, and at a
random moment of it, all are killed with SIGKILL. A life that comes to the end is compared with a run that
was never interrupted, and the next training begins, until there were so many kills.

One process imports torch and forks them all, so that a life costs as much as its loaders. Prints what
became of them as JSON.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import random
import signal
import sys
from collections.abc import Iterator
from functools import partial
from multiprocessing import Pipe
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from outpace.serve.loader import Loader
from tests.mortal import kill_soon, lived

SIZE, EPOCHS = 211, 2


class Numbers:
    """Samples whose noise comes from the generator that they are given."""

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"id": index, "x": np.full(4, index, np.float32)}


class Drawing(Numbers):
    """Samples whose noise comes from the generators of the process."""

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"id": index, "x": random.random() + np.random.rand(2) + torch.rand(2).numpy()}


def noisy(sample: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    return {**sample, "x": sample["x"] + rng.random(4, dtype=np.float32)}


class Life(NamedTuple):
    """How a training goes on, and after how many steps it is killed, if it is."""

    drawing: bool
    kind: Any
    workers: int
    world: int
    batch: int
    kept_every: int
    killed_after: int | None
    moment_s: float


def drawn(life: Life, rank: int, kept: dict[str, Any]) -> Iterator[tuple[Loader, Any]]:
    """The batches of one rank, from where the training was left."""
    loader = Loader(
        Drawing() if life.drawing else Numbers(),
        life.batch,
        transform=None if life.drawing else noisy,
        seed=3,
        executor=life.kind,
        workers=life.workers,
        rank=rank,
        world=life.world,
    )
    if kept:
        loader.load_state_dict(kept["loader"])
    while loader.epoch < EPOCHS:
        for batch in loader:
            digests = [hashlib.sha256(x.numpy().tobytes()).hexdigest() for x in batch["x"]]
            yield loader, list(zip(batch["id"].tolist(), digests, strict=True))
    loader.close()


def live(life: Life, path: Path) -> None:
    """Be the first rank, and start the others; ends with the training, or by being killed."""
    kept = pickle.loads(path.read_bytes()) if path.exists() else {}
    if kept and not kept["loader"]:
        return  # killed when it had come to its end
    ends = []
    for rank in range(1, life.world):
        ours, theirs = Pipe()
        if os.fork() == 0:
            for _, rows in drawn(life, rank, kept):
                theirs.send(rows)
            os._exit(0)
        theirs.close()
        ends.append(ours)
    if life.killed_after == 0:
        kill_soon(life.moment_s)
    seen = kept.get("seen", {})
    start = kept["loader"]["consumed"] if kept else 0
    for step, (loader, own) in enumerate(drawn(life, 0, kept), 1):
        state = loader.state_dict()
        if state["consumed"] <= start:
            start = 0  # a new epoch
        every = [own, *(end.recv() for end in ends)]
        for rank, rows in enumerate(every):
            for i, row in enumerate(rows):
                note(seen, state["epoch"], start + i * life.world + rank, row)
        start = state["consumed"]
        if step % life.kept_every == 0:
            keep(path, {"loader": state, "seen": seen})
        if step == life.killed_after:
            kill_soon(life.moment_s)
    keep(path, {"loader": {}, "seen": seen})


def note(seen: dict[Any, Any], epoch: int, position: int, row: Any) -> None:
    """A sample came at that place; past the end the epoch's first come once more."""
    before = seen.setdefault((epoch, position % SIZE), row)
    if position >= SIZE and before != row:
        raise AssertionError(f"epoch {epoch}, position {position}: {row} instead of {before}")


def keep(path: Path, what: Any) -> None:
    """Written whole or not at all."""
    new = path.with_suffix(".new")
    new.write_bytes(pickle.dumps(what))
    new.replace(path)


def digests(path: Path) -> tuple[str, str]:
    """SHA-256 of all ids, and of all tensors, in the order in which they were due."""
    seen = pickle.loads(path.read_bytes())["seen"]
    assert sorted(seen) == [(epoch, i) for epoch in range(EPOCHS) for i in range(SIZE)]
    rows = [seen[place] for place in sorted(seen)]
    both = (json.dumps([row[part] for row in rows]) for part in (0, 1))
    ids, tensors = (hashlib.sha256(text.encode()).hexdigest() for text in both)
    return ids, tensors


def main() -> None:
    """Live until there were enough kills."""
    folder, kills, chance = Path(sys.argv[1]), int(sys.argv[2]), random.Random(int(sys.argv[3]))
    torch.set_num_threads(1)
    wanted = {}
    for drawing in (False, True):
        whole = folder / f"whole-{drawing}"
        assert lived(partial(live, Life(drawing, "none", 0, 1, 8, 1000, None, 0.0), whole)) == 0
        wanted[drawing] = digests(whole)
    lives: list[Life] = []
    killed, trainings, unlike = 0, 0, 0
    while killed < kills:
        drawing, path = trainings % 2 == 1, folder / f"killed-{trainings}"
        code = 1
        while code:
            workers = chance.choice((0, 1, 2, 4))
            kinds = ("none",) if not workers else ("processes", "threads")[: 1 if drawing else 2]
            life = Life(
                drawing,
                chance.choice(kinds),
                workers,
                world=chance.choice((1, 2, 4)),
                batch=chance.randint(3, 12),
                kept_every=chance.randint(1, 3),
                killed_after=chance.randint(0, 9) if killed < kills else None,
                moment_s=chance.choice((0.0, 0.02, 0.2)) * chance.random(),
            )
            code = lived(partial(live, life, path))
            lives.append(life)
            if code not in (0, -signal.SIGKILL):
                sys.exit(f"{life} ended with {code}")
            killed += code != 0
        trainings += 1
        unlike += digests(path) != wanted[drawing]
    told = {"kills": killed, "trainings": trainings, "unlike": unlike, "digests": wanted[False]}
    for name in ("kind", "workers", "world", "batch"):
        told[name] = sorted({getattr(life, name) for life in lives})
    print(json.dumps(told))


if __name__ == "__main__":
    main()

"""The last few batches of a DataLoader, kept so that they can be given again.

The script may do with a batch what it likes: take parts out of it, reshape its tensors, change their
numbers. What is kept is apart from the script's own, and so is what is given again.
"""

from __future__ import annotations

import copy
import random
from collections import deque
from typing import Any

import torch

from outpace.seams.batch import batch_size, map_tensors, scalable, scale_batch, tensors_in
from outpace.seams.version_of import version_of

KEPT = 3
APART = (4, 12)
"""batches from one that is kept to the next, once there are some: by chance between these, as in an epoch of
eight batches every eighth one is the last, which has fewer samples"""


class Recent:
    """Some of the last batches."""

    def __init__(self) -> None:
        self.batches: deque[Any] = deque(maxlen=KEPT)
        self._scaled: dict[float, list[Any]] = {}
        self._changes = False
        """the script changes the numbers of its batches where they are"""
        self._versions = 0
        """of the newest one's tensors when it was kept: torch counts what changes them"""
        self._seen = self._turn = self._wanted = 0
        self._chance = random.Random(0)

    def __bool__(self) -> bool:
        return bool(self.batches)

    @property
    def scalable(self) -> bool:
        """Whether they can be given with more or fewer samples."""
        return all(map(scalable, self.batches))

    def see(self, batch: Any) -> None:
        """A batch is on its way to the script."""
        self._seen += 1
        if self._seen < self._wanted:
            return
        self._wanted = self._seen + (1 if self._seen < KEPT else self._chance.randint(*APART))
        if self.batches and not self._changes and versions(self.batches[-1]) != self._versions:
            self._changes = True
            self.batches.clear()
        kept = apart(batch, copied=self._changes)
        self._versions = versions(kept)
        self.batches.append(kept)

    def only_the_fullest(self) -> int:
        """Give none again but those with the most samples. Returns how many these are."""
        most = max(map(batch_size, self.batches))
        fullest = [batch for batch in self.batches if batch_size(batch) == most]
        self.batches = deque(fullest, maxlen=KEPT)
        self._scaled.clear()
        return most

    def again(self, scale: float = 1.0) -> Any:
        """One of them, with so many times its samples."""
        batches: Any = self.batches
        if scale != 1.0:
            if scale not in self._scaled:
                self._scaled[scale] = [scale_batch(b, scale) for b in self.batches]
            batches = self._scaled[scale]
        self._turn += 1
        return apart(batches[self._turn % len(batches)], copied=self._changes)


def apart(batch: Any, *, copied: bool) -> Any:
    """The same batch in containers and tensors of its own; they share the numbers unless ``copied``."""
    own = map_tensors(batch, torch.Tensor.clone if copied else torch.Tensor.detach)
    if own is not batch:
        return own
    try:
        return copy.copy(batch)  # a class of the script's
    except Exception:
        return batch


def versions(batch: Any) -> int:
    """How often its tensors were changed where they are, together."""
    return sum(map(version_of, tensors_in(batch)))

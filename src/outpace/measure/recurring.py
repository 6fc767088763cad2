"""How often something comes outside of steps: validations, checkpoints, starts of epochs.

What was seen by the time that measuring ended says little by its share: most often that is between
two of them. So the steps from one to the next are taken, from the first on.
"""

from __future__ import annotations

from dataclasses import dataclass

from outpace.records.run import Recurring


@dataclass
class Came:
    """When one kind came, in steps before it, and how long all took together."""

    count: int = 0
    first: int = 0
    last: int = 0
    ns: int = 0
    first_ns: int = 0

    def note(self, steps: int, ns: int) -> None:
        """It came after so many steps."""
        if not self.count:
            self.first, self.first_ns = steps, ns
        self.count += 1
        self.last = steps
        self.ns += ns


BETWEEN = 0.5
LONGER = 1.5
"""times as long as the others in the mean that a first one took, to be told apart: a data set that keeps its
samples has made them then"""


def recurring(name: str, came: Came, steps: int) -> Recurring:
    """What came at least once in so many steps.

    What came once in their second half is taken to come as often again. In their first half it
    would have come twice: it comes again after all of them at the earliest.
    """
    each_s = came.ns / 1e9 / came.count
    if came.count > 1:
        every = max(1.0, (came.last - came.first) / (came.count - 1))
        # Where it falls between steps it is noted after the last whole one.
        first = came.first + (BETWEEN if every % 1 else 0)
        others_s, longer_s = (came.ns - came.first_ns) / 1e9 / (came.count - 1), 0.0
        if came.first_ns / 1e9 > LONGER * others_s:
            each_s, longer_s = others_s, came.first_ns / 1e9 - others_s
        return Recurring(name, each_s, came.count, first, every, longer_s=longer_s)
    if 2 * came.first >= steps:
        return Recurring(name, each_s, 1, came.first, max(1.0, came.first))
    return Recurring(name, each_s, 1, came.first, max(1.0, steps - came.first), sure=False)


def ends_of_epochs(came: Came, epoch: float) -> Recurring:
    """What follows the last step of each epoch; ``epoch``: steps of one."""
    return Recurring("epoch_end", came.ns / 1e9 / came.count, came.count, epoch, epoch)


def starts_of_epochs(seconds: float, count: int, epoch: float | None) -> Recurring:
    """Starts that took so long together; ``epoch``: steps from one to the next, where it is known."""
    return Recurring("input", seconds / count, count, 0, epoch, leads=True)

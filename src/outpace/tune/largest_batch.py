"""Whether a batch fits on a GPU, tried in a process of its own: for `plan --memory`.

Libraries take other scratch memory for other sizes, and an allocator's pieces lie otherwise, so that what a
line through smaller batches tells may not fit. The script runs as with that batch from its first step on:
all batches are enlarged on their way to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Timer
from typing import Any

import msgspec

from outpace.records.files import write_json
from outpace.records.plan import Sizes
from outpace.seams.batch import batch_size, scale_batch
from outpace.seams.feeding import Feeding
from outpace.seams.host import Host
from outpace.seams.loader import LoaderSeam
from outpace.seams.setup import AS_IS
from outpace.tune.ending import end_process
from outpace.tune.files import STATUS, STEP, write
from outpace.tune.sizes import Measuring, host_of

LONGEST_S, STEPS = 30.0, 60
"""a try may take so long and that many steps' time: a script may catch the error, and try for ever"""


class Trying(Measuring):
    """The program of the process: some steps, of which one is followed."""

    def __init__(
        self, host: Host, session: Path, sizes: Sizes, batch: int, *, in_command: bool = False
    ) -> None:
        super().__init__(host, session, in_command=in_command)
        self.sizes = sizes
        self.samples = batch
        self.late: Timer | None = None

    def run(self) -> Iterator[None]:
        """The batch fits once some steps were made; what they took tells of larger ones."""
        yield from self.launched()
        yield from self.follow(AS_IS, 1.0, "steps")
        found = {"steps": (*self.sizes.steps, *self.steps), "fitted": self.samples}
        if self.late is None:  # the batches of this run could not be enlarged
            found = {"may_try": False}
        write_json(self.session / STEP, msgspec.structs.replace(self.sizes, **found))

    def write(self, *, stopped: bool = False) -> None:
        """The rest was written by those who started us, and where the batch had fitted."""
        write(self.session / STATUS, {"stopped": stopped, "steps": self.host.steps})

    def enlarged(self, batch: Any) -> Any:
        """A batch of the script's, with the samples that are tried."""
        size = batch_size(batch)
        if not size:
            return batch
        if self.late is None:
            scale = self.samples / self.sizes.steps[0].batch
            self.late = Timer(LONGEST_S + STEPS * scale * self.sizes.step_s, end_process)
            self.late.daemon = True
            self.late.start()
        return scale_batch(batch, self.samples / size)


def enlarge(feeding: Feeding, enlarged: Callable[[Any], Any]) -> None:
    """Have all batches of the script's loaders enlarged."""
    given = feeding.batch

    def batch(*args: Any) -> Any:
        return enlarged(given(*args))

    feeding.batch = batch  # type: ignore[method-assign,assignment]


def begin(spec: dict[str, Any]) -> None:
    """Try a batch on the target that is about to run in this process."""
    host, sizes = host_of(spec), msgspec.convert(spec["sizes"], Sizes)
    in_command = spec.get("command", False)
    trying = Trying(host, Path(spec["session"]), sizes, spec["batch"], in_command=in_command)
    loader = host.seam(LoaderSeam)
    assert loader is not None
    enlarge(loader.feeding, trying.enlarged)
    host.install()

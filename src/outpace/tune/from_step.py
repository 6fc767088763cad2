"""Nothing is watched before a later one of a script's trainings."""

from __future__ import annotations

import atexit
import sys
from collections.abc import Callable
from pathlib import Path
from time import monotonic, perf_counter_ns
from typing import Any

from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from outpace.seams.where import user_frames
from outpace.tune.ending import end_process
from outpace.tune.files import PROGRESS_EVERY_S, STATUS, tell, write

Spec = dict[str, Any]


def begin_there(spec: Spec, observe: Callable[[Spec], None]) -> None:
    """Observe from the step on that ``spec`` names; its clocks begin there too."""
    before = int(spec.get("from_step", 0))
    if before <= 0:
        observe(spec)
        return
    made = 0

    def see() -> bool:
        nonlocal made
        made += 1
        if made < before:
            return False
        atexit.unregister(never)
        now = perf_counter_ns()
        before_s = (now - spec["started_ns"]) / 1e9
        observe({**spec, "before_s": before_s, "started_ns": now, "import_began_ns": now})
        return True

    def never() -> None:
        write(Path(spec["session"]) / STATUS, {"finished": True, "made": made})

    atexit.register(never)
    at_each_step(see)


def find(spec: Spec) -> None:
    """Run to the first step within a function, and write down how many were made before it."""
    session = Path(spec["session"])
    status = session / STATUS
    before, within = 0, dict[str, None]()
    told = 0.0

    def see() -> bool:
        nonlocal before, told
        codes = [frame.f_code for frame in user_frames(sys._getframe(1))]
        if monotonic() - told > PROGRESS_EVERY_S:
            told = monotonic()
            phase = f"running to {spec['function']}"
            tell(session, phase=phase, done=0.0, total=0.0, note=f"step {before:,}")
        if any(spec["function"] in (code.co_name, code.co_qualname) for code in codes):
            write(status, {"stopped": True, "before": before})
            end_process(in_command=spec.get("command", False))
        before += 1
        within.update(dict.fromkeys(c.co_name for c in codes if not c.co_name.startswith("<")))
        return False

    atexit.register(lambda: write(status, {"finished": True, "within": list(within)}))
    at_each_step(see)


def at_each_step(see: Callable[[], bool]) -> None:
    """Call it at the end of each step of any optimizer, until it says that it has seen enough."""
    own = Optimizer._optimizer_step_code
    begun = False

    def before_step(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        nonlocal begun
        begun = True

    def step_code(optimizer: Optimizer) -> None:
        """Torch's own place between a step and the hooks after it, while which none can be added."""
        nonlocal begun
        own(optimizer)
        if not begun:
            return  # of a class whose step calls its base's
        begun = False
        if see():
            Optimizer._optimizer_step_code = own  # type: ignore[method-assign]
            handle.remove()

    handle = register_optimizer_step_pre_hook(before_step)
    Optimizer._optimizer_step_code = step_code  # type: ignore[method-assign, assignment]

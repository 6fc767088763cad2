"""Nothing is watched before a later one of a script's trainings."""

from __future__ import annotations

import atexit
from collections.abc import Callable
from pathlib import Path
from time import perf_counter_ns
from typing import Any

from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from outpace.tune.files import STATUS, write

Spec = dict[str, Any]


def begin_there(spec: Spec, observe: Callable[[Spec], None]) -> None:
    """Observe from the step on that ``spec`` names; its clocks begin there too."""
    count = int(spec.get("from_step", 0))
    if count <= 0:
        observe(spec)
        return

    def begin() -> None:
        atexit.unregister(never)
        now = perf_counter_ns()
        before_s = (now - spec["started_ns"]) / 1e9
        observe({**spec, "before_s": before_s, "started_ns": now, "import_began_ns": now})

    def never() -> None:
        write(Path(spec["session"]) / STATUS, {"finished": True, "stepped": stepped()})

    atexit.register(never)
    stepped = after_steps(count, begin)


def after_steps(count: int, begin: Callable[[], None]) -> Callable[[], int]:
    """Call it once so many steps of optimizers were made, of whichever; tells how many there were."""
    own = Optimizer._optimizer_step_code
    stepped, begun = 0, False

    def before_step(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        nonlocal begun
        begun = True

    def step_code(optimizer: Optimizer) -> None:
        """Torch's own place between a step and the hooks after it, while which none can be added."""
        nonlocal begun, stepped
        own(optimizer)
        if not begun:
            return  # of a class whose step calls its base's
        begun, stepped = False, stepped + 1
        if stepped == count:
            Optimizer._optimizer_step_code = own  # type: ignore[method-assign]
            handle.remove()
            begin()

    handle = register_optimizer_step_pre_hook(before_step)
    Optimizer._optimizer_step_code = step_code  # type: ignore[method-assign, assignment]
    return lambda: stepped

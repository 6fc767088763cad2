"""What `open` for reading costs more where a run's writes are redirected.

    python bench/reading.py

Microseconds a call, before the script has written anything and after it has.
"""

from __future__ import annotations

import _io
import os
import tempfile
import timeit
from collections.abc import Callable
from pathlib import Path
from typing import Any

from outpace.seams.writes import install

CALLS = 2000


def cost(call: Callable[..., Any]) -> float:
    """Microseconds, the best of nine."""
    return (
        1e6 * min(timeit.repeat(lambda: call("data", "rb").close(), number=CALLS, repeat=9)) / CALLS
    )


def main() -> None:
    """Measure in a folder of our own."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as scratch:
        os.chdir(folder)
        Path("data").write_text("d")
        undo = install(Path(scratch), [])
        print(f"nothing written: {cost(open) - cost(_io.open):.2f} us more than plain")
        Path("other").write_text("")
        print(f"after a write: {cost(open) - cost(_io.open):.2f} us more than plain")
        undo()
        os.chdir("/")


if __name__ == "__main__":
    main()

"""What a table's columns lose as floats of 64 bits become 32: those whose values lie far from zero lose most.

Times in seconds since 1970 are then 128 apart, however near each other they were.
"""

from __future__ import annotations

from typing import Any, final

import numpy as np

from outpace.serve.parts import listed

MUCH = 2.0**-20
"""of the range of a column's values: 16 times what one that begins at zero loses"""


@final
class Rounding:
    """Of a table, batch by batch."""

    def __init__(self) -> None:
        self.seen: dict[str, tuple[float, float, float]] = {}
        """by column: its least and greatest value, and the most that one loses"""

    def look(self, before: Any, after: Any) -> Any:
        """At a record batch, and what it has become, which is given back."""
        for field, wide, narrow in zip(before.schema, before.columns, after.columns, strict=True):
            if wide.type == narrow.type:
                continue
            found, kept = (each.to_numpy(zero_copy_only=False) for each in (wide, narrow))
            numbers = np.isfinite(found)
            if numbers.any():
                found = found[numbers]
                lost = float(np.abs(found - kept[numbers]).max())
                least, greatest, most = self.seen.get(field.name, (np.inf, -np.inf, 0.0))
                self.seen[field.name] = (
                    min(least, float(found.min())),
                    max(greatest, float(found.max())),
                    max(most, lost),
                )
        return after

    def told(self) -> str:
        """The columns that lose much; "" where none does."""
        much = [
            f"{name!r} (up to {lost:.2g}, its values lie within {greatest - least:.2g})"
            for name, (least, greatest, lost) in self.seen.items()
            if lost > MUCH * (greatest - least) > 0
        ]
        return f"much is lost of {listed(much)}" if much else ""

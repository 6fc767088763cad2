"""What a user lets caches take, checked against what there is."""

from __future__ import annotations

import shutil
import tempfile

from outpace.errors import UsageError
from outpace.measure.machine import memory_limit
from outpace.records.evidence import CacheLimits

GIB = 2**30


def cache_limits(ram_bytes: int | None, disk_bytes: int | None) -> CacheLimits:
    """The limits. Raises UsageError for less than nothing, and for more than there is."""
    folder = tempfile.gettempdir()
    for option, wanted, there, what in (
        ("--ram", ram_bytes, memory_limit(), "this machine gives memory of"),
        ("--disk", disk_bytes, shutil.disk_usage(folder).free, f"{folder} has room for"),
    ):
        if wanted is None:
            continue
        if wanted <= 0:
            raise UsageError(f"{option} is {wanted} bytes", "name a size above 0, or leave it out")
        if wanted > there:
            raise UsageError(
                f"{option} is {wanted / GIB:.1f} GiB, {what} {there / GIB:.1f}",
                f"name a size up to {there // 2**20}M, or leave {option} out",
            )
    return CacheLimits(ram_bytes, disk_bytes)

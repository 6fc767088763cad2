"""A batch of samples as the DataLoader makes it; of dates, which no tensor holds, an array."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.utils.data._utils.collate import collate, default_collate_fn_map


def collated(samples: list[Any]) -> Any:
    """What `default_collate` gives, dates aside."""
    return collate(samples, collate_fn_map={np.datetime64: _dates, **default_collate_fn_map})


def _dates(some: Any, *, collate_fn_map: Any = None) -> NDArray[Any]:
    return np.array(some)

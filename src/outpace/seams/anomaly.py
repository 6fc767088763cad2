"""Torch's anomaly detection: where the script turned it on, and how to train without it meanwhile.

While it is on, each operator of a forward pass keeps the lines of Python that called it, and each gradient
is looked through for NaN (`torch.autograd.set_detect_anomaly`).
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from outpace.seams.host import Host
from outpace.seams.where import caller

RECENT = 2
"""steps since it was turned on up to which the training is taken to run under it, as by a ``with`` in each"""


class AnomalyDetection:
    """What the script turns on is noted; what it turns on while it is to be off holds from then on."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.where: str | None = None
        """file:line at which the script turned it on last"""
        self._turned_on = -RECENT - 1
        """steps that were behind then"""
        self._write: Callable[[bool, bool], None] | None = None
        self._own: tuple[bool, bool] | None = None
        """what the script has set, while it is off for another reason"""

    def install(self) -> None:
        """Note what the script sets."""
        if self._write is None:
            self._write = torch.set_anomaly_enabled
            torch.set_anomaly_enabled = self._noted

    def remove(self) -> None:
        """As it was."""
        self.turn_off(False)
        if self._write is not None:
            torch.set_anomaly_enabled = self._write  # type: ignore[assignment]
            self._write = None

    @property
    def trains(self) -> bool:
        """Whether the script's training runs under it."""
        own = torch.is_anomaly_enabled() if self._own is None else self._own[0]
        return own or self.host.steps - self._turned_on <= RECENT

    def turn_off(self, off: bool) -> None:
        """Off, or again as the script has it."""
        write = self._write or torch.set_anomaly_enabled
        if off and self._own is None:
            self._own = torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()
            write(False, True)
        elif not off and self._own is not None:
            own, self._own = self._own, None
            write(*own)

    def _noted(self, enabled: bool, check_nan: bool = True) -> None:
        assert self._write is not None
        if enabled:
            self.where, self._turned_on = caller() or self.where, self.host.steps
        if self._own is not None:
            self._own = enabled, check_nan
        else:
            self._write(enabled, check_nan)

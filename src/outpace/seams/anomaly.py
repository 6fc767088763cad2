"""Torch's anomaly detection: where the script turned it on, and how to train without it meanwhile.

While it is on, each operator of a forward pass keeps the lines of Python that called it, and each gradient
is looked through for NaN (`torch.autograd.set_detect_anomaly`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from outpace.seams.host import Host
from outpace.seams.in_place_of import Replaced, in_place_of
from outpace.seams.switch import Switch
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
        self._replaced = Replaced()
        self._original: Callable[[bool, bool], None] | None = None
        self._switch = Switch(setting, self._set)

    def install(self) -> None:
        """Note what the script sets."""
        self._replaced.put(torch, "set_anomaly_enabled", self._wrap)

    def _wrap(self, original: Callable[[bool, bool], None]) -> Any:
        self._original = original

        @in_place_of(torch, "set_anomaly_enabled")
        def set_anomaly_enabled(enabled: bool, check_nan: bool = True) -> None:
            self._noted(enabled, check_nan)

        return set_anomaly_enabled

    def remove(self) -> None:
        """As it was."""
        self._switch.release()
        self._replaced.put_all_back()

    @property
    def trains(self) -> bool:
        """Whether the script's training runs under it."""
        enabled, _ = self._switch.scripts()
        return enabled or self.host.steps - self._turned_on <= RECENT

    def turn_off(self, off: bool) -> None:
        """Off, or again as the script has it."""
        self._switch.hold((False, True) if off else None)

    def _noted(self, enabled: bool, check_nan: bool = True) -> None:
        if enabled:
            self.where = self.host.guard("backend", caller) or self.where
            self._turned_on = self.host.steps
        self._switch.note((enabled, check_nan))

    def _set(self, setting: tuple[bool, bool]) -> None:
        (self._original or torch.set_anomaly_enabled)(*setting)


def setting() -> tuple[bool, bool]:
    """Whether it is on, and whether it looks for NaN."""
    return torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()

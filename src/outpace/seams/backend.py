"""Process-wide switches of torch: threads, denormals, anomaly detection, TF32, cuDNN's algorithms."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch

from outpace.seams.anomaly import AnomalyDetection
from outpace.seams.host import Host
from outpace.seams.in_place_of import Replaced, in_place_of
from outpace.seams.openmp import ParkedTeams
from outpace.seams.setup import Setup
from outpace.seams.switch import Switch
from outpace.seams.tf32 import in_tf32, precision, set_precision
from outpace.seams.where import caller


class BackendSeam:
    """Holds the script's own switches while a Setup's are in force."""

    name = "backend"

    def __init__(self, host: Host) -> None:
        self.host = host
        self.threads = Switch(torch.get_num_threads, self._set_threads)
        self.denormals = Switch(flushes_denormals, torch.set_flush_denormal)
        self.tf32 = Switch(precision, set_tf32)
        self.benchmark = Switch(benchmarks, set_benchmark)
        self.parked: ParkedTeams | None = None
        self.replaced = Replaced()
        self.set_threads: Callable[[int], None] | None = None
        self.pid = 0
        self.threads_where: str | None = None
        """file:line at which the script chose its number of threads"""
        self.anomaly_detection = AnomalyDetection(host)

    def install(self) -> None:
        """Note where the script sets its threads."""
        self.pid = os.getpid()
        self.replaced.put(torch, "set_num_threads", self._wrap_threads)
        self.anomaly_detection.install()

    def _wrap_threads(self, original: Callable[[int], None]) -> Any:
        self.set_threads = original

        @in_place_of(torch, "set_num_threads")
        def set_num_threads(threads: int) -> None:
            self._noted(threads)

        return set_num_threads

    def _noted(self, threads: int) -> None:
        if os.getpid() != self.pid or not self.host.on_main_thread():
            self._set_threads(threads)  # a worker's, or a pool's, for itself alone
            return
        self.threads_where = self.host.guard("backend", caller)
        self.threads.note(threads)
        self._wait(self.host.setup.passive)  # how many teams have to rest depends on it

    def _set_threads(self, threads: int) -> None:
        (self.set_threads or torch.set_num_threads)(threads)

    def remove(self) -> None:
        """Give the script its own switches back."""
        self.replaced.put_all_back()
        self.anomaly_detection.remove()
        for switch in (self.threads, self.denormals, self.tf32, self.benchmark):
            switch.release()
        self._spin()

    def reconcile(self, setup: Setup) -> None:
        """Set the switches that ``setup`` names; others go back to the script's own."""
        self.threads.hold(setup.threads)
        self._wait(setup.passive)
        self.denormals.hold(True if setup.flush_denormals else None)
        self.anomaly_detection.turn_off(setup.no_anomaly_detection)
        # To ask whether there is a GPU would start CUDA, before the script forks or chooses one.
        if torch.backends.cuda.is_built():  # type: ignore[no-untyped-call]
            self.tf32.hold(True if setup.tf32 else None)
            self.benchmark.hold(True if setup.cudnn_benchmark else None)

    def _wait(self, passive: bool) -> None:
        threads = torch.get_num_threads()
        if self.parked is not None and (not passive or self.parked.threads != threads):
            self._spin()
        if passive and self.parked is None:
            self.parked = ParkedTeams(threads)

    def _spin(self) -> None:
        if self.parked is not None:
            self.parked.end()
            self.parked = None


def set_tf32(wanted: Any) -> None:
    """True: TF32 for all; else what it was before."""
    set_precision(in_tf32(precision()) if wanted is True else wanted)


def benchmarks() -> bool:
    """Whether cuDNN searches for its algorithms."""
    return bool(torch.backends.cudnn.benchmark)


def set_benchmark(wanted: bool) -> None:
    """Have it search, or not."""
    torch.backends.cudnn.benchmark = wanted


def flushes_denormals() -> bool:
    """Whether this thread takes denormal numbers for zero: torch tells only by what it computes."""
    return bool(torch.tensor(1e-39, device="cpu") * 0.5 == 0)

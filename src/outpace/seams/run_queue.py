"""How long a thread could have run, had there been a core. Linux alone tells it."""

from __future__ import annotations


def waited_ns() -> float:
    """Nanoseconds that this thread has waited for a CPU; 0 where the system does not tell."""
    try:
        with open("/proc/thread-self/schedstat", "rb", buffering=0) as file:
            return float(file.read().split()[1])
    except (OSError, IndexError, ValueError):
        return 0.0

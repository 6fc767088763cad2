"""Steps as a Chrome trace, which chrome://tracing and Perfetto open.

The format is the Trace Event Format's JSON object: complete events (``ph`` "X") in microseconds
from the first event, and a name for each thread.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path

from outpace.report import words

Event = tuple[str, str, int, int, str, Mapping[str, object]]
"""name, phase, start_ns, end_ns, name of the thread, arguments"""

PROCESS = 1
OURS = '{"traceEvents":[{"name":"process_name","ph":"M","pid":1,"tid":0,"args":{"name":"outpace"}}'
"""how each begins"""


def chrome_trace(events: Iterable[Event]) -> str:
    """Events as a trace, sorted by their start; an event that ends before it starts lasts 0."""
    ordered = sorted(events, key=lambda event: (event[2], -event[3]))
    zero = ordered[0][2] if ordered else 0
    threads: dict[str, int] = {}
    spans = [_span(event, zero, threads) for event in ordered]
    named = [_named("process_name", 0, "outpace"), *_threads(threads)]
    document = {"traceEvents": [*named, *spans], "displayTimeUnit": "ms"}
    return json.dumps(document, allow_nan=False, separators=(",", ":"))


def is_trace(path: Path) -> bool:
    """Whether a file is a trace that outpace wrote."""
    try:
        with path.open("rb") as file:
            return file.read(len(OURS)) == OURS.encode()
    except OSError:
        return False


def _span(event: Event, zero: int, threads: dict[str, int]) -> dict[str, object]:
    name, phase, start, end, thread, args = event
    return {
        "name": words.plain(name),
        "cat": words.plain(phase),
        "ph": "X",
        "ts": (start - zero) / 1e3,
        "dur": max(0, end - start) / 1e3,
        "pid": PROCESS,
        "tid": threads.setdefault(thread, len(threads) + 1),
        "args": {words.plain(str(key)): _value(value) for key, value in args.items()},
    }


def _value(value: object) -> object:
    if isinstance(value, bool | int) or value is None:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return words.plain(str(value))


def _threads(threads: dict[str, int]) -> Iterable[dict[str, object]]:
    for name, number in threads.items():
        yield _named("thread_name", number, words.plain(name))
        yield {**_named("thread_sort_index", number, ""), "args": {"sort_index": number}}


def _named(kind: str, thread: int, name: str) -> dict[str, object]:
    return {"name": kind, "ph": "M", "pid": PROCESS, "tid": thread, "args": {"name": name}}

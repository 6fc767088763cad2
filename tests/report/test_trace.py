"""The Chrome trace: complete events in microseconds, threads with names, always valid JSON."""

from __future__ import annotations

import json
import math
from pathlib import Path

from outpace.report.trace import chrome_trace, is_trace


def test_events_threads_and_units() -> None:
    trace = json.loads(
        chrome_trace(
            [
                ("backward", "step", 5_002_000, 5_004_500, "MainThread", {"step": 3}),
                ("fetch", "input", 5_000_000, 5_001_000, "worker 0", {}),
            ]
        )
    )
    spans = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert [(s["name"], s["cat"], s["ts"], s["dur"]) for s in spans] == [
        ("fetch", "input", 0.0, 1.0),
        ("backward", "step", 2.0, 2.5),
    ]
    named = {
        e["args"]["name"]: e["tid"] for e in trace["traceEvents"] if e["name"] == "thread_name"
    }
    assert [named["worker 0"], named["MainThread"]] == [s["tid"] for s in spans]
    assert spans[1]["args"] == {"step": 3}
    assert len({s["pid"] for s in spans}) == 1


def test_a_trace_is_told_from_other_files(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    assert not is_trace(path)
    for text, ours in [("{}", False), ("", False), (chrome_trace([]), True)]:
        path.write_text(text)
        assert is_trace(path) == ours


def test_strange_events_stay_valid() -> None:
    args = {"loss": math.nan, "what": object(), "none": None, "text": "a\x1b\ud800"}
    text = chrome_trace([("\x00", "", 10, 5, "é", args)])
    (span,) = [e for e in json.loads(text)["traceEvents"] if e["ph"] == "X"]
    assert span["dur"] == 0
    assert span["args"]["loss"] == "nan"
    text.encode("utf-8")


def test_no_event_is_an_empty_trace() -> None:
    assert [e["ph"] for e in json.loads(chrome_trace([]))["traceEvents"]] == ["M"]

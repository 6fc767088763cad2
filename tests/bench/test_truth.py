"""The truth bench: its labels, its scores, and two of its cases."""

from __future__ import annotations

import argparse
import importlib.util
import math
import sys
from pathlib import Path
from typing import Any

import pytest

TRUTH = Path(__file__).parents[2] / "bench" / "truth"
sys.path.insert(0, str(TRUTH))

from cases import Case, all_cases  # noqa: E402
from peers import with_trace_step  # noqa: E402
from results import (  # noqa: E402
    BOUNDS,
    Told,
    Truth,
    alarm,
    bound_right,
    cause_right,
    covered,
    first_of_its_own,
    off,
    results,
    truth_of,
)
from verdict import judged, outpace  # noqa: E402

CASES = {case.name: case for case in all_cases()}
SPEC = importlib.util.spec_from_file_location("truth_run", TRUTH / "run.py")
assert SPEC is not None
run: Any = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(run)  # type: ignore[union-attr]
ON_GPU = {case.name: case for case in all_cases("gpu")}


def row(bound: str, cause: str, *, found: bool = True, top: bool = False, **more: Any) -> Any:
    gain = {"speedup": 2.0, "low": 1.6, "high": 2.5} if found else None
    facts = {
        "case": "parse_json",
        "amount": "500",
        "seed": 0,
        "repeat": 0,
        "hog": False,
        "code": "1a2b3c4d",
        "where": "parse_json.py:28",
    }
    facts |= {"bound": bound, "cause": cause, "found": found, "top": top, "gain": gain}
    facts["told"] = [[bound, cause, 2.0]]
    return facts | {"line_right": True, "advised": [], "advice_right": True} | more


WITHOUT = row("outside", "startup", found=False, amount="0")


def told(verdict: Any, truth: float | None) -> Told:
    true = Truth(truth, 0.9 * truth, 1.1 * truth, 6) if truth is not None else None
    return Told(CASES["parse_json"], verdict, true, WITHOUT)


@pytest.mark.parametrize("case", [*CASES.values(), *ON_GPU.values()], ids=[*CASES, *ON_GPU])
def test_every_case_is_labelled(case: Case) -> None:
    assert case.lines, "no line holds what its docstring names"
    assert case.bound in BOUNDS
    assert "outpace" not in case.path.read_text()
    assert case.amounts or case.name.startswith("control_")


def test_a_third_is_held_out() -> None:
    assert 0.2 < sum(case.held_out for case in CASES.values()) / len(CASES) < 0.45


def test_a_plant_of_half_the_time_must_come_first() -> None:
    right, wrong = row("io", "parse", top=True), row("outside", "startup")
    assert bound_right(told(right, 3.0))
    assert cause_right(told(right, 3.0))
    assert not bound_right(told(wrong, 3.0))
    assert not cause_right(told(wrong, 3.0))


def test_a_small_plant_must_be_found() -> None:
    """What comes before it may only be what the script is bound by without it."""
    assert cause_right(told(row("outside", "startup"), 1.3))
    assert not cause_right(told(row("outside", "startup", found=False), 1.3))
    assert not bound_right(told(row("compute", "arithmetic"), 1.3))


def test_false_alarms() -> None:
    control = CASES["control_compute"]
    assert not alarm(Told(control, row("compute", "arithmetic"), None, None))
    assert not alarm(Told(control, row("none", "", found=False), None, None))
    assert alarm(Told(control, row("io", "storage"), None, None))
    assert alarm(Told(control, row("compute", "threads"), None, None))
    assert not alarm(Told(control, row("compute", "threads", hog=True), None, None))
    assert alarm(Told(control, row("io", "storage", hog=True), None, None))
    assert alarm(Told(CASES["parse_json"], row("io", "parse", top=True), None, None))


def test_intervals() -> None:
    assert covered(told(row("io", "parse"), 2.4))
    assert not covered(told(row("io", "parse"), 2.4), 0.65)
    assert not covered(told(row("io", "parse"), 3.0))
    assert covered(told(row("io", "parse", found=False), 3.0)) is None


def test_what_is_told_of_the_plant_alone() -> None:
    """Told 2x with the plant and 1.25x without: the plant is told to cost 1.6x."""
    own = row("io", "parse", amount="0") | {"gain": {"speedup": 1.25, "low": 1.2, "high": 1.3}}
    both = told(row("io", "parse"), 1.6)._replace(without=own)
    assert off(both) == pytest.approx(0.0)
    assert off(told(row("io", "parse"), 1.6)) == pytest.approx(math.log(1.6 / 2))
    assert covered(both)
    assert covered(both, 0.01)


def test_before_a_plant_may_come_what_is_told_without_it_too() -> None:
    others = [["io", "augment", 1.4], ["outside", "startup", 1.3]]
    behind = row("io", "augment", told=[*others, ["io", "parse", 1.2]])
    without = WITHOUT | {"told": others[::-1]}
    assert first_of_its_own(told(behind, 1.3)._replace(without=without))
    assert not first_of_its_own(told(behind, 1.3)._replace(without=without | {"told": others[:1]}))
    assert not first_of_its_own(told(behind | {"told": others}, 1.3)._replace(without=without))


def test_what_is_beside_a_table_is_taken_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of another processor nothing is: its times are others."""
    monkeypatch.setattr(run, "KEPT", tmp_path / "kept")
    options = argparse.Namespace(again=False, hog=False)
    bench = run.Bench(options)
    assert bench.once("times/storage_latency-0.01", lambda folder: {"0": [1.5]}) == {"0": [1.5]}
    table = tmp_path / "RESULTS.jsonl"
    bench.write(table)
    monkeypatch.setattr(run, "KEPT", tmp_path / "later")
    later = run.Bench(options)
    later.take_up(table)
    assert later.once("times/storage_latency-0.01", lambda folder: None) == {"0": [1.5]}
    assert set(later.seconds()) == {"times"}
    another = run.Bench(options)
    another.once("times/parse_json-35", lambda folder: {"0": [2.5]})
    another.write(table)
    assert len(run.written(table)) == 2, "what the first pass has left is there"
    other = run.Bench(argparse.Namespace(again=False, hog=True))
    assert other.once("times/storage_latency-0.01", lambda folder: "beside a hog") == "beside a hog"
    monkeypatch.setattr(run, "KEPT", tmp_path / "elsewhere")
    later.cpu = "another"
    later.take_up(table)
    assert not (tmp_path / "elsewhere").exists()


def test_the_table() -> None:
    fixed = [1.0] * 6
    true = {"150": truth_of([1.0, 1.1] * 3, fixed), "500": truth_of([2.2] * 6, fixed)}
    rows = [WITHOUT, row("io", "parse", top=True)]
    text = results(list(CASES.values()), {"parse_json": true}, rows, "how")
    assert "| bound right | 1 of 1 (100 %) | 1 of 1 (100 %) | - |" in text
    assert "Dropped, as nothing could be shown to be lost: parse_json 150" in text
    assert "| io | 1 |  |  |  |  |  |" in text


def test_a_verdict_is_held_against_its_own_pass() -> None:
    """Scores of each pass; verdicts of one dose that are given again are to be the same."""
    true = {"500": truth_of([2.2] * 6, [1.0] * 6)}
    own = {"gain": {"speedup": 1.1, "low": 1.0, "high": 1.2}, "found": True}
    rows = [
        row("io", "parse", top=True) | {"seed": seed, "repeat": repeat}
        for seed in (0, 1)
        for repeat in (0, 1)
    ]
    rows += [WITHOUT | own | {"seed": r["seed"], "repeat": r["repeat"]} for r in rows]
    rows[3] |= {"bound": "outside", "cause": "startup", "top": False}
    text = results(list(CASES.values()), {"parse_json": true}, rows, "how")
    head = next(line for line in text.split("\n") if line.startswith("| score"))
    assert head == "| score | all | held out | the rest | seed 0 | seed 1 |"
    assert (
        "| bound right | 3 of 4 (75 %) | 3 of 4 (75 %) | - | 2 of 2 (100 %) | 1 of 2 (50 %) |"
        in text
    )
    assert "| the same verdict in repeats | 7 of 8 (88 %) |" in text
    assert text.count("| 1.82x |") == 4, "2x over what is told without the plant in the same pass"


def test_the_lines_that_traceml_asks_for() -> None:
    edited = with_trace_step(CASES["parse_json"].path.read_text())
    loop = edited.split("for x, y in loader:\n")[1]
    assert loop.strip().startswith("with traceml.trace_step(model):")
    assert loop.count("loss.backward()") == 1
    compile(edited, "edited", "exec")


@pytest.mark.parametrize(("name", "amount"), [("parse_json", "1500"), ("storage_latency", "8")])
def test_a_plant_is_found(name: str, amount: str, tmp_path: Path) -> None:
    """In a dose that is most of the time, however much of the cores others take."""
    case = CASES[name]
    verdict = judged(case, outpace("diagnose", case.target(amount), tmp_path, "--time", "8"))
    assert verdict["top"], verdict
    assert verdict["line_right"], verdict
    assert verdict["advice_right"], verdict

"""The truth bench: its labels, its scores, and two of its cases."""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest

TRUTH = Path(__file__).parents[2] / "bench" / "truth"
sys.path.insert(0, str(TRUTH))

import health  # noqa: E402
from advice import harmful, surely  # noqa: E402
from cases import Case, all_cases, read_case  # noqa: E402
from keeping import Kept, digest, says, written  # noqa: E402
from passes import earlier, of  # noqa: E402
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
    scores,
    truth_of,
)
from timing import steps_timed  # noqa: E402
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


def test_the_truth_has_an_interval_too() -> None:
    assert covered(told(row("io", "parse"), 2.54), as_measured=False)
    assert not covered(told(row("io", "parse"), 2.54))
    assert not covered(told(row("io", "parse"), 3.0), as_measured=False)
    assert not covered(told(row("io", "parse"), 2.54), 0.8, as_measured=False)


def test_what_is_told_of_the_plant_alone() -> None:
    """Told 2x with the plant and 1.25x without: the plant is told to cost 1.6x."""
    own = row("io", "parse", amount="0") | {"gain": {"speedup": 1.25, "low": 1.2, "high": 1.3}}
    both = told(row("io", "parse"), 1.6)._replace(without=own)
    assert off(both) == pytest.approx(0.0)
    assert off(told(row("io", "parse"), 1.6)) == pytest.approx(math.log(1.6 / 2))
    assert covered(both)
    assert covered(both, 0.01)


def test_what_is_told_beside_the_plant_is_not_told_of_it() -> None:
    """Told 1.6x of the plant, and 1.25x of other things of its cause at another line."""
    own = row("compute", "dispatch", amount="0") | {
        "gain": {"speedup": 1.25, "low": 1.2, "high": 1.3}
    }
    mine = row("compute", "dispatch") | {"gain": {"speedup": 1.6, "low": 1.5, "high": 1.7}}
    case = CASES["compute_anomaly_detection"]
    mine["told"] = [["compute", "dispatch", 1.6], ["compute", "dispatch", 1.25]]
    beside = told(mine, 1.6)._replace(case=case, without=own)
    assert off(beside) == pytest.approx(0.0)
    mine["told"] = mine["told"][:1]
    assert off(beside) == pytest.approx(math.log(1.25))


def test_before_a_plant_may_come_what_is_told_without_it_too() -> None:
    others = [["io", "augment", 1.4], ["outside", "startup", 1.3]]
    behind = row("io", "augment", told=[*others, ["io", "parse", 1.2]])
    without = WITHOUT | {"told": others[::-1]}
    assert first_of_its_own(told(behind, 1.3)._replace(without=without))
    assert not first_of_its_own(told(behind, 1.3)._replace(without=without | {"told": others[:1]}))
    assert not first_of_its_own(told(behind | {"told": others}, 1.3)._replace(without=without))


def test_what_is_beside_a_table_is_taken_up(tmp_path: Path) -> None:
    """Of another processor nothing is: its times are others."""
    kept = Kept(folder=tmp_path / "kept")
    assert kept.once("times/storage_latency-0.01", lambda folder: {"0": [1.5]}) == {"0": [1.5]}
    table = tmp_path / "RESULTS.jsonl"
    kept.write(table)
    later = Kept(folder=tmp_path / "later")
    later.take_up(table)
    assert later.once("times/storage_latency-0.01", lambda folder: None) == {"0": [1.5]}
    assert set(later.seconds()) == {"times"}
    another = Kept(folder=tmp_path / "later")
    another.once("times/parse_json-35", lambda folder: {"0": [2.5]})
    another.write(table)
    assert len(written(table)) == 2, "what the first pass has left is there"
    other = Kept(hog=True, folder=tmp_path / "later")
    assert other.once("times/storage_latency-0.01", lambda folder: "beside a hog") == "beside a hog"
    elsewhere = Kept(folder=tmp_path / "elsewhere", cpu="another")
    elsewhere.take_up(table)
    assert not (tmp_path / "elsewhere").exists()


def test_the_version_of_code_is_what_it_does(tmp_path: Path) -> None:
    texts = [
        'def f(x):\n    """Once."""\n    return x + 1\n',
        'def f(x):\n    """The same."""\n    # as it was\n    return x + 1\n',
        'def f(x):\n    """Once."""\n    return x + 2\n',
    ]
    for name, text in enumerate(texts):
        (tmp_path / f"{name}.py").write_text(text)
    once, same, other = (digest([tmp_path / f"{name}.py"], says) for name in range(3))
    assert once == same != other


def test_a_pass_of_another_machine_goes_into_the_table_whole(tmp_path: Path) -> None:
    case, control = CASES["parse_json"], CASES["control_compute"]
    both = {"0": [1.0] * 4, "35": [2.0] * 4}

    def lines(cpu: str, seed: int, *, whole: bool, code: str = "c0de") -> list[Any]:
        name = of(case, "35", seed)
        found: list[Any] = [[f"times/{code}-{name}", cpu, {"made": both, "seconds": 9.0}]]
        for amount in ("35", "0") if whole else ("35",):
            made = row("io", "parse", amount=amount, seed=seed, where=cpu)
            found += [[f"verdicts/{code}-{of(case, amount, seed)}-0", cpu, {"made": made}]]
        made = row("compute", "arithmetic", case=control.name, amount="", seed=seed, where=cpu)
        return [*found, [f"verdicts/{code}-{of(control, '', seed)}-0", cpu, {"made": made}]]

    every = [*lines("A", 1, whole=False), *lines("B", 1, whole=True), *lines("A", 0, whole=True)]
    every += [line for seed in (1, 2) for line in lines("B", seed, whole=True, code="older")]
    path = tmp_path / "RESULTS.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in every))
    found = earlier(path, list(CASES.values()), ["c0de"], hog=False, but=[0])
    assert list(found) == [1]
    assert found[1].cpu == "B"
    assert {one["where"] for one in found[1].rows} == {"B"}
    assert len(found[1].rows) == 3
    assert found[1].true["parse_json", "35", 1].speedup == pytest.approx(2.0)
    assert not earlier(path, list(CASES.values()), ["0ther"], hog=False, but=[])
    assert not earlier(path, list(CASES.values()), ["c0de"], hog=True, but=[])
    alike = earlier(path, list(CASES.values()), ["c0de", "older"], hog=False, but=[0])
    assert {seed: one.code for seed, one in alike.items()} == {1: "c0de", 2: "older"}


def test_what_is_kept_is_of_one_seed_and_one_script(tmp_path: Path) -> None:
    case = CASES["parse_json"]
    assert run.of(case, "35", 0) != run.of(case, "35", 1)
    copy = tmp_path / case.path.name
    copy.write_text(case.path.read_text() + "# changed\n")
    assert run.of(read_case(copy), "35", 0) != run.of(case, "35", 0)


@pytest.mark.parametrize("case", [*CASES.values(), *ON_GPU.values()], ids=[*CASES, *ON_GPU])
def test_all_that_is_random_is_by_the_seed(case: Case) -> None:
    text = case.path.read_text()
    assert f"SEED = int(sys.argv[{2 if case.amounts else 1}])" in text
    assert "manual_seed(SEED)" in text
    assert "seed(0)" not in text
    assert "rng(0)" not in text


def test_a_script_is_run_and_timed_by_its_seed(tmp_path: Path) -> None:
    script = tmp_path / "seeded.py"
    script.write_text(
        '"""A loop.\n\ntruth: compute arithmetic\nline: backward\namounts: 3\n"""\n'
        "import sys, torch\n"
        "open('given', 'a').write(' '.join(sys.argv[1:]) + '\\n')\n"
        "x = torch.ones(1, requires_grad=True)\n"
        "for step in range(15):\n"
        "    x.sum().backward()\n"
    )
    case = read_case(script)
    assert case.target("3", 2) == [str(script), "3", "2"]
    assert CASES["control_compute"].arguments("", 2) == ["2"]
    with steps_timed(case, 2, tmp_path) as timed:
        assert len(timed(["0", "3"])) == 2
        assert len(timed(["3"])) == 1
    assert (tmp_path / "given").read_text().splitlines() == ["0 2", "3 2", "3 2"]


def test_a_script_that_fails_while_it_is_timed_is_told_with_its_error(tmp_path: Path) -> None:
    script = tmp_path / "failing.py"
    script.write_text(
        '"""A fault.\n\ntruth: compute arithmetic\nline: raise\namounts: 3\n"""\n'
        "raise ValueError('no such thing')\n"
    )
    failing = steps_timed(read_case(script), 0, tmp_path)
    with failing as timed, pytest.raises(RuntimeError, match=r"(?s)failing 3 .*no such thing"):
        timed(["3"])


def test_a_line_of_another_file_is_wrong() -> None:
    case = CASES["parse_json"]
    gain = {"speedup": 2.0}

    def line_right(file: str) -> bool:
        where = f"{file}:{case.lines[0]}"
        told = {"bound": "io", "cause": "parse", "where": where, "gain": gain, "remedies": []}
        return bool(judged(case, {"findings": [told]})["line_right"])

    assert line_right(str(case.path))
    assert not line_right(str(case.path.with_name("parse_csv.py")))


def test_advice_is_scored_where_some_is_accepted() -> None:
    found = {"bound": "compute", "cause": "arithmetic", "where": None, "gain": {"speedup": 2.0}}
    verdict = {"findings": [found | {"remedies": [{"name": "bf16"}]}]}
    assert judged(CASES["compute_padding"], verdict)["advice_right"] is None
    assert judged(CASES["compute_denormals"], verdict)["advice_right"] is False
    none = Told(CASES["compute_padding"], row("io", "parse"), None, WITHOUT)
    some = Told(CASES["parse_json"], row("io", "parse", advice_right=False), None, WITHOUT)
    assert scores([none, some], [])["an accepted remedy is advised"] == "0 of 1 (0 %)"


def test_strict_rows_are_beside_the_lenient_one() -> None:
    """Of what a script is bound by without its plant the lenient one takes no notice."""
    small, large = row("outside", "startup"), row("io", "parse", top=True)
    found = scores([told(small, 1.3), told(large, 3.0)], [])
    assert found["bound right"] == "2 of 2 (100 %)"
    assert found["planted bound first, of plants that take half of the time or more"] == (
        "1 of 1 (100 %)"
    )
    assert found["planted bound first, of all plants that take time"] == "1 of 2 (50 %)"


def test_controls_are_scored_by_themselves() -> None:
    """Beside scripts that are told their plant where it is not; of compute these may be right."""
    clean = [
        Told(CASES["control_compute"], row("io", "parse"), None, None),
        Told(CASES["parse_json"], row("io", "parse", top=True), None, None),
        Told(CASES["parse_csv"], row("compute", "arithmetic"), None, None),
        Told(CASES["compute_padding"], row("compute", "arithmetic", top=True), None, None),
    ]
    found = scores([], clean)
    assert found["false alarms on controls"] == "1 of 1 (100 %)"
    assert found["the planted cause first without its plant"] == "1 of 2 (50 %)"
    of_compute = "the same of compute, which a script may be bound by without its plant too"
    assert found[of_compute] == "1 of 1 (100 %)"


def test_peers_are_not_asked_of_several_ranks(tmp_path: Path) -> None:
    """They start a script without torchrun."""
    bench = run.Bench(argparse.Namespace(again=False, hog=False, peers=True))
    bench.kept.folder = tmp_path
    assert bench.peers(CASES["communication_uneven"], "50", 0) is None
    assert not list(tmp_path.iterdir())


def test_harmful_advice() -> None:
    def trial(predicted: float, measured: float, high: float) -> Any:
        gain = {"speedup": measured, "low": 0.9 * measured, "high": high}
        return {"predicted": {"speedup": predicted}, "measured": gain}

    assert harmful(trial(1.2, 0.95, 1.02))
    assert not surely(trial(1.2, 0.95, 1.02))
    assert surely(trial(1.2, 0.95, 0.99))
    assert not harmful(trial(1.2, 0.98, 0.99))
    assert not harmful(trial(1.0, 0.9, 0.95)), "nothing was promised"


def test_rules_beside_the_faults_own_are_counted() -> None:
    rows = [
        health.Row("noisy_loss", 0, "noisy_loss", ["rate", "noisy_loss"], []),
        health.Row("plateau", 0, "plateau", ["plateau"], ["rate"]),
        health.Row("flights", 0, None, None, ["rate"]),
    ]
    text = health.table(rows)
    assert "Faults found: 2 of 2. False alarms: 2 of 3." in text
    assert "Other rules told beside the fault's own: of 1 of 2." in text
    assert "| noisy_loss | 0 | noisy_loss | yes | rate | nothing |" in text
    assert "| rate | 2 of 3 |" in text


def test_the_table() -> None:
    fixed = [1.0] * 6
    true = {
        ("parse_json", "150", 0): truth_of([1.0, 1.1] * 3, fixed),
        ("parse_json", "500", 0): truth_of([2.2] * 6, fixed),
    }
    rows = [WITHOUT, row("io", "parse", top=True)]
    text = results(list(CASES.values()), true, rows, "how")
    assert "| bound right | 1 of 1 (100 %) | 1 of 1 (100 %) | - |" in text
    assert "Dropped, as nothing could be shown to be lost: parse_json 150" in text
    assert "| io | 1 |  |  |  |  |  |" in text


def test_without_twins_a_plant_is_judged_by_its_label_alone() -> None:
    true = {
        ("parse_json", "150", 0): truth_of([1.4] * 6, [1.0] * 6),
        ("parse_json", "500", 0): truth_of([2.2] * 6, [1.0] * 6),
    }
    rows = [row("io", "parse", top=True), row("compute", "arithmetic") | {"amount": "150"}]
    assert "Verdicts with a plant: 0" in results(list(CASES.values()), true, rows, "how")
    text = results(list(CASES.values()), true, rows, "how", twins=False)
    assert "| bound right | 1 of 2 (50 %) |" in text
    assert text.count("(wrong)") == 1


def test_a_verdict_is_held_against_its_own_pass() -> None:
    """Scores of each pass; verdicts of one dose that are given again are to be the same."""
    true = {("parse_json", "500", seed): truth_of([2.2] * 6, [1.0] * 6) for seed in (0, 1)}
    own = {"gain": {"speedup": 1.1, "low": 1.0, "high": 1.2}, "found": True}
    rows = [
        row("io", "parse", top=True) | {"seed": seed, "repeat": repeat}
        for seed in (0, 1)
        for repeat in (0, 1)
    ]
    rows += [WITHOUT | own | {"seed": r["seed"], "repeat": r["repeat"]} for r in rows]
    rows[3] |= {"bound": "outside", "cause": "startup", "top": False}
    text = results(list(CASES.values()), true, rows, "how")
    head = next(line for line in text.split("\n") if line.startswith("| score"))
    assert head == "| score | all | held out | the rest | seed 0 | seed 1 |"
    assert (
        "| bound right | 3 of 4 (75 %) | 3 of 4 (75 %) | - | 2 of 2 (100 %) | 1 of 2 (50 %) |"
        in text
    )
    assert "| the same verdict in repeats | 3 of 4 (75 %) |" in text
    assert text.count("| 1.82x |") == 4, "2x over what is told without the plant in the same pass"


def test_the_lines_that_traceml_asks_for() -> None:
    edited = with_trace_step(CASES["parse_json"].path.read_text())
    loop = edited.split("for x, y in loader:\n")[1]
    assert loop.strip().startswith("with traceml.trace_step(model):")
    assert loop.count("loss.backward()") == 1
    compile(edited, "edited", "exec")


@pytest.mark.parametrize(
    ("name", "amount"),
    [("parse_json", "1500"), pytest.param("storage_latency", "8", marks=pytest.mark.slow)],
)
def test_a_plant_is_found(name: str, amount: str, tmp_path: Path) -> None:
    """In a dose that is most of the time, however much of the cores others take."""
    case = CASES[name]
    verdict = judged(case, outpace("diagnose", case.target(amount), tmp_path, "--time", "8"))
    assert verdict["top"], verdict
    assert verdict["line_right"], verdict
    assert verdict["advice_right"], verdict


def test_a_control_is_left_alone(tmp_path: Path) -> None:
    """Others may take cores meanwhile, which is none of its own causes."""
    case = CASES["control_compute"]
    verdict = judged(case, outpace("diagnose", case.target(""), tmp_path, "--time", "4"))
    assert not alarm(Told(case, verdict | {"hog": True}, None, None)), verdict


@pytest.mark.slow
def test_a_fault_of_learning_is_told(tmp_path: Path) -> None:
    script = TRUTH / "learning" / "not_in_optimizer.py"
    assert "not_in_optimizer" in health.rules_told(script, ["1", "0"], tmp_path)

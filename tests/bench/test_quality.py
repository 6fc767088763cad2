"""The quality bench: its metrics, its scores, its tables, and a race of two contenders."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import recall_score, roc_auc_score

QUALITY = Path(__file__).parents[2] / "bench" / "quality"
sys.path.insert(0, str(QUALITY))

from kept import answer, path_of  # noqa: E402
from metrics import Auc, ErrorRate, MacroRecall, collapsed, edits  # noqa: E402
from plot import curves, profile  # noqa: E402
from race import Race  # noqa: E402
from scores import (  # noqa: E402
    MOST,
    Run,
    area,
    early,
    geometric_mean,
    ratios,
    reached,
    run_of,
    share_within,
    speedup,
    worse,
)
from tables import Field, results, times_of  # noqa: E402
from workload import Workload, held_out  # noqa: E402

SECONDS = st.floats(0.1, 1e4)
METRICS = st.floats(-1e3, 1e3)
CURVES = st.lists(st.tuples(SECONDS, SECONDS, METRICS), min_size=1, max_size=20).map(
    lambda points: [(w, c, 10 * i, m) for i, (w, c, m) in enumerate(sorted(points))]
)
RATIOS = st.lists(st.one_of(st.floats(1.0, 10.0), st.just(math.inf)), min_size=1, max_size=8)
WORDS = st.lists(st.integers(1, 4), max_size=8)


# --- metrics ---------------------------------------------------------------------------------------


def fed(metric: Any, outputs: torch.Tensor, targets: torch.Tensor, size: int = 7) -> float:
    """Told in batches, after another use of it."""
    metric.update(outputs[:3], targets[:3])
    metric.reset()
    for start in range(0, len(outputs), size):
        metric.update(outputs[start : start + size], targets[start : start + size])
    return float(metric.compute())


@given(st.integers(0, 10_000))
def test_metrics_are_those_of_scikit_learn(seed: int) -> None:
    chance = torch.Generator().manual_seed(seed)
    classes = torch.randint(5, (40,), generator=chance)
    scores = torch.randn(40, 5, generator=chance)
    ours = fed(MacroRecall(5), scores, classes)
    labels = sorted(set(classes.tolist()))
    assert ours == pytest.approx(
        recall_score(classes, scores.argmax(1), labels=labels, average="macro", zero_division=0)
    )
    late = torch.arange(40) % 3 == 0
    odds = torch.randint(6, (40,), generator=chance).float()  # with ties
    assert fed(Auc(), odds, late.float()) == pytest.approx(roc_auc_score(late, odds))


@given(WORDS, WORDS, WORDS)
def test_edits_are_a_distance(one: list[int], other: list[int], third: list[int]) -> None:
    assert edits(one, one) == 0
    assert edits(one, other) == edits(other, one)
    assert edits(one, third) <= edits(one, other) + edits(other, third)
    assert abs(len(one) - len(other)) <= edits(one, other) <= max(len(one), len(other))


@given(WORDS)
def test_a_path_with_blanks_between_is_read_back(word: list[int]) -> None:
    assert collapsed([each for symbol in word for each in (0, symbol, symbol)]) == word


def test_an_error_rate_counts_edits_over_lengths() -> None:
    paths = torch.tensor([[1, 1, 0, 2], [3, 0, 3, 3]])
    outputs = torch.nn.functional.one_hot(paths, 4).float()
    targets = torch.tensor([[1, 2, 0], [3, 3, 1]])  # the second lacks its last symbol
    assert fed(ErrorRate(), outputs.repeat(2, 1, 1), targets.repeat(2, 1), 2) == 1 / 5


# --- scores ----------------------------------------------------------------------------------------


@given(CURVES, METRICS, st.floats(1.0, 2e4))
def test_the_time_to_a_target_is_that_of_the_first_point_there(
    curve: list[Any], target: float, budget: float
) -> None:
    inside = [p for p in curve if p[0] <= budget]
    if not inside:
        with pytest.raises(ValueError, match="no validation"):
            run_of(curve, curve, target, budget, larger=True)
        return
    run = run_of(curve, curve, target, budget, larger=True)
    hits = [p for p in inside if p[3] >= target]
    assert run.reached == bool(hits)
    assert run.wall_s == (min(p[0] for p in hits) if hits else 2 * budget)
    assert run.final == max(p[3] for p in inside)
    mirrored = [(w, c, n, -m) for w, c, n, m in curve]
    other = run_of(mirrored, mirrored, -target, budget, larger=False)
    assert other == run._replace(final=-run.final)


def test_what_is_reached_after_the_budget_does_not_count() -> None:
    curve = [(1.0, 2.0, 10, 0.5), (9.0, 18.0, 90, 0.8), (11.0, 22.0, 110, 0.95)]
    run = run_of(curve, curve, 0.9, 10.0, larger=True)
    assert run == Run(False, 20.0, 36.0, 0.8)


def test_a_metric_that_is_not_a_number_is_never_the_best() -> None:
    curve = [(1.0, 1.0, 10, math.nan), (2.0, 2.0, 20, 0.4)]
    assert run_of(curve, curve, 0.9, 10.0, larger=True).final == 0.4
    assert run_of(curve[:1], curve[:1], 0.9, 10.0, larger=True).final == -math.inf


def test_targets_are_set_by_three_quarters_of_the_steps() -> None:
    curve = [(s, s, s, m) for s, m in ((25, 0.5), (50, 0.7), (75, 0.6), (100, 0.9))]
    assert early(curve, 100, larger=True) == 0.7
    assert early(curve, 100, larger=False) == 0.5


RUNS = st.lists(
    st.builds(Run, st.booleans(), SECONDS, SECONDS, METRICS), min_size=1, max_size=5
)  # fmt: skip


@given(RUNS, RUNS)
def test_a_speedup_turned_about_is_its_inverse(one: list[Run], other: list[Run]) -> None:
    assert speedup(one, other) * speedup(other, one) == pytest.approx(1.0)
    assert speedup(one, one) == 1.0


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=8))
def test_a_geometric_mean_turned_about_is_its_inverse(ratios: list[float]) -> None:
    mean = geometric_mean(ratios)
    assert min(ratios) * (1 - 1e-9) <= mean <= max(ratios) * (1 + 1e-9)
    assert mean * geometric_mean([1 / ratio for ratio in ratios]) == pytest.approx(1.0)


def test_half_of_the_seeds_is_not_enough() -> None:
    yes, no = Run(True, 1, 1, 0), Run(False, 2, 2, 0)
    assert reached([yes, yes, no])
    assert not reached([yes, no])


@given(RATIOS)
def test_the_score_is_the_area_under_the_profile(found: list[float]) -> None:
    grid = np.linspace(1.0, MOST, 3001)
    heights = [share_within(found, factor) for factor in (grid[:-1] + grid[1:]) / 2]
    assert area(found) == pytest.approx(float(np.mean(heights)), abs=1e-3)


def test_ratios_are_to_the_shortest_time_of_those_that_finished() -> None:
    inf = math.inf
    times = {
        "a": {"x": 2.0, "y": inf, "z": inf},
        "b": {"x": 4.0, "y": 3.0, "z": inf},
        "c": {"y": 6.0},
    }
    found = ratios(times)
    assert found == {"a": [1.0, inf], "b": [2.0, 1.0], "c": [inf, 2.0]}
    assert area(found["b"]) == pytest.approx((1 + 2 / 3) / 2)


def test_the_bound_on_being_worse_holds_as_often_as_it_says() -> None:
    chance = np.random.default_rng(0)
    draws = chance.normal(0.3, 1.0, (2000, 5))
    bounds = [worse([0.0] * 5, list(draw), larger=True).most for draw in draws]
    assert 0.935 < np.mean(np.array(bounds) >= 0.3) < 0.965


def test_worse_is_by_the_direction_of_the_metric() -> None:
    assert worse([0.9, 0.8], [1.0, 0.9], larger=True).mean == pytest.approx(0.1)
    assert worse([0.9, 0.8], [1.0, 0.9], larger=False).mean == pytest.approx(-0.1)
    assert worse([0.9], [1.0], larger=True).most == math.inf


# --- a race ----------------------------------------------------------------------------------------


def work() -> Workload:
    chance = torch.Generator().manual_seed(0)
    x = torch.randn(60, 2, generator=chance)
    return Workload(
        title="two <kinds>",
        data=lambda: held_out(x, (x[:, 0] > 0).long(), 20),
        model=lambda: torch.nn.Linear(2, 2),
        loss=torch.nn.functional.cross_entropy,
        metric=lambda: MacroRecall(2),
        measure="recall",
        larger=True,
        batch=8,
        every=5,
        steps=20,
        budget_s=30.0,
        source="a seed",
    )


def race(**given: Any) -> Race:
    settings = {"seed": 0, "budget_s": 30.0, "target": None, "rate": 0.1, **given}
    return Race(work(), work().data(), **settings)


def test_a_race_begins_with_the_same_weights_for_all() -> None:
    one, other = race(), race()
    assert torch.equal(one.model.weight, other.model.weight)
    assert not torch.equal(one.model.weight, race(seed=1).model.weight)


def test_it_is_looked_every_so_often_and_ended_by_steps_target_or_budget() -> None:
    whole = race(steps=12)
    ends = [whole.look(whole.model, step) for step in range(1, 13)]
    assert [point.step for point in whole.curve] == [5, 10]
    assert ends == [False] * 11 + [True]
    assert whole.model.training
    easy = race(target=0.0)
    assert not easy.look(easy.model, 4)
    assert easy.look(easy.model, 5)
    assert race(budget_s=0.0).look(whole.model, 1)


def test_clocks_go_on_during_validations() -> None:
    one = race()
    one.judge(one.model, 1)
    one.judge(one.model, 2)
    first, last = one.curve
    assert 0 < first.wall_s < last.wall_s
    assert first.cpu_s <= last.cpu_s
    assert 0 < one.judging_s < last.wall_s


# --- tables ----------------------------------------------------------------------------------------


def field_of(**runs: list[Run]) -> Field:
    entry = {"target": 0.9, "margin": 0.02, "rate": 0.1, "grid": {"0.1": 0.9}}
    entry |= {"seeds": {"101": {"early": 0.9, "final": 0.95}}}
    found = {name: dict(enumerate(of)) for name, of in runs.items()}
    curve = [(1.0, 1.0, 5, 0.5), (10.0, 12.0, 50, 0.95)]
    return Field(work(), entry, 30.0, found, curves=dict.fromkeys(runs, curve))


def runs(wall: float, final: float = 0.95, count: int = 3, ok: bool = True) -> list[Run]:
    return [Run(ok, wall, 2 * wall, final + 0.001 * seed) for seed in range(count)]


def test_the_table_tells_where_ours_is_slower_and_what_did_not_get_there() -> None:
    fast = field_of(plain=runs(20.0), ours=runs(5.0), fastai=runs(10.0))
    slow = field_of(plain=runs(20.0), ours=runs(60.0, 0.8, ok=False), lightning=runs(30.0))
    text = results([fast, slow], "somewhere")
    assert "| plain script | 2 | 1.15x | 1.15x | two <kinds> |" in text  # root of 4 x 1/3
    assert "| fastest peer of each | 2 | 1.00x | 1.00x | two <kinds> |" in text
    assert "| Outpace, auto | 0 of 3 | (60.0) |" in text
    assert "1 of 2; not shown: 1; too few seeds to tell: 0" in text


def test_one_seed_proves_nothing() -> None:
    field = field_of(plain=runs(20.0, count=1), ours=runs(5.0, count=1))
    assert field.kept_up is None
    assert field_of(plain=runs(20.0), ours=runs(5.0)).kept_up
    assert not field_of(plain=runs(20.0), ours=runs(5.0, 0.9)).kept_up
    assert field_of(ours=runs(5.0)).kept_up is None


def test_drawings_are_whole() -> None:
    from xml.etree import ElementTree

    fields = [field_of(plain=runs(20.0), ours=runs(5.0))]
    drawn = ElementTree.fromstring(curves(fields))
    lines = drawn.findall(".//{http://www.w3.org/2000/svg}polyline")
    assert len(lines) == 2
    assert "two &lt;kinds&gt;" in curves(fields)
    assert profile(ratios(times_of(fields))).count("polyline") == 2


# --- end to end ------------------------------------------------------------------------------------


def test_a_run_that_is_kept_is_not_made_again(tmp_path: Path) -> None:
    job = {"work": "tiny", "contender": "plain", "seed": 0, "rate": 0.1, "data": "here"}
    assert answer(job, tmp_path, run=False) is None
    path_of(job, tmp_path).parent.mkdir()
    path_of(job, tmp_path).write_text('{"curve": []}')
    assert answer(job, tmp_path) == {"curve": []}
    assert answer({**job, "data": "elsewhere"}, tmp_path, run=False) == {"curve": []}
    assert answer({**job, "rate": 0.2}, tmp_path, run=False) is None


@pytest.mark.slow
def test_plain_and_ours_run_to_the_target(tmp_path: Path) -> None:
    targets, output = tmp_path / "targets.json", tmp_path / "RESULTS.md"
    entry = {"target": 0.6, "margin": 0.05, "rate": 0.01, "grid": {"0.01": 0.6}}
    entry["seeds"] = {"101": {"early": 0.6, "final": 0.9}}
    targets.write_text(json.dumps({"tiny": entry}))
    command = [sys.executable, str(QUALITY / "run.py"), "--only", "tiny", "--seeds", "1"]
    command += ["--contenders", "plain", "--contenders", "ours", "--targets", str(targets)]
    command += ["--home", str(tmp_path / "kept"), "--data", str(tmp_path), "--output", str(output)]
    command += ["--budgets", "3"]  # for a busy machine
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert output.read_text() in done.stdout
    said = [line for line in done.stdout.splitlines() if "of 2: tiny" in line]
    assert len(said) == 2
    assert all("target after" in line for line in said), said
    kept = sorted((tmp_path / "kept").rglob("*.json"))
    assert len(kept) == 3  # ours with the target, and without
    curve = json.loads(next(p for p in kept if p.name.startswith("plain")).read_text())["curve"]
    assert [point[2] for point in curve[:3]] == [10, 20, 30]

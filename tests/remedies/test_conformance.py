"""What every remedy must be, whatever it changes."""

from __future__ import annotations

import ast
import importlib
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from outpace.records.finding import Keeps
from outpace.remedies.base import Remedy
from outpace.remedies.catalog import all_remedies
from outpace.seams.setup import AS_IS, Feed
from tests.remedies.some_evidence import ALL, EMPTY

ROOT = Path(__file__).parents[2]
REMEDIES = {kind.name: kind for kind in all_remedies()}
CAUSES = {
    *("storage", "parse", "augment", "collate", "ipc", "transfer"),
    *("arithmetic", "dispatch", "sync", "threads"),
    *("capacity", "leak", "bandwidth"),
    *("startup", "validation", "checkpoint", "logging", "other"),
}
ORDER: dict[Keeps, int] = {"exact": 0, "numerics": 1, "learning": 2}
EXPECTED = {
    *("loader_workers", "persistent_workers", "prefetch", "pin_memory", "cache_samples"),
    *("slice_batches", "decode_jpeg", "cache_decoded", "fetch_threads", "bf16", "fp16", "tf32"),
    *("channels_last", "compile_model", "fused_optimizer", "set_to_none", "threads"),
    *("wait_policy", "no_sync_items", "cudnn_benchmark", "checkpoint_activations"),
    *("accumulate_gradients", "flush_denormals", "allocator", "no_grad_eval", "validate_less"),
    *("async_checkpoint", "float32", "pack_data", "no_anomaly_detection"),
    *("keep_activations", "no_unused_gradients", "decode_scaled"),
}
ACCEPTED = {
    "nothing": AS_IS,
    "slices": replace(AS_IS, feed=Feed(fetch="slice", executor="inline")),
    "kept samples ahead": replace(
        AS_IS, feed=Feed(fetch="cache", executor="ahead", cache_bytes=2**20)
    ),
    "workers": replace(AS_IS, feed=Feed(executor="processes", workers=2, persistent=True)),
    "threads": replace(AS_IS, feed=Feed(executor="threads", workers=4)),
    "compute": replace(
        AS_IS, autocast="bfloat16", channels_last=True, fused=True, decoder="simplejpeg"
    ),
}


@pytest.fixture(params=sorted(REMEDIES))
def remedy(request: pytest.FixtureRequest) -> Remedy:
    return REMEDIES[request.param]()


def test_all_are_there() -> None:
    assert set(REMEDIES) >= EXPECTED


def test_a_remedy_says_what_it_is(remedy: Remedy) -> None:
    kind = type(remedy)
    assert getattr(kind, "__final__", False), "a remedy is final"
    assert kind.__module__ == f"outpace.remedies.{remedy.name}", "one file, one remedy"
    assert set(remedy.treats) <= CAUSES
    assert remedy.treats
    assert remedy.keeps in ORDER
    assert remedy.stage in range(4)
    page = kind.page()
    assert len(page.splitlines()) >= 5, "the docstring is its page"
    assert "TODO" not in page
    module = importlib.import_module(kind.__module__)
    assert (module.__doc__ or "").startswith(f"{remedy.name}: ")


def test_it_says_whether_it_applies_and_why(remedy: Remedy) -> None:
    for evidence in ALL.values():
        verdict = remedy.applies(evidence)
        assert isinstance(verdict.yes, bool)
        assert len(verdict.reason) > 10
        assert "\n" not in verdict.reason
        assert "nan" not in verdict.reason.lower().split()
        assert not verdict.reason.endswith(".")
        if evidence is EMPTY and remedy.name != "threads":
            assert not verdict.yes, "nothing was measured"


def test_it_applies_to_some_evidence(remedy: Remedy, monkeypatch: pytest.MonkeyPatch) -> None:
    from outpace.remedies import allocator

    monkeypatch.setattr(allocator, "installed", lambda: "libjemalloc.so.2")
    assert any(remedy.applies(evidence).yes for evidence in ALL.values())
    assert not all(remedy.applies(evidence).yes for evidence in ALL.values())


def test_settings_are_plain(remedy: Remedy) -> None:
    for evidence in ALL.values():
        for settings in [remedy.settings(evidence), *remedy.alternatives(evidence)]:
            assert all(isinstance(v, str | int | float | bool) for v in settings.values())
            assert json.loads(json.dumps(settings)) == settings
        assert remedy.settings(evidence) in remedy.alternatives(evidence) or remedy.name == (
            "loader_workers"
        )


def test_it_changes_the_setup_and_only_that(remedy: Remedy) -> None:
    for evidence in ALL.values():
        settings = remedy.settings(evidence)
        changed = remedy.setup(AS_IS, settings)
        if remedy.advice_only:
            assert changed == AS_IS
        elif remedy.applies(evidence).yes:
            assert changed != AS_IS
            assert remedy.setup(changed, settings) == changed, "twice is as once"
            later = changed.environment or changed.cudnn_benchmark
            assert changed.in_process == (not later)
            hash(changed)


@pytest.mark.parametrize("name", sorted(ACCEPTED))
def test_it_leaves_what_is_accepted_alone(remedy: Remedy, name: str) -> None:
    base = ACCEPTED[name]
    for evidence in (e for e in ALL.values() if remedy.applies(e).yes):
        changed = remedy.setup(base, remedy.settings(evidence))
        assert changed.autocast == base.autocast or base.autocast is None
        for field in ("channels_last", "decoder", "fused"):
            kept = getattr(base, field) == getattr(AS_IS, field) or remedy.name == "fused_optimizer"
            assert kept or getattr(changed, field) == getattr(base, field)
        if base.feed.fetch != "items":
            assert changed.feed.fetch in (base.feed.fetch, "slice", "cache")
            assert changed.feed.executor in ("inline", "ahead"), "whoever makes batches can"
        if base.feed.executor == "ahead":
            assert changed.feed.executor == "ahead"
        if changed.feed.executor in ("threads", "processes"):
            assert changed.feed.workers > 0
        assert not (changed.feed.fetch == "cache" and changed.decoded_bytes), "memory taken twice"


def test_it_predicts(remedy: Remedy) -> None:
    for evidence in ALL.values():
        for base in ACCEPTED.values():
            for settings in [None, *remedy.alternatives(evidence)]:
                gain = remedy.predict(evidence, settings, base)
                assert 0 < gain.low <= gain.speedup <= gain.high < 1000
                assert all(math.isfinite(x) for x in (gain.low, gain.speedup, gain.high))


def test_it_never_keeps_more_than_it_says(remedy: Remedy) -> None:
    for evidence in ALL.values():
        for settings in remedy.alternatives(evidence):
            assert ORDER[remedy.kept(evidence, settings)] >= ORDER[remedy.keeps]


def test_arms_are_its_setup(remedy: Remedy) -> None:
    for evidence in ALL.values():
        if remedy.probed:
            arms = remedy.arm(evidence)
            assert all(setup.in_process for setup in arms.values())
            if remedy.applies(evidence).yes:
                again = replace(AS_IS, free_input=evidence.input.kind in ("loader", "iterable"))
                wanted = [remedy.setup(base, remedy.settings(evidence)) for base in (AS_IS, again)]
                assert any(setup in arms.values() for setup in wanted)


def test_edits_parse(remedy: Remedy) -> None:
    for evidence in ALL.values():
        for path in sorted((ROOT / "examples").glob("*.py")):
            source = path.read_text()
            changed = remedy.edit(source, evidence, remedy.settings(evidence))
            ast.parse(changed)
            if path.name == "mnist_cnn.py":
                again = remedy.diff(source, evidence, remedy.settings(evidence), path.name)
                assert bool(again) == (changed != source)

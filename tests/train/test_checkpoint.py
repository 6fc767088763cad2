"""Files of checkpoints: whole, few, and readable without trust."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from outpace.errors import DataError
from outpace.plan.safety import write
from outpace.train import checkpoint
from outpace.train.checkpoint import Checkpoints, copied
from outpace.train.result import Result
from outpace.train.strategies import Constant, Divergence, EarlyStopping, Ema, LrFinder, Plateau
from tests.train.toys import fit, goes_on_exactly, model, ready, same, trainer


def said(lines: list[str]) -> Any:
    return lines.append


def test_weights_are_read_without_trust(tmp_path: Path) -> None:
    strategies = [Divergence(), LrFinder(), Plateau(), Ema(), EarlyStopping()]
    result = fit(checkpoint=tmp_path, strategies=strategies, epochs=40)
    again = model()
    again.load_state_dict(torch.load(tmp_path / "best.pt", weights_only=True))
    assert same(dict(again.state_dict()), dict(result.weights))
    newest = max(tmp_path.glob("step-*.pt"))
    state = torch.load(newest, weights_only=True)
    assert state["progress"]["step"] == result.steps
    assert len(state["history"]) == len(result.history)


def test_the_last_two_are_kept(tmp_path: Path) -> None:
    fit(checkpoint=tmp_path, every=0)
    assert len(list(tmp_path.glob("step-*.pt"))) == 2
    assert not list(tmp_path.glob("*.part"))


def test_a_broken_one_is_passed_over(tmp_path: Path) -> None:
    lines: list[str] = []
    saves = Checkpoints(tmp_path, 1.0, said(lines))
    for step in (1, 2):
        saves.begin({"progress": step}, step, 0.0)
    saves.wait()
    path = tmp_path / "step-0000000002.pt"
    path.write_bytes(path.read_bytes()[:100])
    (tmp_path / "step-0000000003.part").write_bytes(b"half")
    found = saves.newest()
    assert found is not None
    assert found[1]["progress"] == 1
    assert "step-0000000002.pt cannot be read" in lines[0]
    assert not list(tmp_path.glob("*.part"))
    (tmp_path / "step-0000000001.pt").write_bytes(b"")
    with pytest.raises(DataError, match="can be read"):
        saves.newest()


def test_an_empty_folder_begins_anew(tmp_path: Path) -> None:
    assert Checkpoints(tmp_path / "new" / "folder", 1.0, print).newest() is None


def test_a_full_disk_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    saves = Checkpoints(tmp_path, 1.0, said(lines))
    saves.begin({"n": 1}, 1, 0.0)
    saves.wait()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    saves.begin({"n": 2}, 2, 1.0)
    saves.wait()
    assert [path.name for path in tmp_path.iterdir()] == ["step-0000000001.pt"]
    assert "No space left" in lines[0]
    assert not saves.due(2.0, together=False)
    assert saves.due(2.0 + checkpoint.RETRY_S, together=False)
    assert saves.due(2.0, together=True)  # the other ranks do not know that it failed


def test_training_goes_on_while_one_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is written is the state of its step, though weights change meanwhile."""
    go, begun = threading.Event(), threading.Event()

    def slowly(path: Path, content: dict[str, Any]) -> None:
        begun.set()
        go.wait(10)
        write(path, content)

    monkeypatch.setattr(checkpoint, "write", slowly)
    kept: dict[str, Any] = {}

    class Watch:
        def step_end(self, run: Any) -> None:
            if run.step == 1:
                kept["first"] = copied(run.module.state_dict())
            elif run.step == 30:
                assert begun.is_set()
                go.set()

    fit(checkpoint=tmp_path, every=0, callbacks=[Watch()], steps=30)
    states = [torch.load(p, weights_only=True) for p in sorted(tmp_path.glob("step-*.pt"))]
    assert [state["progress"]["step"] for state in states] == [1, 30]
    assert same(states[0]["model"], kept["first"])


def test_what_is_copied_shares_nothing() -> None:
    state = {"a": [torch.ones(2), (torch.zeros(1), "text", None, 1.5)], 3: {"b": torch.ones(1)}}
    other = copied(state)
    assert same(state, other)
    state["a"][0].add_(1)  # type: ignore[index]
    assert other["a"][0].tolist() == [1.0, 1.0]


def test_ready_batches_are_not_needed_to_have_a_length(tmp_path: Path) -> None:
    class Stream:
        def __iter__(self) -> Any:
            return iter(ready())

    def go(folder: Path, **given: Any) -> Result:
        return fit(train=Stream(), epochs=None, steps=15, checkpoint=folder, every=0, **given)

    goes_on_exactly(go, tmp_path / "cut", 7, go(tmp_path / "whole"))


def test_numbers_of_numpy_are_read_back(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, 0.0, print)
    state = {"groups": [{"weight_decay": np.float64(0.25), "steps": np.int64(3)}]}
    checkpoints.begin(copied(state), 1, 0.0)
    checkpoints.wait()
    found = checkpoints.newest()
    assert found is not None
    assert found[1]["groups"] == [{"weight_decay": 0.25, "steps": 3}]


def test_a_full_disk_does_not_cost_the_result(
    tmp_path: Path, full_disk: None, capsys: pytest.CaptureFixture[str]
) -> None:
    net = torch.nn.Sequential(torch.nn.Linear(8, 2**17), torch.nn.Linear(2**17, 3))
    result = trainer(model=net, steps=2, checkpoint=tmp_path).fit()
    assert result.steps == 2
    assert same(dict(net.state_dict()), dict(result.weights))
    assert any("the best weights are in the result only: " in note for note in result.notes)
    assert "no checkpoint was written: [Errno" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_what_else_is_in_the_folder_stays(tmp_path: Path) -> None:
    others = [tmp_path / name for name in ("data.zip.part", "step-by-step.part", "step-1000.pt")]
    for path in others:
        path.write_text("the user's")
    (tmp_path / "old.part").mkdir()
    for name in ("step-0000000007.part", "best.part"):
        (tmp_path / name).write_bytes(b"half")
    fit(checkpoint=tmp_path, every=0)
    assert [path.read_text() for path in others] == ["the user's"] * 3
    assert len(list(tmp_path.glob("step-00*.pt"))) == 2
    assert sorted(tmp_path.glob("*.part")) == sorted([*others[:2], tmp_path / "old.part"])


class Second(torch.nn.Linear):
    """Its weight lay the other way round in version 1."""

    _version = 2

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: Any, *rest: Any
    ) -> None:
        if (local_metadata.get("version") or 1) < 2:
            state_dict[f"{prefix}weight"] = state_dict[f"{prefix}weight"].t()
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)


def test_versions_of_modules_are_kept(tmp_path: Path) -> None:
    def net() -> torch.nn.Module:
        torch.manual_seed(0)
        return torch.nn.Sequential(Second(8, 8), torch.nn.Linear(8, 3))

    last: dict[str, Any] = {}

    class Last:
        def end(self, run: Any) -> None:
            last.update(copied(run.module.state_dict()))

    own = net()
    fit(model=own, valid=None, metric=None, checkpoint=tmp_path, callbacks=[Last()])
    assert same(dict(own.state_dict()), last)
    again = net()
    fit(model=again, valid=None, metric=None, checkpoint=tmp_path)
    assert same(dict(again.state_dict()), last)
    again.load_state_dict(torch.load(tmp_path / "best.pt", weights_only=True))
    assert same(dict(again.state_dict()), last)


def test_a_checkpoint_that_is_not_there_is_told_where_it_is_quiet_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(path: Path, content: dict[str, Any]) -> None:
        if content["progress"]["step"] > 10:
            raise OSError(28, "No space left on device")
        write(path, content)

    monkeypatch.setattr(checkpoint, "write", full)
    given: dict[str, Any] = {"checkpoint": tmp_path, "strategies": [Constant(rate=0.03)]}
    result = fit(**given, steps=15, every="1h")
    problem = "[Errno 28] No space left on device"
    assert capsys.readouterr().err == f"outpace: no checkpoint was written: {problem}\n"
    assert result.notes[-1] == (
        f"the last checkpoint could not be written ({problem}): started again it begins anew"
    )
    first = fit(**given, steps=10)
    assert not any("could not be written" in note for note in first.notes)
    again = fit(**given, steps=15)
    assert again.notes[-1].endswith(f"goes on from {tmp_path / 'step-0000000010.pt'}")


def test_a_checkpoint_that_a_later_one_makes_up_for_is_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = [0]

    def once(path: Path, content: dict[str, Any]) -> None:
        calls[0] += 1
        if calls[0] == 1:
            raise OSError(28, "No space left on device")
        write(path, content)

    monkeypatch.setattr(checkpoint, "write", once)
    result = fit(checkpoint=tmp_path, every=0, epochs=2)
    assert calls[0] > 1
    assert not any("could not be written" in note for note in result.notes)


class Named(NamedTuple):
    weights: torch.Tensor
    count: int


def test_a_named_tuple_stays_one() -> None:
    state = {"extra": Named(torch.ones(2), 3)}
    found = copied(state)
    assert type(found["extra"]) is Named
    assert found["extra"].count == 3
    assert found["extra"].weights is not state["extra"].weights

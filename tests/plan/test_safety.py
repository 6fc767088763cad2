"""The checkpoint that is written before a training is ended."""

from __future__ import annotations

import copy
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.optim import lr_scheduler
from torch.optim.swa_utils import AveragedModel

from outpace.plan.safety import (
    bytes_elsewhere,
    bytes_learnt,
    is_sharded,
    models_of,
    write,
    write_checkpoint,
)


def trained() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        model(torch.randn(8, 3)).square().sum().backward()
        optimizer.step()
    return model, optimizer


def test_bytes_of_weights_and_of_what_is_kept_of_each() -> None:
    """12 + 4 and 4 + 4 weights, twice as many moments, and the steps of four tensors."""
    _, optimizer = trained()
    assert bytes_learnt([optimizer]) == 4 * (24 + 48 + 4)


def test_training_can_go_on_from_it(tmp_path: Path) -> None:
    model, optimizer = trained()
    path = tmp_path / "safety.pt"
    write_checkpoint(path, [optimizer], 3)
    expected = (torch.rand(2), np.random.rand(), random.random())

    saved = torch.load(path, weights_only=True)
    again, other = trained()
    again.load_state_dict(saved["models"][0])
    other.load_state_dict(saved["optimizers"][0])
    for key, value in model.state_dict().items():
        assert torch.equal(again.state_dict()[key], value)
    assert other.state_dict()["state"][0]["step"] == 3
    assert saved["steps"] == 3

    torch.set_rng_state(saved["random"]["torch"])
    kind, keys, *rest = saved["random"]["numpy"]
    np.random.set_state((kind, keys.numpy().astype("uint32"), *rest))
    version, values, gauss = saved["random"]["python"]
    random.setstate((version, tuple(values.tolist()), gauss))
    assert torch.equal(torch.rand(2), expected[0])
    assert (np.random.rand(), random.random()) == expected[1:]


def test_weights_that_no_model_holds_are_saved_too(tmp_path: Path) -> None:
    model, optimizer = trained()
    scale = torch.tensor([2.0, 3.0], requires_grad=True)
    optimizer.add_param_group({"params": [scale]})
    write_checkpoint(tmp_path / "safety.pt", [optimizer], 3)
    saved = torch.load(tmp_path / "safety.pt", weights_only=True)
    assert [weight.tolist() for weight in saved["weights"]] == [[2.0, 3.0]]
    assert saved["models"][0].keys() == model.state_dict().keys()


def guided(optimizer: torch.optim.Optimizer) -> lr_scheduler.SequentialLR:
    parts = [lr_scheduler.LinearLR(optimizer, 0.1), lr_scheduler.MultiStepLR(optimizer, [5, 7])]
    return lr_scheduler.SequentialLR(optimizer, parts, [3])


def test_a_schedule_and_the_scale_of_the_loss_go_on_from_it(tmp_path: Path) -> None:
    _, optimizer = trained()
    _, another = trained()
    scheduler, others = guided(optimizer), lr_scheduler.ConstantLR(another)
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0, growth_interval=2)
    unused = torch.amp.GradScaler("cpu", enabled=False)
    for _ in range(4):
        scaler.scale(optimizer.param_groups[0]["params"][0].sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        scheduler.step()
    assert write_checkpoint(tmp_path / "safety.pt", [optimizer], 4).left_out == ()
    saved = torch.load(tmp_path / "safety.pt", weights_only=True)
    assert (len(saved["schedulers"]), len(saved["scalers"])) == (1, 1)
    assert others.last_epoch == 0
    assert not unused.is_enabled()

    _, fresh = trained()
    again, scale = guided(fresh), torch.amp.GradScaler("cpu")
    fresh.load_state_dict(saved["optimizers"][0])
    again.load_state_dict(saved["schedulers"][0])
    scale.load_state_dict(saved["scalers"][0])
    assert scale.get_scale() == scaler.get_scale() == 1024.0
    for _ in range(4):
        for each in (optimizer, fresh):
            each.step()
        scheduler.step()
        again.step()
        assert again.get_last_lr() == scheduler.get_last_lr()


class Own(lr_scheduler.LRScheduler):
    """A scheduler of the script's that keeps a function."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.share = lambda epoch: 0.5**epoch
        super().__init__(optimizer)

    def get_lr(self) -> list[float]:
        return [self.share(self.last_epoch) * rate for rate in self.base_lrs]


def test_a_state_that_cannot_be_loaded_again_keeps_nothing_else_from_being_saved(
    tmp_path: Path,
) -> None:
    _, optimizer = trained()
    own, plain = Own(optimizer), lr_scheduler.ConstantLR(optimizer)
    assert write_checkpoint(tmp_path / "safety.pt", [optimizer], 3).left_out == ("Own",)
    saved = torch.load(tmp_path / "safety.pt", weights_only=True)
    assert [each["last_epoch"] for each in saved["schedulers"]] == [plain.last_epoch]
    assert own.last_epoch == 0


def test_the_outermost_model_is_saved_once() -> None:
    model, optimizer = trained()
    assert models_of([optimizer], [*model.modules(), optimizer]) == [model]


def test_weights_that_are_parts_of_a_flat_one_are_sharded() -> None:
    """FSDP with ``use_orig_params=True`` marks them, and leaves them plain parameters."""
    _, optimizer = trained()
    assert not is_sharded(optimizer)
    optimizer.param_groups[0]["params"][0]._fsdp_flattened = True
    assert is_sharded(optimizer)


def test_a_full_disk_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, optimizer = trained()
    path = tmp_path / "safety.pt"
    path.write_bytes(b"earlier")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(OSError, match="No space"):
        write_checkpoint(path, [optimizer], 3)
    assert path.read_bytes() == b"earlier"
    assert [p.name for p in tmp_path.iterdir()] == ["safety.pt"]


def test_a_model_on_a_device_that_main_memory_has_no_room_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system would kill a process that takes it all."""
    model = torch.nn.Linear(256, 1024, bias=False, device="meta")
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    assert bytes_elsewhere({"a": model.weight, "b": [model.weight[:2], torch.zeros(9)]}) == 2**20
    monkeypatch.setattr("outpace.plan.safety.free_memory", lambda: 2**20)
    with pytest.raises(OSError, match="no room"):
        write_checkpoint(tmp_path / "safety.pt", [optimizer], 3)
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_an_error_of_the_disk(tmp_path: Path, full_disk: None) -> None:
    with pytest.raises(OSError, match="File too large"):
        write(tmp_path / "safety.pt", {"weights": torch.zeros(2**20)})
    assert not list(tmp_path.iterdir())


def test_other_errors_are_not(tmp_path: Path) -> None:
    class Refuses:
        def __reduce__(self) -> str:
            raise RuntimeError("not this one")

    with pytest.raises(RuntimeError, match="not this one"):
        write(tmp_path / "safety.pt", Refuses())


def test_averages_over_steps_are_saved(tmp_path: Path) -> None:
    model, optimizer = trained()
    average, teacher = AveragedModel(model), copy.deepcopy(model)
    other = torch.nn.Linear(5, 1)
    average.update_parameters(model)
    write_checkpoint(tmp_path / "safety.pt", [optimizer], 3)
    saved = torch.load(tmp_path / "safety.pt", weights_only=True)["models"]
    assert len(saved) == 3
    kept = [state for state in saved if "n_averaged" in state]
    assert [state.keys() for state in kept] == [average.state_dict().keys()]
    assert sum(state.keys() == teacher.state_dict().keys() for state in saved) == 2
    assert not any(state.keys() == other.state_dict().keys() for state in saved)


class Noted(torch.nn.Identity):
    """Adds to its state what torch.load does not take."""

    def get_extra_state(self) -> Any:
        return Path("notes")

    def set_extra_state(self, state: Any) -> None:
        pass


def test_what_torch_load_does_not_take_is_turned_or_left_out(tmp_path: Path) -> None:
    """A rate of numpy's, which a scheduler notes too; a function; a module's own state."""
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), Noted())
    optimizer = torch.optim.SGD(model.parameters(), lr=float(np.float64(0.1)), weight_decay=0.0)
    optimizer.param_groups[0].update(lr=np.float64(0.1), rule=lambda step: step)
    schedule = lr_scheduler.StepLR(optimizer, 1)
    model(torch.randn(4, 3)).sum().backward()
    optimizer.step()
    schedule.step()
    saved = write_checkpoint(tmp_path / "safety.pt", [optimizer], 1)
    assert saved.left_out == ("Sequential.1._extra_state", "SGD.rule")
    found = torch.load(tmp_path / "safety.pt", weights_only=True)
    (group,) = found["optimizers"][0]["param_groups"]
    assert type(group["initial_lr"]) is float
    assert group["lr"] == pytest.approx(0.01)
    assert found["models"][0].keys() == {"0.weight", "0.bias"}
    assert found["schedulers"][0]["base_lrs"] == [0.1]
    assert "rule" in optimizer.param_groups[0], "the script's own is left alone"

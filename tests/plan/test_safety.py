"""The checkpoint that is written before a training is ended."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import torch

from outpace.plan.safety import models_of, write_checkpoint


def trained() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        model(torch.randn(8, 3)).square().sum().backward()
        optimizer.step()
    return model, optimizer


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


def test_the_outermost_model_is_saved_once() -> None:
    model, optimizer = trained()
    assert models_of([optimizer]) == [model]


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

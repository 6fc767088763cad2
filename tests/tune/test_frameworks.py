"""Loops that others wrote pass the same seams: watched, they run as they are, and are seen."""

from __future__ import annotations

import importlib.util
import json
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import evidence_of, outpace, plainly, with_entry

HEAD = """
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(160, 8), torch.randn(160, 1))
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    """

PLAIN_LOOP = """
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for epoch in range(2):
        for x, y in DataLoader(data, batch_size=8):
            loss = nn.functional.mse_loss(run(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(repr(loss.item()))
    """

COMPILED = """
    import torch._dynamo.testing
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    run = torch.compile(model, backend=counter)
    """

COUNTED = """
    print("graphs", counter.frame_count)
    """

DDP = """
    import os
    import torch.distributed as dist
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0", RANK="0", WORLD_SIZE="1")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    run = nn.parallel.DistributedDataParallel(model)
    """

SCALED = """
    run = model
    scaler = torch.amp.GradScaler("cpu")
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for epoch in range(2):
        for i, (x, y) in enumerate(DataLoader(data, batch_size=4)):
            loss = nn.functional.mse_loss(run(x), y) / 2
            scaler.scale(loss).backward()
            if i % 2:
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
            print(repr(loss.item()))
    """

GENERATOR = """
    import time
    run = model
    def batches():
        for i in range(0, 160, 8):
            time.sleep(0.03)
            yield data.tensors[0][i:i + 8], data.tensors[1][i:i + 8]
    for epoch in range(2):
        for x, y in batches():
            loss = nn.functional.mse_loss(run(x), y)
            loss.backward()
            with torch.no_grad():
                for p in model.parameters():
                    p.sub_(p.grad, alpha=0.1)
                    p.grad = None
            print(repr(loss.item()))
    """


@pytest.mark.parametrize(
    ("body", "steps", "micro"),
    [
        (COMPILED + PLAIN_LOOP + COUNTED, 40, 1),
        pytest.param(DDP + PLAIN_LOOP, 40, 1, marks=pytest.mark.slow),
        pytest.param(SCALED, 40, 2, marks=pytest.mark.slow),
        pytest.param(GENERATOR, 32, 1, marks=pytest.mark.slow),
    ],
    ids=["compile", "ddp", "scaler and accumulation", "generator, by hand"],
)
def test_loops(
    body: str, steps: int, micro: int, script: Callable[..., Path], tmp_path: Path
) -> None:
    path = script(HEAD + body)
    plain = plainly(path)
    assert plain.returncode == 0, plain.stderr
    code, printed = with_entry(path, tmp_path / "session")
    assert code == 0, printed
    told = [line for line in printed.splitlines() if "Warning" not in line]
    assert told == plain.stdout.splitlines()
    evidence = evidence_of(tmp_path / "session")
    assert evidence.steps.count >= steps
    assert evidence.steps.micro_steps == micro
    assert evidence.compute.root is not None


@pytest.mark.slow
def test_a_generator_is_found_to_be_the_input(script: Callable[..., Path]) -> None:
    path = script((HEAD + GENERATOR).replace("range(2)", "range(40)"))
    done = outpace("diagnose", "--json", "--time", "6s", str(path), cwd=path.parent)
    found = json.loads(done.stdout)
    assert (found["bound"], found["cause"]) == ("io", "storage")
    assert found["findings"][0]["where"].startswith("train.py:")


LIGHTNING = """
    import lightning, warnings, logging
    warnings.simplefilter("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = model
        def training_step(self, batch, index):
            loss = nn.functional.mse_loss(self.net(batch[0]), batch[1])
            print(repr(loss.item()))
            return loss
        def validation_step(self, batch, index):
            self.log("val", nn.functional.mse_loss(self.net(batch[0]), batch[1]))
        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters())
    trainer = lightning.Trainer(max_epochs=2, accelerator="cpu", logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(Module(), DataLoader(data, batch_size=8), DataLoader(data, batch_size=80))
    """

TRANSFORMERS = """
    import transformers, tempfile
    config = transformers.GPT2Config(n_layer=1, n_head=2, n_embd=16, vocab_size=50, n_positions=16)
    gpt = transformers.GPT2LMHeadModel(config)
    rows = [{"input_ids": torch.arange(16) % 7, "labels": torch.arange(16) % 7} for _ in range(80)]
    class Told(transformers.TrainerCallback):
        def on_log(self, args, state, control, logs=None, **_):
            if "loss" in logs: print(repr(logs["loss"]))
    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(folder, num_train_epochs=2, logging_steps=1,
            per_device_train_batch_size=4, report_to=[], save_strategy="no", use_cpu=True,
            disable_tqdm=True)
        trainer = transformers.Trainer(gpt, arguments, train_dataset=rows, callbacks=[Told()])
        trainer.remove_callback(transformers.trainer_callback.PrinterCallback)
        trainer.train()
    """


@pytest.mark.parametrize(
    ("package", "body"),
    [
        ("lightning", LIGHTNING),
        pytest.param("transformers", TRANSFORMERS, marks=pytest.mark.slow),
    ],
)
def test_frameworks(package: str, body: str, script: Callable[..., Path], tmp_path: Path) -> None:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    path = script(HEAD + body)
    plain = plainly(path)
    assert plain.returncode == 0, plain.stderr
    code, printed = with_entry(path, tmp_path / "session")
    assert code == 0, printed

    def numbers(text: str) -> list[str]:
        return [line for line in text.splitlines() if line.replace(".", "").isdigit()]

    assert numbers(printed) == numbers(plain.stdout)
    assert len(numbers(printed)) == 40
    evidence = evidence_of(tmp_path / "session")
    assert (evidence.steps.count, evidence.run.total_steps) == (40, 40)
    assert evidence.share("forward", "backward") > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("package", "body", "epochs"),
    [
        ("lightning", LIGHTNING, "max_epochs=2"),
        ("transformers", TRANSFORMERS, "num_train_epochs=2"),
    ],
)
def test_a_trainer_lands(package: str, body: str, epochs: str, script: Callable[..., Path]) -> None:
    """It ends its training as where it stops early, and so does the next fold's; then the script goes on."""
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    body = body.replace(epochs, epochs[:-1] + "1000000")
    begin = body.index("    trainer = " if package == "lightning" else "    with ")
    folds = textwrap.indent(textwrap.dedent(body[begin:]), 12 * " ")
    body = f"{body[:begin]}    def main():\n        for fold in [0, 1]:\n{folds}\n    main()"
    path = script(f'{HEAD}{body}\n    print("saved")\n')
    done = outpace("run", "--deadline", "40s", "--land", "train.py", cwd=path.parent)
    assert done.returncode in (0, 3), done.stderr
    assert done.stdout.endswith("saved\n")
    assert "the time is up after" in done.stderr
    assert "cannot be left" not in done.stderr


@pytest.mark.parametrize("epochs", [30, pytest.param(10**9, marks=pytest.mark.slow)])
def test_under_torchrun(script: Callable[..., Path], torchrun: list[str], epochs: int) -> None:
    """Also where the ranks would go on for ever: nobody waits for their training."""
    body = DDP.replace(
        'os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0", RANK="0", WORLD_SIZE="1")', ""
    ).replace('"gloo", store=dist.HashStore(), rank=0, world_size=1', '"gloo"')
    path = script((HEAD + body + PLAIN_LOOP).replace("range(2)", f"range({epochs})"))
    done = outpace(
        "diagnose", "--json", "--time", "4s", "--", *torchrun, str(path),
        cwd=path.parent,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert found["outcome"] == "done"
    assert found["steps"]["count"] > 10

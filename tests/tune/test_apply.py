"""`outpace run`: a recipe is at work in a script that imports its libraries when it likes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from outpace.adapters.launch import start, wait
from outpace.records.target import Target
from outpace.seams.host import Host, Step
from outpace.seams.setup import AS_IS
from outpace.tune import apply as module
from outpace.tune.apply import Applied, checksum
from outpace.tune.assemble import within_memory
from outpace.tune.children import run_for_losses
from tests.conftest import plainly, with_entry

IMAGES = """
    import torch
    import io
    from PIL import Image
    from torch.utils.data import DataLoader, Dataset
    import pathlib
    import random
    random.seed(0); torch.manual_seed(0)
    folder = pathlib.Path("images"); folder.mkdir(exist_ok=True)
    paths = [folder / f"{i}.jpg" for i in range(12)]
    for i, path in enumerate(paths):
        if not path.exists():
            Image.effect_noise((40, 30), 20 + i).convert("RGB").save(path, quality=90)
    class Images(Dataset):
        def __len__(self): return len(paths)
        def __getitem__(self, i):
            image = Image.open(paths[i]).convert("RGB")
            left = random.randrange(8)
            image = image.crop((left, 0, left + 24, 24))
            return torch.tensor(list(image.tobytes()), dtype=torch.float32) / 255
    model = torch.nn.Linear(24 * 24 * 3, 1)
    optimizer = torch.optim.SGD(model.parameters(), 1e-4)
    for epoch in range(3):
        for x in DataLoader(Images(), batch_size=4, shuffle=True):
            loss = model(x).square().mean()
            optimizer.zero_grad(); loss.backward(); optimizer.step()
            print(repr(loss.item()))
    import PIL.ImageFile, sys
    decoder = getattr(PIL.ImageFile.ImageFile.load, "__wrapped__", None)
    print("at work" if decoder else "plain", file=sys.stderr)
    """


@pytest.mark.parametrize(
    "remedy",
    [
        {"name": "cache_decoded", "settings": {"limit_mib": 64}},
        pytest.param({"name": "decode_jpeg", "settings": {}}, marks=pytest.mark.slow),
    ],
)
def test_images(remedy: dict[str, object], script: Callable[..., Path], tmp_path: Path) -> None:
    path = script(IMAGES)
    plain = plainly(path)
    assert plain.returncode == 0, plain.stderr
    assert plain.stderr.strip() == "plain"
    code, printed = with_entry(
        path, tmp_path / "session", "outpace.tune.apply:begin", remedies=[remedy]
    )
    assert code == 0, printed
    assert printed.splitlines()[:9] == plain.stdout.splitlines()
    assert printed.splitlines()[-1] == "at work"


THREADS = """
    import torch
    import sys, traceback
    torch.manual_seed(0)
    model = torch.nn.Linear(64, 1)
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    for step in range(5):
        x = torch.randn(32, 64)
        loss = model(x).square().mean()
        optimizer.zero_grad(); loss.backward(); optimizer.step()
        print(repr(loss.item()))
    stacks = map(traceback.extract_stack, sys._current_frames().values())
    parked = [stack for stack in stacks if stack[0].name == "_hold"]
    print("at work" if parked else "plain", file=sys.stderr)
    """


def test_threads_are_put_to_sleep_while_torch_is_imported(
    script: Callable[..., Path], tmp_path: Path
) -> None:
    """The parked threads need the import lock that is held then: nobody may wait for them."""
    path = script(THREADS)
    plain = plainly(path)
    remedy = {"name": "wait_policy", "settings": {}}
    code, printed = with_entry(
        path, tmp_path / "session", "outpace.tune.apply:begin", remedies=[remedy]
    )
    assert code == 0, printed
    assert printed.splitlines()[:5] == plain.stdout.splitlines()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    assert printed.splitlines()[-1] == ("at work" if cores > 1 else "plain")


DISTILLED = """
    import sys
    import torch
    from torch.utils.checkpoint import checkpoint
    from torch.utils.data import DataLoader
    torch.manual_seed(0)
    runs, gradients = 0, set()

    class Student(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 2)

        def part(self, x):
            global runs
            runs += 1
            return torch.tanh(self.layer(x))

        def forward(self, x):
            return BLOCK

    teacher, student = torch.nn.Linear(4, 2), Student()
    optimizer = torch.optim.SGD(student.parameters(), 0.1)
    for x in DataLoader(torch.randn(32, 4), batch_size=4):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(student(x), teacher(x))
        loss.backward()
        optimizer.step()
        gradients.add(float(teacher.weight.grad.abs().sum()))
        print(repr(loss.item()))
    print(runs, len(gradients), teacher.weight.requires_grad, file=sys.stderr)
    """


@pytest.mark.parametrize(
    ("remedy", "block", "before", "after"),
    [
        (
            "keep_activations",
            "checkpoint(self.part, x, use_reentrant=False)",
            "16 8 True",
            "8 8 True",
        ),
        pytest.param(
            *("no_unused_gradients", "self.part(x)", "8 8 True", "8 3 True"),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_what_a_training_has_no_use_for_is_left_out(
    remedy: str, block: str, before: str, after: str, script: Callable[..., Path], tmp_path: Path
) -> None:
    path = script(DISTILLED.replace("BLOCK", block))
    plain = plainly(path)
    assert plain.stderr.strip() == before
    code, printed = with_entry(
        path,
        tmp_path / "session",
        "outpace.tune.apply:begin",
        remedies=[{"name": remedy, "settings": {}}],
    )
    assert code == 0, printed
    assert printed.splitlines()[:8] == plain.stdout.splitlines()
    assert printed.splitlines()[-1] == after


def test_caches_are_held_within_the_memory_of_this_machine(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A recipe of a larger machine ended in the first epoch, for want of memory."""
    feed = replace(AS_IS.feed, fetch="cache", cache_bytes=45 << 30)
    wanted = replace(AS_IS, feed=feed, decoded_bytes=3 << 30)
    monkeypatch.setattr("outpace.tune.assemble.free_memory", lambda: 10 << 30)
    monkeypatch.setattr("outpace.tune.assemble.local_ranks", lambda: 1)
    found = within_memory(wanted)
    assert (found.feed.cache_bytes, found.decoded_bytes) == (8 << 30, 3 << 30)
    assert "keeps up to 45.0 GiB in memory, of which 10.0 are free here" in capsys.readouterr().err
    assert within_memory(AS_IS) is AS_IS
    monkeypatch.setattr("outpace.tune.assemble.free_memory", lambda: 100 << 30)
    assert within_memory(wanted) is wanted
    assert capsys.readouterr().err == ""


def test_a_checksum_is_of_all_that_models_hold() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 2).bfloat16(), torch.nn.BatchNorm1d(2))
    host: Any = SimpleNamespace(roots=[model])
    found = [checksum(host)]
    with torch.no_grad():
        model[0].bias[1] += 1.0
        found.append(checksum(host))
        model[1].running_var[0] = 0.5
        found.append(checksum(host))
        model[1].num_batches_tracked += 1
        found.append(checksum(host))
    assert len(set(found)) == 4
    assert checksum(host) == found[-1]
    assert checksum(SimpleNamespace(roots=[torch.nn.Linear(2, 2, device="meta")])) is None  # type: ignore[arg-type]
    graph = torch.nn.Linear(2, 2)
    graph.register_buffer("adjacency", torch.eye(2).to_sparse())
    assert checksum(SimpleNamespace(roots=[graph])) is None  # type: ignore[arg-type]


SEAMS = """
    import sys
    import torch
    import torch.utils.data as data
    x = torch.randn(64, 4)
    for batch in data.DataLoader(x, batch_size=8):
        pass
    print(torch.nn.Module.__call__.__code__.co_filename.count("outpace/seams"), file=sys.stderr)
    print(data.DataLoader.__iter__.__code__.co_filename.count("outpace/seams"), file=sys.stderr)
    """


def test_a_run_puts_in_no_seam_that_its_recipe_has_no_use_for(
    script: Callable[..., Path], tmp_path: Path
) -> None:
    def seams(*remedies: str) -> list[str]:
        applied = [{"name": name, "settings": {}} for name in remedies]
        entry = "outpace.tune.apply:begin"
        code, printed = with_entry(script(SEAMS), tmp_path / "session", entry, remedies=applied)
        assert code == 0, printed
        return printed.split()

    assert seams() == ["0", "0"]
    assert seams("bf16") != ["0", "0"]


UNUSUAL = """
    import copy, itertools, json
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    torch.manual_seed(0)
    data = TensorDataset(torch.arange(40.0).reshape(20, 2), torch.zeros(20))
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 1e-4)

    class Boxes(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            with torch._C.DisableTorchFunctionSubclass():
                made = func(*args, **(kwargs or {}))
            return made.as_subclass(cls) if func in KEEP else made

    KEEP = {torch.Tensor.to, torch.Tensor.clone}

    def train(rate=0.1, sizes=(5,)):
        config = locals()
        batches = itertools.cycle(DataLoader(data, 4, shuffle=True))
        other = iter(DataLoader(data, 4))
        again = iter(DataLoader(data, 4))
        seen = []
        for step in range(10):
            x, _ = next(batches)
            seen.append(x[:, 0].tolist())
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
        print(json.dumps(config))
        print(len(set(map(tuple, seen))), next(other)[0].sum().item())
        print(type(torch.ones(2).as_subclass(Boxes).to(torch.float64)).__name__)

    train()
    try:
        raise ValueError("at the end")
    except ValueError as error:
        raise error from error
    """


def test_scripts_that_do_unusual_things(script: Callable[..., Path], tmp_path: Path) -> None:
    """A loader held by its iterator alone, locals(), a class of tensors, an error that is its own cause."""
    path = script(UNUSUAL)
    plain = plainly(path)
    assert plain.stdout.splitlines() == ['{"rate": 0.1, "sizes": [5]}', "5 28.0", "Boxes"]
    for entry, remedies in (
        ("apply", [{"name": "channels_last", "settings": {}}]),
        ("observed", []),
    ):
        code, printed = with_entry(
            path, tmp_path / entry, f"outpace.tune.{entry}:begin", remedies=remedies
        )
        assert code == plain.returncode == 1
        assert printed.splitlines() == [*plain.stdout.splitlines(), *plain.stderr.splitlines()]


def test_a_run_ends_where_its_losses_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[bool] = []
    monkeypatch.setattr(module, "end_process", lambda *, in_command: ended.append(in_command))
    applied = Applied({"session": str(tmp_path), "stop_after": 1, "losses": True}, Host())
    monkeypatch.setattr(applied.losses, "read", lambda: 1 / 0)
    applied.host.steps = 1
    with pytest.raises(ZeroDivisionError):
        applied.on_step(Step(0, 1, 1, {}, 1, 1, True))
    assert ended == [False]


def test_a_session_that_cannot_be_written_is_told_to_nobody_that_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Gone:
        def write(self, text: str) -> int:
            raise BrokenPipeError(32, "Broken pipe")

    (tmp_path / "file").touch()
    applied = Applied({"session": str(tmp_path / "file"), "stop_after": 1}, Host())
    monkeypatch.setattr("sys.stderr", Gone())
    applied.finish()


FORKING = """
import os
import subprocess
import sys
from pathlib import Path

from outpace.plan.countdown import since_boot
from outpace.seams.host import Host
from outpace.tune.apply import watch_deadline

host, given = Host(), dict(boot="", began_at=0.0, seconds=60.0, at=None, land="plateau")
watch_deadline(host, {"session": "here", "deadline": dict(given, began=since_boot())})
landing = host.listeners[-1].__self__
if not (child := os.fork()):
    print(landing.checkpoint == Path("here") / f"safety-{os.getpid()}.pt", flush=True)
    os._exit(0)
os.waitpid(child, 0)
print(landing.checkpoint)
"""


def test_a_fork_that_trains_has_a_safety_checkpoint_of_its_own() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKING], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["True", "here/safety.pt"]


LOGS = """
    import torch
    {imports}
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    for step in range(20):
        loss = model(torch.ones(4, 8)).square().mean()
        optimizer.zero_grad(); loss.backward(); optimizer.step()
        if step == 15:
            {log}
    """


@pytest.mark.parametrize(
    ("imports", "log", "steps", "awaited"),
    [
        ("import outpace", "outpace.log(accuracy=0.5)", 18, False),
        ("import helping", "helping.told(0.5)", 10, True),
    ],
)
def test_metrics_that_a_script_gives_later_are_awaited(
    script: Callable[..., Path],
    tmp_path: Path,
    imports: str,
    log: str,
    steps: int,
    awaited: bool,
) -> None:
    path = script(LOGS.format(imports=imports, log=log))
    path.with_name("helping.py").write_text(
        "import outpace\n\ndef told(value):\n    outpace.log(accuracy=value)\n"
    )
    target = Target("script", str(path), (), str(path.parent))

    def launch(entry: str, spec: dict[str, Any], folder: Path, env: Any) -> int:
        full = {"entry": entry, "session": str(folder), "machine": {}, **spec}
        log = folder / "target.log"
        return wait(start(target, session=folder, mode="t", spec=full, env=env, output=log))

    losses, _, _ = run_for_losses(launch, [], tmp_path / "session", steps=steps)
    assert losses is not None
    assert losses.awaited is awaited
    assert bool(losses.metrics) is (steps > 15)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("import outpace\noutpace.log(accuracy=0.5)\n", True),
        ("from outpace import log\nlog(accuracy=0.5)\n", True),
        ("import outpace\nprint(outpace.Loader)\n", False),
    ],
)
def test_whether_a_script_gives_metrics_at_some_time(
    monkeypatch: pytest.MonkeyPatch, text: str, told: bool
) -> None:
    monkeypatch.setattr(module, "user_modules", lambda: [text.splitlines(keepends=True)])
    assert module.reports() is told

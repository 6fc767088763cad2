"""``outpace diagnose`` of trainings in whose every step something else happens: it comes to an end."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from outpace.measure.arms import FEWEST_ROUNDS, Contest
from outpace.records.arm import FED, ONE_THREAD
from outpace.seams.host import Host, Step
from outpace.seams.loader import LoaderSeam
from outpace.seams.loader_record import Record
from outpace.seams.setup import AS_IS
from outpace.tune.experiment import SHARES, Experiment
from tests.conftest import evidence_of, outpace, with_entry
from tests.remedies.some_evidence import IMAGES, WORKERS

TRAINING = """
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    data = TensorDataset(torch.randn(256, 16), torch.randint(0, 4, (256,)))
    x, y = data.tensors
    model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def step(x, y):
        model.train()
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    def validate():
        model.eval()
        with torch.no_grad():
            return (model(x).argmax(1) == y).float().mean()

    for epoch in range(1_000_000):
"""
BATCHES = """\
        for batch in DataLoader(data, batch_size={}):
            step(*batch)
"""
VALIDATED = """\
        step(x, y)
        validate()
"""
SAVED = """\
        step(x, y)
        torch.save(model.state_dict(), "last.pt")
"""


def diagnosed(path: Path, session: Path, time: str) -> subprocess.CompletedProcess[str]:
    """A diagnosis that came to its end within the time."""
    words = ("diagnose", "--json", "--quiet", "--time", time, "--session", str(session), str(path))
    done = outpace(*words, cwd=path.parent)
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.parametrize(
    ("epoch", "in_every_step"),
    [
        (BATCHES.format(256), True),
        pytest.param(BATCHES.format(8), False, marks=pytest.mark.slow),
        pytest.param(VALIDATED, True, marks=pytest.mark.slow),
        pytest.param(SAVED, True, marks=pytest.mark.slow),
    ],
    ids=["one batch", "as many batches as a group", "validated", "saved"],
)
def test_what_happens_in_every_step(
    script: Callable[..., Path], tmp_path: Path, epoch: str, in_every_step: bool
) -> None:
    path = script(TRAINING + epoch)
    session = tmp_path / "session"
    diagnosed(path, session, "3s")
    evidence = evidence_of(session)
    assert evidence.steps.mingled == in_every_step
    assert evidence.arm("seams_off") is not None


TAKEN_APART = """
    import torch
    from torch.utils.data import DataLoader

    rows = [{"x": torch.randn(16), "labels": torch.tensor(i % 4)} for i in range(64)]
    loader = DataLoader(rows, batch_size=16)
    model = torch.nn.Linear(16, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for epoch in range(1_000_000):
        for batch in loader:
            labels = batch.pop("labels")
            batch["x"].div_(2.0)
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(**{"input": batch["x"]}), labels).backward()
            optimizer.step()
"""
WORKERS_ONLY = """
    import torch
    from torch.utils.data import DataLoader, Dataset, get_worker_info

    class Rows(Dataset):
        rows = None

        def __len__(self):
            return 64

        def __getitem__(self, index):
            return self.rows[index]

    def opened(worker):
        get_worker_info().dataset.rows = torch.randn(64, 16)

    loader = DataLoader(Rows(), batch_size=16, num_workers=1, worker_init_fn=opened)
    model = torch.nn.Linear(16, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for epoch in range(1_000_000):
        for x in loader:
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
"""


RESTARTED = """
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    data = TensorDataset(torch.randn(256, 16), torch.randint(0, 4, (256,)))
    loader = DataLoader(data, batch_size=16, shuffle=True, num_workers=2)
    model = torch.nn.Linear(16, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(1_000_000):
        x, y = next(iter(loader))
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
"""


@pytest.mark.slow
def test_workers_that_start_for_each_batch_are_the_bottleneck(
    script: Callable[..., Path], tmp_path: Path
) -> None:
    """Two processes begin and end in each step, beside which 64 weights are nothing on any machine."""
    path, session = script(RESTARTED), tmp_path / "session"
    done = diagnosed(path, session, "10s")
    evidence = evidence_of(session)
    assert evidence.input.restarts
    free = evidence.arm("input_free")
    assert free is not None
    assert free.gain.low > 2.0, "and the workers are not started where batches are free"
    first = json.loads(done.stdout)["findings"][0]
    line = RESTARTED[: RESTARTED.index("next(")].count("\n") + 1
    assert (first["bound"], first["cause"], first["where"]) == ("io", "ipc", f"train.py:{line}")
    assert "starts and ends 2 workers for each batch" in first["reason"]
    assert "persistent_workers" in {advice["name"] for advice in first["remedies"]}


COUNTED = """
    import time
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    data = TensorDataset(torch.randn(640, 16), torch.randint(0, 4, (640,)))
    model = torch.nn.Sequential(torch.nn.Linear(16, 256), torch.nn.ReLU(), torch.nn.Linear(256, 4))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    loader = DataLoader(data, batch_size=16, shuffle=True)
    for epoch in range(1_000_000):
        seen = 0
        for x, y in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            time.sleep(0.004)
            seen += 1
        assert seen == len(loader), seen
"""


def test_each_epoch_of_experiments_has_as_many_batches_as_ever(
    script: Callable[..., Path], tmp_path: Path
) -> None:
    """A schedule of so many steps would fail. For 25 steps batches are free, or the seams are out."""
    session = tmp_path / "session"
    done = diagnosed(script(COUNTED), session, "4s")
    assert "AssertionError" not in done.stderr
    evidence = evidence_of(session)
    assert evidence.arm("seams_off") is not None
    assert evidence.arm("input_free") is not None


MADE_ANEW = """
    import time

    import torch
    from torch.utils.data import DataLoader, Dataset

    class Rows(Dataset):
        def __len__(self):
            return 64

        def __getitem__(self, index):
            time.sleep(0.002)
            return torch.full((16,), index / 64), index % 4

    model = torch.nn.Linear(16, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for epoch in range(1_000_000):
        for x, y in DataLoader(Rows(), batch_size=16):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
"""


@pytest.mark.slow
def test_a_data_set_that_is_made_anew_for_each_epoch(
    script: Callable[..., Path], tmp_path: Path
) -> None:
    """Of four batches an epoch three are free where input is: reading is 32 ms of each step of as many."""
    path, session = script(MADE_ANEW), tmp_path / "session"
    done = diagnosed(path, session, "8s")
    free = evidence_of(session).arm("input_free")
    assert free is not None
    assert free.gain.speedup > 5.0
    first = json.loads(done.stdout)["findings"][0]
    assert (first["bound"], first["cause"]) == ("io", "storage")


@pytest.mark.slow
def test_batches_that_the_script_takes_apart(script: Callable[..., Path], tmp_path: Path) -> None:
    path, session = script(TAKEN_APART), tmp_path / "session"
    diagnosed(path, session, "4s")
    assert evidence_of(session).arm("input_free") is not None


@pytest.mark.slow
def test_a_data_set_that_only_workers_can_draw_from(
    script: Callable[..., Path], tmp_path: Path
) -> None:
    path, session = script(WORKERS_ONLY), tmp_path / "session"
    diagnosed(path, session, "12s")
    evidence = evidence_of(session)
    assert any("could not be tried here" in note for note in evidence.notes), evidence.notes
    assert evidence.arms, "and what came after that was measured"


@pytest.mark.slow
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one core: no other number of threads")
@pytest.mark.parametrize("workers", [0, 1])
def test_threads_are_tried_beside_what_makes_batches_too(
    script: Callable[..., Path], tmp_path: Path, workers: int
) -> None:
    source = WORKERS_ONLY.replace(
        "num_workers=1", f"num_workers={workers}, persistent_workers={workers > 0}"
    )
    path, session = (
        script(source.replace("rows = None", "rows = torch.randn(64, 16)")),
        tmp_path / "session",
    )
    diagnosed(path, session, "6s")
    assert {a.base for a in evidence_of(session).arms if a.name.endswith(FED)} == {"as_is"}


def test_beside_what_makes_batches_threads_are_tried_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Against the step as it is, and not against one whose batches are free."""
    monkeypatch.setattr("outpace.tune.experiment.training_loader", lambda _: (None, Record(0)))
    experiment: Any = Experiment.__new__(Experiment)
    experiment.host, experiment.earlier, experiment.shares = Host(), {}, SHARES
    experiment.left = lambda: 20.0
    experiment.observed = SimpleNamespace(found=SimpleNamespace(made_sooner_s=0.0))
    contest = next(experiment.contests(WORKERS))
    fed = [setup for name, setup in contest.arms.items() if name.endswith(FED)]
    assert fed
    assert not any(setup.free_input for setup in fed)
    assert contest.base == "as_is"


def test_a_script_that_is_run_again_does_not_begin_its_time_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each arm has its share of the whole: those that come first had it once a run before."""
    again = object.__new__(Experiment)
    pairs = {"input_free": [[2.0, 1.0, 2.0, 1.0]] * FEWEST_ROUNDS}
    again.earlier = {"contests": {"input": {"pairs": pairs, "spent": 3.0}}}
    monkeypatch.setattr(again, "left", lambda: 7.0, raising=False)
    arms = {"as_is": AS_IS, "input_free": AS_IS}
    over = again.contest(arms, 0.3, "input")
    assert (over.seconds, over.spent, over.rounds) == (3.0, 3.0, FEWEST_ROUNDS)
    assert over.gain("input_free").speedup == pytest.approx(2.0)
    fresh = again.contest(arms, 1.0, "compute")
    assert (fresh.seconds, fresh.spent, fresh.rounds) == (7.0, 0.0, 0)
    assert over.late
    assert not fresh.late


FORKED = """
    import multiprocessing

    import torch

    def train(queue):
        torch.set_num_threads(1)
        model = torch.nn.Linear(16, 4)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for step in range(3000):
            optimizer.zero_grad()
            model(torch.randn(8, 16)).square().mean().backward()
            optimizer.step()
        queue.put("trained")

    queue = multiprocessing.Queue()
    child = multiprocessing.Process(target=train, args=(queue,))
    child.start()
    print(queue.get(timeout=60))
    child.join()
"""


def test_a_training_in_a_forked_process_goes_to_its_end(
    script: Callable[..., Path], tmp_path: Path
) -> None:
    done = outpace("diagnose", "--time", "1s", str(script(FORKED)), cwd=tmp_path, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "trained" in done.stdout, done.stderr


KEPT_ITERATOR = """
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    class Endless:
        def __init__(self, sampler): self.sampler = sampler
        def __iter__(self):
            while True:
                yield from iter(self.sampler)

    class Kept(DataLoader):
        def __init__(self, *args, **more):
            super().__init__(*args, **more)
            object.__setattr__(self, "batch_sampler", Endless(self.batch_sampler))
            self.iterator = super().__iter__()
        def __len__(self): return len(self.batch_sampler.sampler)
        def __iter__(self):
            for _ in range(len(self)):
                yield next(self.iterator)

    class Config:  # as of a dictionary
        def __init__(self, values): self.__dict__["values"] = values
        def __getattr__(self, name): return self.values[name]

    config = Config({"rate": 0.1})
    data = TensorDataset(torch.randn(64, 16), torch.randint(0, 4, (64,)))
    model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4))
    optimizer = torch.optim.SGD(model.parameters(), config.rate)
    loader = Kept(data, batch_size=8, shuffle=True)
    for epoch in range(1_000_000):
        count = 0
        for x, y in loader:
            count += 1
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        assert count == 8, count
    """


@pytest.mark.slow
def test_a_loader_that_keeps_its_iterator_and_a_class_that_answers_to_few_names(
    script: Callable[..., Path], tmp_path: Path
) -> None:
    """As some libraries' loaders are, whose workers outlive an epoch."""
    path, session = script(KEPT_ITERATOR), tmp_path / "session"
    done = diagnosed(path, session, "3s")
    assert "seam failed" not in done.stderr
    evidence = evidence_of(session)
    assert evidence.arm("input_free") is not None
    assert evidence.arm("seams_off") is not None


def test_the_sampler_looks_away_from_the_first_unwatched_step_on() -> None:
    """Time that no seam clocks would be laid at the lines that run in it."""
    paused: list[bool] = []
    host = SimpleNamespace(setup=AS_IS, steps=9)
    experiment: Any = Experiment.__new__(Experiment)
    experiment.host, experiment.begun, experiment.slowed = host, 1.0, False
    experiment.given_time, experiment.max_steps = True, None

    def switch(_: Step) -> None:
        host.setup = replace(AS_IS, watched=not host.setup.watched)

    experiment.scheduler = SimpleNamespace(on_step=switch)
    experiment.observed = SimpleNamespace(
        pause_sampler=paused.append, safely=lambda measure, step: measure(step)
    )
    for index in range(2):
        experiment.on_step(Step(index, 1, 1, {}, 1, 1, True))
    assert paused == [True, False]


@pytest.mark.parametrize(
    ("total", "step_s", "seconds"),
    [
        (240, 0.35, 52.5),
        (30, 1.0, 30.0),
        (6000, 0.05, 20.0),
        (100_000, 0.05, 60.0),
        (None, 1.0, 60.0),
    ],
)
def test_experiments_take_a_share_of_the_run_or_so_many_steps(
    total: int | None, step_s: float, seconds: float
) -> None:
    experiment: Any = Experiment.__new__(Experiment)
    watcher = SimpleNamespace(total_steps=lambda _: total)
    experiment.observed = SimpleNamespace(spec={}, watcher=watcher)
    step = Step(2, int(step_s * 1e9), 1, {}, 1, 1, True)
    assert experiment.time_for(step) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("steps", "left", "stops"), [(105, 5.0, False), (111, 5.0, True), (105, 0.0, True)]
)
def test_a_target_that_goes_on_after_its_end_is_not_waited_for(
    steps: int, left: float, stops: bool
) -> None:
    """A length that was read off its loops may be too small: it would train for days."""
    stopped: list[bool] = []
    host = SimpleNamespace(setup=AS_IS, steps=95, guard=lambda *_: None)
    experiment: Any = Experiment.__new__(Experiment)
    experiment.host, experiment.begun, experiment.slowed = host, 1.0, False
    experiment.given_time, experiment.max_steps = True, None
    experiment.left = lambda: 5.0
    experiment.scheduler = SimpleNamespace(on_step=lambda _: None)
    run = SimpleNamespace(estimated_s=10.0, wall_s=9.5, total_steps=100)
    experiment.observed = SimpleNamespace(
        evidence=lambda: SimpleNamespace(run=run),
        stop=lambda: stopped.append(True),
        pause_sampler=lambda _: None,
        safely=lambda measure, step: measure(step),
    )
    experiment.done()
    assert not stopped
    host.steps, experiment.left = steps, lambda: left
    experiment.on_step(Step(steps, 1, 1, {}, 1, 1, True))
    assert bool(stopped) is stops


def test_batches_of_a_loader_among_others_keep_their_size() -> None:
    """What a script makes of two loaders' batches breaks where one is twice as large."""
    host = Host()
    seam = LoaderSeam(host)
    host.add(seam)
    loaders = [DataLoader(TensorDataset(torch.zeros(8, 2)), batch_size=2) for _ in range(2)]
    main, other = (Record(number, length=4) for number in range(2))
    for loader, record in zip(loaders, (main, other), strict=True):
        seam.records[loader] = record
        record.recent.see([torch.zeros(2, 2)])
    experiment: Any = Experiment.__new__(Experiment)
    experiment.host = host
    experiment.observed = SimpleNamespace(spec={})
    main.beside = True
    assert experiment.scalable(main)
    other.beside, other.running = True, lambda: other
    assert not experiment.scalable(main)
    other.running = lambda: None
    assert experiment.scalable(main), "its epoch is over, and it gives no more"
    experiment.observed.spec["excluded"] = {"batch_double": "the process ended"}
    assert not experiment.scalable(main)


@pytest.mark.parametrize(("others_cores", "is_tried"), [(0.8, True), (0.0, False)])
def test_one_thread_is_tried_beside_another_program(others_cores: float, is_tried: bool) -> None:
    """For what its two threads do by themselves; to use fewer is not proposed."""
    experiment: Any = Experiment.__new__(Experiment)
    run = msgspec.structs.replace(IMAGES.run, others_cores=others_cores)
    machine = msgspec.structs.replace(IMAGES.machine, cores=2)
    compute = msgspec.structs.replace(IMAGES.compute, device="cpu", threads=2)
    facts = msgspec.structs.replace(IMAGES, run=run, machine=machine, compute=compute)
    arms = experiment.compute_arms(facts, loaded=True, scalable=False)
    assert (ONE_THREAD in arms) is is_tried
    assert ("threads_1" in arms) is not is_tried


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "rounds", "left", "changes", "enough"),
    [
        ("compute", FEWEST_ROUNDS, 2.9, False, True),
        ("compute", FEWEST_ROUNDS, 3.1, False, False),
        ("compute", FEWEST_ROUNDS - 1, 2.9, False, False),
        ("compute", FEWEST_ROUNDS, 2.9, True, False),
        ("changes of the model", FEWEST_ROUNDS, 2.9, True, True),
        ("input and watching", FEWEST_ROUNDS, 2.9, False, False),
    ],
)
def test_a_script_is_not_run_again_for_the_rest_of_the_last_contest(
    name: str, rounds: int, left: float, changes: bool, enough: bool
) -> None:
    contest = Contest({"as_is": AS_IS}, 9.0, name, pairs={"as_is": [(1.0, 1.0, 1.0, 1.0)] * rounds})
    experiment: Any = SimpleNamespace(
        scheduler=SimpleNamespace(contest=contest),
        observed=SimpleNamespace(spec={"changes": changes}),
        left=lambda: left,
        time_s=20.0,
    )
    assert Experiment.all_but_complete(experiment) == enough


def test_a_loss_of_a_script_that_ends_while_it_is_watched(
    script: Callable[..., Path], tmp_path: Path
) -> None:
    """Its lines are the forward pass's also in the ledger of the first run, which is seen whole."""
    path = script("""
        import torch

        model = torch.nn.Linear(8, 4)
        optimizer = torch.optim.SGD(model.parameters(), 0.01)

        def far(out):
            loss = torch.zeros(())
            for turn in range(500):
                loss = loss + torch.log(1 + out[0, turn % 4].square())
            return loss

        for step in range(60):
            optimizer.zero_grad()
            loss = far(model(torch.randn(16, 8)))
            loss.backward()
            optimizer.step()
    """)
    session = tmp_path / "session"
    code, text = with_entry(path, session, "outpace.tune.experiment:begin", time_s=60.0)
    assert code == 0, text
    evidence = evidence_of(session)
    lines = path.read_text().splitlines()
    at = 1 + next(n for n, line in enumerate(lines) if "torch.log" in line)
    kinds = {row.name for row in evidence.ledger if row.where and row.where.endswith(f":{at}")}
    assert "forward" in kinds
    assert not kinds & {"elsewhere", "logging", "input"}
    assert evidence.compute.calls is not None
    assert evidence.compute.calls.function == "far"

"""How often a whole run validates, saves and begins an epoch, by the part of it that was seen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import evidence_of, with_entry

from outpace.measure.recurring import Came, ends_of_epochs, recurring, starts_of_epochs


def came(*steps: int) -> Came:
    """One second at each of these."""
    found = Came()
    for each in steps:
        found.note(each, 10**9)
    return found


@pytest.mark.parametrize(
    ("at", "seen", "times"),
    [
        ((100,), 101, 10),
        ((100,), 199, 10),
        ((100, 200), 299, 10),
        ((0, 100), 150, 11),
        ((40, 140), 150, 10),
        ((600,), 700, 1),
    ],
)
def test_a_thousand_steps_have_as_many_wherever_the_watch_ended(
    at: tuple[int, ...], seen: int, times: int
) -> None:
    found = recurring("validation", came(*at), seen)
    assert found.sure
    assert found.times(1000) == times
    assert found.seconds(1000) == times


def test_what_came_once_in_the_first_half_may_come_after_what_was_seen_at_the_earliest() -> None:
    found = recurring("checkpoint", came(10), 110)
    assert not found.sure
    assert found.times(1010) == 11


def test_an_epoch_that_ends_with_the_training_has_none_after_it() -> None:
    assert starts_of_epochs(3.0, 2, 100.0).seconds(1000) == 15.0
    assert starts_of_epochs(3.0, 2, 100.0).times(1001) == 11
    assert starts_of_epochs(3.0, 1, None).times(1000) == 1


def test_a_dear_start_of_an_epoch_is_paid_once_an_epoch(
    script: Callable[[str], Path], tmp_path: Path
) -> None:
    path = script(
        """
        import time
        import torch
        from torch.utils.data import DataLoader, RandomSampler, TensorDataset

        class Slow(RandomSampler):
            def __iter__(self):
                time.sleep(0.5)
                return super().__iter__()

        data = TensorDataset(torch.ones(800, 2))
        loader = DataLoader(data, batch_size=4, sampler=Slow(data))
        model = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for epoch in range(5):
            for (x,) in loader:
                model(x).sum().backward()
                optimizer.step()
        """
    )
    code, text = with_entry(
        path, tmp_path / "session", "outpace.tune.experiment:begin", time_s=20.0, steps=40
    )
    assert code == 0, text
    found = evidence_of(tmp_path / "session")
    assert not found.run.finished
    assert found.run.total_steps == 1000
    (began,) = (one for one in found.run.recurring if one.name == "input")
    assert (began.every, began.times(1000)) == (200, 5)
    input_s = sum(row.seconds for row in found.ledger if row.name == "input")
    assert 2.5 < input_s < 7.5


@pytest.mark.parametrize("left_by_break", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_what_follows_each_epoch_has_a_row_and_its_line(
    left_by_break: bool, script: Callable[[str], Path], tmp_path: Path
) -> None:
    path = script(
        """
        import time
        import torch
        from torch.utils.data import DataLoader, TensorDataset

        loader = DataLoader(TensorDataset(torch.ones(80, 2)), batch_size=4)
        model = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for epoch in range(50):
            for batch, (x,) in enumerate(loader):
                model(x).sum().backward()
                optimizer.step()
                if batch == LAST:
                    break
            time.sleep(0.2)  # a metric, say
        """.replace("LAST", "19" if left_by_break else "None")
    )
    code, text = with_entry(
        path, tmp_path / "session", "outpace.tune.experiment:begin", time_s=20.0, steps=90
    )
    assert code == 0, text
    found = evidence_of(tmp_path / "session")
    assert found.run.total_steps == 1000
    (came,) = (one for one in found.run.recurring if one.name == "epoch_end")
    assert (came.every, came.times(1000)) == (20, 50)
    (row,) = (row for row in found.ledger if row.name == "epoch_end")
    assert 10.0 < row.seconds < 20.0
    line = path.read_text().splitlines().index("    time.sleep(0.2)  # a metric, say") + 1
    assert row.where == (f"{path.name}:{line}" if not left_by_break else None)
    assert found.now_and_then_s >= row.seconds


JUDGES = """
    import time
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    loader = DataLoader(TensorDataset(torch.ones(80, 2)), batch_size=4)
    held_out = DataLoader(TensorDataset(torch.ones(40, 2)), batch_size=4)
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(50):
        for (x,) in loader:
            model(x).sum().backward()
            optimizer.step()
        time.sleep(0.2)  # a metric of the training
        with torch.set_grad_enabled(GRADIENTS):
            model.train(GRADIENTS)
            for (x,) in held_out:
                time.sleep(0.02)
                model(x)
            model.train()
    """


@pytest.mark.parametrize("gradients", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_validation_begins_where_its_data_are_drawn(
    script: Callable[[str], Path], tmp_path: Path, gradients: bool
) -> None:
    """What comes between is the epoch's end; also before a validation that forgot to be one."""
    path = script(JUDGES.replace("GRADIENTS", str(gradients)))
    code, text = with_entry(
        path, tmp_path / "session", "outpace.tune.experiment:begin", time_s=20.0, steps=90
    )
    assert code == 0, text
    rows = {row.name: row for row in evidence_of(tmp_path / "session").ledger}
    # Ten seconds are slept in each, and others on the machine make both longer.
    assert min(rows[name].seconds for name in ("validation", "epoch_end")) > 8.0
    assert rows["validation"].seconds < 1.7 * rows["epoch_end"].seconds
    line = (
        path.read_text().splitlines().index("    time.sleep(0.2)  # a metric of the training") + 1
    )
    assert rows["epoch_end"].where == f"{path.name}:{line}"


@given(batches=st.integers(8, 60), micro=st.integers(1, 8), epochs=st.integers(1, 40))
def test_epochs_that_end_between_two_steps_are_all_counted(
    batches: int, micro: int, epochs: int
) -> None:
    """As where what is left of an epoch's batches goes into the next one's first step."""
    steps = batches * epochs // micro
    ends = [batches * (k + 1) // micro for k in range(epochs)]
    found = ends_of_epochs(came(*ends), batches / micro)
    for short in range(0, steps + 1, max(1, steps // 7)):
        assert found.times(short) == sum(end <= short for end in ends)
    seen = recurring("validation", came(*ends), steps)
    assert abs(seen.times(steps) - epochs) <= (batches % micro > 0)

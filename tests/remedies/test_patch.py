"""Several remedies in one patch: it does what was measured together, and nothing besides."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from outpace.records.evidence import Evidence
from outpace.records.trial import Settings
from outpace.remedies.patch import patch_of, patched
from tests.remedies.some_evidence import ALL

SCRIPT = """\
import torch
from torch.utils.data import DataLoader
from tqdm import tqdm

class Rows:
    def __getitem__(self, index):
        return torch.zeros(3)

loader = DataLoader(Rows(), batch_size=4, shuffle=True)
for epoch in range(3):
    for x in tqdm(loader, desc="epoch"):
        x = x.to(device)
"""


def rows(workers: int = 0) -> Evidence:
    data = replace(ALL["rows"].input, where="train.py:9", drawn_by="Rows", workers=workers)
    return replace(ALL["rows"], input=data)


def patch(*remedies: tuple[str, Settings], workers: int = 0, script: str = SCRIPT) -> str:
    changed = patched(script, rows(workers), remedies, "train.py")
    compile(changed, "train.py", "exec")
    return changed


AHEAD, WORKERS = "tqdm(Ahead(loader), desc=", "num_workers=2"


@pytest.mark.parametrize(
    ("remedies", "parts"),
    [
        ([("pin_memory", {})], [AHEAD]),
        ([("pin_memory", {}), ("prefetch", {})], [AHEAD]),
        ([("prefetch", {}), ("pin_memory", {})], [AHEAD]),
        ([("fetch_threads", {"threads": 8}), ("pin_memory", {})], [AHEAD, "__getitems__"]),
        ([("pin_memory", {}), ("loader_workers", {"workers": 2})], [WORKERS]),
        ([("loader_workers", {"workers": 2}), ("pin_memory", {})], [WORKERS]),
    ],
)
def test_who_pins_batches_is_who_makes_them(
    remedies: list[tuple[str, Settings]], parts: list[str]
) -> None:
    changed = patch(*remedies)
    assert "pin_memory=True" in changed
    assert "non_blocking=True" in changed
    for part in (AHEAD, WORKERS, "__getitems__"):
        assert changed.count(part) == (part in parts), part


def test_the_scripts_own_workers_pin() -> None:
    script = SCRIPT.replace("batch_size=4", "batch_size=4, num_workers=3")
    assert "Ahead" not in patch(("pin_memory", {}), workers=3, script=script)


@pytest.mark.parametrize(
    ("first", "last", "part"),
    [
        ("prefetch", ("fetch_threads", {"threads": 8}), "__getitems__"),
        ("prefetch", ("loader_workers", {"workers": 2}), WORKERS),
        ("fetch_threads", ("loader_workers", {"workers": 2}), WORKERS),
    ],
)
def test_the_last_says_who_makes_batches(first: str, last: tuple[str, Settings], part: str) -> None:
    room: Settings = {"threads": 8, "compute_threads": 1}
    changed = patch((first, room), last)
    alone = patch(last)
    assert part in alone
    assert "torch.set_num_threads(1)" in changed, "the room that the first made is kept"
    assert changed.count("Ahead(loader)") == alone.count("Ahead(loader)")
    assert changed.count("__getitems__") == alone.count("__getitems__")


def test_a_feed_that_no_diff_can_show_leaves_the_one_before() -> None:
    """As threads that draw samples of a data set which is made elsewhere."""
    script = SCRIPT.replace("class Rows", "class Others").replace("Rows()", "library.Rows()")
    both = patch(("prefetch", {}), ("fetch_threads", {"threads": 8}), script=script)
    assert both == patch(("prefetch", {}), script=script) != script


def test_what_a_diff_is_without_is_told() -> None:
    script = SCRIPT.replace('for x in tqdm(loader, desc="epoch")', "for x in draws(loader)")
    chosen: list[tuple[str, Settings]] = [
        ("prefetch", {"compute_threads": 1}),
        ("flush_denormals", {}),
        ("allocator", {}),
    ]
    found = patch_of(script, rows(), chosen, "train.py")
    assert found.without == ("prefetch", "allocator")
    assert "flush_denormal" in found.text
    superseded: list[tuple[str, Settings]] = [
        ("prefetch", {}),
        ("loader_workers", {"workers": 2}),
    ]
    assert patch_of(SCRIPT, rows(), superseded, "train.py").without == ()


CLASS = """\
from torch.utils.data import DataLoader
train_loader = DataLoader(rows, batch_size=8, shuffle=True, num_workers=2)
val_loader = DataLoader(others, batch_size=8)
class Trainer:
    def __init__(self, train_loader, val_loader):
        self.train_loader, self.val_loader = train_loader, val_loader
    def fit(self, loader):
        for epoch in range(9):
            {asks}
            for x in self.train_loader:
                step(x)
"""


@pytest.mark.parametrize(
    ("name", "asks", "written"),
    [
        ("persistent_workers", "self.train_loader.dataset.set_epoch(epoch)", False),
        ("persistent_workers", "self.val_loader.dataset.set_epoch(epoch)", True),
        ("persistent_workers", "print(epoch)", True),
        ("slice_batches", "print(self.train_loader.batch_size)", False),
        ("slice_batches", "print(loader.batch_size * epoch)", False),
        ("slice_batches", "print(val_loader.batch_size)", True),
        ("cache_samples", "print(self.train_loader.dataset.classes)", False),
        ("cache_samples", "print(self.val_loader.dataset.classes)", True),
    ],
)
def test_what_is_asked_of_a_loader_under_another_name(name: str, asks: str, written: bool) -> None:
    script = CLASS.format(asks=asks)
    facts = rows(2)
    facts = replace(facts, input=replace(facts.input, where="train.py:2"))
    assert (patched(script, facts, [(name, {})], "train.py") != script) is written


NAMED_ALIKE = """\
from torch.utils.data import DataLoader
def make(rows):
    loader = DataLoader(rows, batch_size=64, shuffle=True)
    return loader
def evaluate(model, loader):
    for x in loader:
        model(x)
def step(x):
    model(x).sum().backward()
{name} = make(rows)
for x in {name}:
    step(x)
"""


@pytest.mark.parametrize(("name", "written"), [("train_dl", False), ("loader", True)])
def test_a_loop_of_the_same_name_that_learns_nothing_is_not_the_trainings(
    name: str, written: bool
) -> None:
    script = NAMED_ALIKE.format(name=name)
    facts = rows()
    facts = replace(facts, input=replace(facts.input, where="train.py:3"))
    changed = patched(script, facts, [("prefetch", {})], "train.py")
    assert ("Ahead(loader)" in changed) is written


@pytest.mark.parametrize(
    ("arguments", "written"),
    [("self, device", False), ("self, device, non_blocking=False", True), ("self, d, **how", True)],
)
def test_batches_that_move_themselves_are_asked_what_they_can_be(
    arguments: str, written: bool
) -> None:
    script = SCRIPT.replace(
        "class Rows:", f"class Batch:\n    def to({arguments}):\n        return self\n\nclass Rows:"
    )
    assert ("non_blocking=True" in patch(("pin_memory", {}), script=script)) is written


def test_there_is_no_room_where_there_is_no_feed() -> None:
    """On few threads alone the script would be slower."""
    script = SCRIPT.replace('for x in tqdm(loader, desc="epoch")', "for x in draws(loader)")
    assert patch(("prefetch", {"compute_threads": 1}), script=script) == script


def test_the_last_number_of_threads_is_in_force() -> None:
    several: list[tuple[str, Settings]] = [
        ("threads", {"threads": 3}),
        ("prefetch", {"compute_threads": 7}),
        ("loader_workers", {"workers": 2, "compute_threads": 1}),
    ]
    changed = patch(*several)
    assert changed.count("torch.set_num_threads(") == changed.count("torch.set_num_threads(1)") == 1


def test_a_progress_bar_knows_how_many_batches_come() -> None:
    """Those that are drawn ahead have the loader's length, where it has one."""
    space: dict[str, object] = {}
    definition = patch(("prefetch", {})).partition("class Ahead")[2].partition("\nclass Rows")[0]
    exec(f"from concurrent.futures import ThreadPoolExecutor\nclass Ahead{definition}", space)  # noqa: S102
    ahead = space["Ahead"]
    assert callable(ahead)
    assert len(ahead([1, 2, 3])) == 3
    assert list(ahead([1, 2, 3])) == [1, 2, 3] == list(ahead(iter([1, 2, 3])))
    with pytest.raises(TypeError):
        len(ahead(iter([1])))


def test_workers_that_no_diff_can_show_make_no_room() -> None:
    script = SCRIPT.replace("batch_size=4, shuffle=True", "**settings")
    room: Settings = {"workers": 1, "compute_threads": 1}
    assert patch(("loader_workers", room), script=script) == script


def test_what_a_library_has_made_of_a_loader_is_not_drawn_ahead() -> None:
    """accelerate's tells its last batch by what it has drawn."""
    prepared = "loader, model = accelerator.prepare(loader, model)\nfor epoch"
    script = SCRIPT.replace("for epoch", prepared)
    assert patch(("prefetch", {}), script=script) == script


def test_workers_are_given_up_whatever_ends_the_call() -> None:
    call = (
        "DataLoader(\n    Rows(),\n    batch_size=4,\n    shuffle=True,\n    num_workers=4,\n"
        "    prefetch_factor=2,\n    persistent_workers=True\n)"
    )
    script = SCRIPT.replace("DataLoader(Rows(), batch_size=4, shuffle=True)", call)
    changed = patch(("loader_workers", {"workers": 0}), workers=4, script=script)
    assert "num_workers=0" in changed
    assert "prefetch_factor" not in changed
    assert "persistent_workers" not in changed
    on_one_line = script.replace("True\n)", "True)")
    changed = patch(("loader_workers", {"workers": 0}), workers=4, script=on_one_line)
    assert "num_workers=0)" in changed

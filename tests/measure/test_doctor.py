"""What data loading meets on a machine, and what is said where something is amiss."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.conftest import outpace

from outpace.cli.env import loading_rows
from outpace.measure import starts
from outpace.measure.doctor import DataLoading, SharedMemory, Start, data_loading, hints
from outpace.measure.objects import copied_on_write

GIB = 1024**3
SOUND = DataLoading(
    shared_memory=SharedMemory("/dev/shm", 8 * GIB, 8 * GIB),
    cores=8,
    affinity_cores=8,
    machine_cores=8,
    memory_bytes=64 * GIB,
    machine_memory_bytes=64 * GIB,
    open_files=1024,
    most_open_files=4096,
    sharing="file_descriptor",
    start_method="fork",
)


def amiss(**facts: Any) -> dict[str, str]:
    return hints(msgspec.structs.replace(SOUND, **facts))


def shared(size: int, free: int | None = None) -> SharedMemory:
    return SharedMemory("/dev/shm", size, size if free is None else free)


def test_a_sound_machine_is_left_in_peace() -> None:
    assert amiss() == {}
    assert amiss(shared_memory=None, open_files=None, most_open_files=None) == {}
    assert amiss(cores=4, affinity_cores=4) == {}, "programs ask for the affinity"
    assert amiss(open_files=256, sharing="file_system") == {}


@pytest.mark.parametrize(
    ("fact", "words", "facts"),
    [
        ("shared_memory", "--shm-size", {"shared_memory": shared(64 << 20)}),
        ("shared_memory", "nearly full", {"shared_memory": shared(8 * GIB, GIB // 8)}),
        ("cores", "OMP_NUM_THREADS by 2", {"cores": 2}),
        ("memory_bytes", "counts too", {"memory_bytes": 4 * GIB}),
        ("open_files", "ulimit -n 4096", {"open_files": 256}),
        ("start_method", "persistent_workers", {"start_method": "spawn"}),
    ],
)
def test_what_is_amiss_is_said(fact: str, words: str, facts: dict[str, Any]) -> None:
    found = amiss(**facts)
    assert list(found) == [fact]
    assert words in found[fact]


def test_files_that_may_not_be_raised() -> None:
    assert "ulimit" not in amiss(open_files=256, most_open_files=512)["open_files"]


def test_what_a_start_costs_is_in_the_hint() -> None:
    found = amiss(start_method="spawn", starts={"spawn": Start(2.34)})
    assert "2.3 s" in found["start_method"]


def test_this_machine(tmp_path: Path) -> None:
    found = data_loading(shared=tmp_path)
    told = os.statvfs(tmp_path)
    assert found.shared_memory is not None
    assert found.shared_memory.bytes == told.f_frsize * told.f_blocks
    assert 1 <= found.cores <= found.affinity_cores
    assert found.memory_bytes > 0
    assert found.start_method in ("fork", "spawn", "forkserver")
    assert data_loading(shared=tmp_path / "missing").shared_memory is None


def test_limits_of_control_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(32)), raising=False)
    files = {
        "proc/meminfo": f"MemTotal: {64 * 1024 * 1024} kB\n",
        "proc/self/cgroup": "0::/job\n",
        "sys/fs/cgroup/job/cpu.max": "400000 100000\n",
        "sys/fs/cgroup/job/memory.max": f"{2 * GIB}\n",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    found = data_loading(root=tmp_path)
    assert (found.cores, found.affinity_cores) == (4, 32)
    assert found.memory_bytes == 2 * GIB
    assert "programs see 32" in hints(found)["cores"]


def test_torch_is_not_imported_to_tell_its_way_to_share() -> None:
    code = (
        "import sys; from outpace.measure.doctor import data_loading, sharing_strategy;"
        "data_loading(); assert 'torch' not in sys.modules; early = sharing_strategy();"
        "import torch.multiprocessing; assert early == sharing_strategy();"
        "torch.multiprocessing.set_sharing_strategy('file_system');"
        "assert sharing_strategy() == 'file_system'"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_script_s_choice_of_a_start_method_counts() -> None:
    code = (
        "import multiprocessing as m; from outpace.measure.doctor import data_loading;"
        "default = data_loading().start_method; m.set_start_method('spawn');"
        "assert data_loading().start_method == 'spawn';"
        "assert default == m.get_all_start_methods()[0]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_starts_that_cannot_be_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert starts.starts() == {}


def test_env_tells_it(tmp_path: Path) -> None:
    """With ceilings that are known already: measuring them is another's test."""
    found = outpace("env", cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    rows = {line[:16].strip() for line in found.stdout.splitlines()}
    assert {"shared memory", "cores to use", "memory limit", "open files", "workers start"} <= rows


def test_rows_of_a_machine_with_limits() -> None:
    limited = msgspec.structs.replace(
        SOUND, cores=4, machine_cores=64, memory_bytes=4 * GIB, shared_memory=shared(64 << 20)
    )
    rows = {name: text for _, name, text in loading_rows(limited, asked=False)}
    assert rows["cores to use"] == "4, of the machine's 64, by the cgroup's quota"
    assert rows["memory limit"] == "4.0 GiB by the cgroup, of the machine's 64.0 GiB"
    assert rows["shared memory"].startswith("64 MiB in /dev/shm")
    assert "--start" in rows["workers start"]
    measured = msgspec.structs.replace(SOUND, starts={"fork": Start(0.008, 2 << 20)})
    assert loading_rows(measured, asked=True)[-1][-1] == (
        "by fork; one costs by fork 8 ms and 2 MiB of its own"
    )


def test_env_measures_starts_where_asked(tmp_path: Path) -> None:
    found = outpace("env", "--start", "--json", cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    facts = json.loads(found.stdout)
    assert facts["fingerprint"], "what was there before is still there"
    loading = msgspec.convert(facts["data_loading"], DataLoading)
    assert {"fork", "spawn"} <= set(loading.starts)
    assert all(start.seconds > 0.0 for start in loading.starts.values())
    assert "starting worker processes" in found.stderr


# --- objects that are copied on write ----------------------------------------------------------------


class Holder:
    """A data set of what it is given."""

    def __init__(self, **things: Any) -> None:
        self.__dict__.update(things)


def paths(count: int) -> list[str]:
    return [f"photos/2024/holiday/picture-{i:07d}.jpg" for i in range(count)]


def size(text: str) -> int:
    return -(-sys.getsizeof(text) // 16) * 16


def test_a_list_of_paths_is_copied() -> None:
    names = paths(200_000)
    found = copied_on_write(Holder(names=names, root="photos"))
    assert found.objects == pytest.approx(200_000, rel=0.01)
    assert found.bytes == pytest.approx(200_000 * size(names[0]), rel=0.02)
    assert found.holder == ".names"


def test_an_array_of_paths_is_not() -> None:
    found = copied_on_write(Holder(names=np.array(paths(200_000)), offsets=np.arange(10**6)))
    assert found.objects < 20


def test_an_array_of_objects_is() -> None:
    found = copied_on_write(Holder(names=np.array(paths(200_000), dtype=object)))
    assert found.objects == pytest.approx(200_000, rel=0.01)


def test_samples_share_their_labels() -> None:
    """As ImageFolder has it: (path, class), where a class is one small object for all."""
    names = paths(100_000)
    samples = [(name, index % 10) for index, name in enumerate(names)]
    found = copied_on_write(Holder(samples=samples, names=("cat", "dog")))
    assert found.objects == pytest.approx(200_000, rel=0.01)
    assert found.holder == ".samples"


def test_objects_of_objects() -> None:
    class Slotted:
        __slots__ = ("name",)

        def __init__(self, name: str) -> None:
            self.name = name

    names = paths(90_000)
    table = {key: [Slotted(name) for name in names[key::3]] for key in range(3)}
    found = copied_on_write(Holder(inner=Holder(table=table)), seconds=60.0)
    assert found.objects == pytest.approx(180_000, rel=0.02)
    assert found.holder == ".inner.table"


def test_what_a_function_closes_over_is_found_and_its_module_is_not() -> None:
    names = paths(50_000)
    found = copied_on_write(Holder(draw=lambda index: names[index]))
    assert found.objects == pytest.approx(50_000, rel=0.01)


def test_large_objects_count_by_their_first_page() -> None:
    found = copied_on_write([os.urandom(1 << 16) for _ in range(100)])
    assert found.bytes == pytest.approx(100 * 4096, rel=0.01)


def test_circles_end() -> None:
    one: list[Any] = ["text"]
    one.append(one)
    assert copied_on_write(one).objects == 2


class Sulky:
    """Fails whatever is asked of it."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)


def test_objects_that_cannot_be_looked_into_are_passed_over() -> None:
    found = copied_on_write(Holder(sulky=Sulky(), names=paths(1000)))
    assert found.objects == pytest.approx(1000, abs=5)


def test_a_short_look_stands_for_all() -> None:
    table = {key: paths(300) for key in range(900)}
    whole = copied_on_write(Holder(table=table), seconds=60.0)
    assert whole.objects == pytest.approx(270_000, rel=0.02)
    some = copied_on_write(Holder(table=table), seconds=0.02)
    assert some.objects == pytest.approx(whole.objects, rel=0.25)


def test_a_table_of_text() -> None:
    pandas = pytest.importorskip("pandas")
    column = pandas.Series(paths(60_000), dtype=object)
    frame = pandas.DataFrame({"name": column, "price": np.arange(60_000.0)})
    assert copied_on_write(Holder(frame=frame)).objects == pytest.approx(60_000, rel=0.02)
    numbers = frame[["price"]].copy()
    assert copied_on_write(Holder(frame=numbers)).objects < 500


def test_torch_is_not_imported() -> None:
    code = (
        "import sys; from outpace.measure import doctor, objects, starts;"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0

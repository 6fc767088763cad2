"""``outpace pack``: what it says, what it hands to programs, and its exit codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from outpace.cli.pack import command
from outpace.errors import DataError, UsageError
from tests.conftest import Outpace
from tests.serve.test_tars import tar


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for i in range(30):
        path = tmp_path / f"data/{'cat' if i % 2 else 'dog'}/{i:02}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes([i]) * 5000)
    return tmp_path


def said(*words: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr; our own errors pass through."""
    done = CliRunner().invoke(command, words, standalone_mode=False, catch_exceptions=False)
    return done.return_value, done.stdout, done.stderr


def test_what_a_person_reads() -> None:
    code, out, err = said("data", "packed")
    assert code == 0
    assert out == "packed: 30 records, 147 KiB as records\n  exact: samples stay as they are\n"
    forecast = "outpace: 30 samples, about 147 KiB as records (files differ in size); "
    assert err.startswith(forecast)
    assert err.endswith("are free\noutpace: packing\n")
    code, out, err = said("--verify", "packed")
    assert code == 0
    assert out == "30 records, 147 KiB: all checksums right; the source is as it was\n"


def test_columns_that_lose_much_are_named(here: Path) -> None:
    rows = "".join(f"{1_700_000_000 + i}.5,{i / 64}\n" for i in range(50))
    (here / "t.csv").write_text(f"time,x\n{rows}")
    _, out, _ = said("t.csv", "exact")
    assert "exact: samples stay as they are" in out
    _, out, _ = said("--float32", "t.csv", "narrow")
    assert "numerics: floats of 64 bits are rounded to 32: the same bits only where a script" in out
    assert "much is lost of 'time' (up to " in out
    assert "'x'" not in out


def test_what_a_program_reads() -> None:
    code, out, _ = said("--json", "--quiet", "data", "packed", "--verify")
    found = json.loads(out)
    assert code == 0
    assert found["schema"] == 1
    assert found["folder"] == str(Path("packed").absolute())
    assert found["packed"] == json.loads(Path("packed/meta.json").read_text())
    assert found["verified"] == {
        "right": True, "damaged": [], "missing": [], "changed": [], "source": "same",
    }  # fmt: skip


def test_what_the_users_code_prints_is_not_in_the_document(here: Path, in_process: Outpace) -> None:
    (here / "noisy.py").write_text(
        "import os\nprint('noise')\nos.system('echo more')\n"
        "class Numbers:\n    def __len__(self): return 3\n    def __getitem__(self, i): return i\n"
    )
    done = in_process("pack", "--json", "-q", "noisy:Numbers", "packed", cwd=here)
    assert json.loads(done.stdout)["packed"]["count"] == 3
    assert sorted(done.stderr.split()) == ["more", "noise"]


def test_shards_that_would_keep_readers_waiting_are_told_of() -> None:
    for shard in range(9):
        tar(Path(f"{shard}.tar"), {f"{shard}-{i}.bin": b"x" for i in range(10)})
    code, out, _ = said(*(f"{shard}.tar" for shard in range(9)), "index")
    assert code == 0
    assert "8 readers, the shards would give one 1.78 times the mean" in out
    _, out, _ = said(*(f"{shard}.tar" for shard in range(8)), "even")
    assert "readers" not in out


def test_quiet_says_the_result_only() -> None:
    assert said("-q", "data", "packed")[2] == ""


def test_what_is_wrong_is_told_and_is_exit_code_2() -> None:
    said("data", "packed")
    data = bytearray(Path("packed/records.bin").read_bytes())
    for record in (3, 4, 5, 6):
        data[5050 * record] ^= 1
    Path("packed/records.bin").write_bytes(data)
    for i in range(0, 8, 2):
        os.utime(f"data/dog/{i:02}.bin", ns=(9, 9))
    code, out, err = said("--verify", "packed")
    assert (code, out) == (2, "")
    assert "checksums are wrong of 4 parts of packed: record 3, record 4, record 5, ..." in err
    assert "4 of 30 files changed since packing: dog/00.bin, dog/02.bin, dog/04.bin, ..." in err
    assert "hint: pack it anew: outpace pack --force" in err
    code, out, _ = said("--verify", "packed", "--json")
    assert code == 2
    assert len(json.loads(out)["verified"]["changed"]) == 4


def test_tars_that_are_not_where_they_were(here: Path) -> None:
    for shard in "ab":
        tar(Path(f"{shard}.tar"), {"1.bin": b"x"})
    said("a.tar", "b.tar", "index")
    Path("b.tar").rename("c.tar")
    code, out, err = said("--verify", "index")
    assert (code, out) == (2, "")
    assert f"1 of 2 tars cannot be opened where they were: {here}/b.tar" in err
    assert "hint: put them back, or index them anew" in err
    assert "checksums are wrong" not in err
    assert "changed" not in err


def test_skipped_ones_are_listed() -> None:
    Path("data/cat/gone.bin").symlink_to("nowhere")
    with pytest.raises(DataError, match=r"cat/gone\.bin: No such file"):
        said("data", "packed")
    code, out, _ = said("--on-error", "skip", "data", "packed")
    assert code == 0
    assert "1 source left out" in out
    assert f"    {Path('data/cat/gone.bin')}: No such file or directory\n" in out


def test_names_that_no_terminal_is_to_see_are_told_without_harm(here: Path) -> None:
    odd = os.fsdecode(b"data/cat/pet\xe9\x1b.bin")
    os.symlink("nowhere", odd)
    code, out, _ = said("--on-error", "skip", "data", "packed")
    assert code == 0
    assert "pet··.bin: No such file" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["data"], "packed to where"),
        (["data", "packed", "--quality", "80"], "--quality needs --resize"),
        (["--verify", "--resize", "256", "packed"], "--resize needs SOURCE and DEST"),
        (["--verify", "--as", "records", "packed"], "--as needs SOURCE and DEST"),
        (["--verify", "--on-error", "skip", "packed"], "--on-error needs SOURCE and DEST"),
        (["--verify", "--force", "packed"], "--force needs SOURCE and DEST"),
        (["data", "data", "packed"], "several sources are to be tars"),
    ],
)
def test_what_makes_no_sense(words: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        said(*words)


def test_a_projects_quality_is_for_what_is_packed_in_another_size(
    here: Path, in_process: Outpace
) -> None:
    (here / "pyproject.toml").write_text("[tool.outpace.pack]\nquality = 80\n")
    assert in_process("pack", "data", "packed", cwd=here).returncode == 0
    assert in_process("pack", "--verify", "packed", cwd=here).returncode == 0


def test_a_csv() -> None:
    pytest.importorskip("pyarrow")
    Path("t.csv").write_text("a,b\n" + "1,2.5\n" * 100)
    code, out, err = said("t.csv", "packed")
    assert code == 0, err
    assert out.startswith("packed: 100 rows, ")


def test_an_error_has_two_lines(here: Path, in_process: Outpace) -> None:
    done = in_process("pack", "nowhere", "packed", cwd=here)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "error: there is no nowhere\nhint: name a folder, a tar, a table, or module:name\n"
    )


SLOW = """
import sys, time
from outpace import cli
from outpace.serve import files, pack, packing

packing.EVERY_S, pack.CHUNK_MOST = 0, 2
real = files.Files.__getitem__
def slow(self, index):
    time.sleep(0.02)
    return real(self, index)
if sys.argv[1] == "slow":
    files.Files.__getitem__ = slow
sys.argv = ["outpace", "pack", "data", "packed"]
cli.main()
"""


def test_interrupted_it_goes_on(here: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", SLOW, "slow"], cwd=here, stderr=subprocess.PIPE, text=True
    )
    journal = here / ".packed.partial/journal.json"
    deadline = time.monotonic() + 60
    while not (journal.exists() and json.loads(journal.read_text())["done"] >= 4):
        assert child.poll() is None
        assert time.monotonic() < deadline, "it did not begin"
        time.sleep(0.01)
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=20)
    assert child.returncode == 130, err
    assert "the same command goes on" in err
    assert "Traceback" not in err
    assert not (here / "packed").exists()
    done: Any = subprocess.run(
        [sys.executable, "-c", SLOW, "fast"], cwd=here, capture_output=True, text=True
    )
    assert done.returncode == 0
    assert "goes on after" in done.stderr
    assert done.stdout.startswith("packed: 30 records")

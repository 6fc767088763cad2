"""``outpace plan``: what it says, what it hands to programs, and what it refuses."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest
from click.testing import CliRunner

from outpace.cli.plan import command
from outpace.errors import OutpaceError, SessionError, UsageError
from outpace.records.files import write_json
from outpace.records.session import Session
from tests.report.report_sessions import images_diagnosed
from tests.report.report_trainings import reached


def asked(*words: str) -> tuple[int, str]:
    """Exit code and output; our own errors pass through."""
    done = CliRunner().invoke(command, words, standalone_mode=False, catch_exceptions=False)
    return done.return_value, done.output


def document(*words: str) -> dict[str, Any]:
    code, printed = asked(*words, "--json")
    assert code in (0, 3)
    return dict(json.loads(printed))


def test_a_budget_shows_its_arithmetic() -> None:
    code, printed = asked("--deadline", "24h", "--reserve", "deploy=2h", "--reserve", "ab-test=4h")
    assert code == 0
    assert printed == "24h less deploy 2h less ab-test 4h: 18h\n"


def test_only_what_was_asked_is_answered() -> None:
    found = document("--deadline", "24h", "--reserve", "deploy=2h")
    assert found == {
        "schema": 1,
        "budget": {"deadline_s": 86400.0, "reserves": {"deploy": 7200.0}, "available_s": 79200.0},
    }
    found = document("--flops", "5.76e23")
    assert sorted(found) == ["flops", "law", "optimal", "schema"]
    assert found["law"] == "besiroglu"
    assert found["optimal"]["parameters"] == pytest.approx(72.2e9, rel=0.01)


def test_a_device_for_the_time_there_is() -> None:
    found = document(
        *("--device", "h100", "--count", "64", "--mfu", "0.5"),
        *("--deadline", "24h", "--reserve", "deploy=6h"),
    )
    assert found["flops"]["total"] == pytest.approx(64 * 0.5 * 989e12 * 18 * 3600)
    assert found["flops"]["usd"] == pytest.approx(64 * 18 * 6.88)
    _, printed = asked("--device", "h100", "--hours", "1")
    assert "; $6.88 (AWS us-east-1 on demand (8-GPU node / 8), 2025-11-30)" in printed


def test_compute_on_a_device_takes_its_time() -> None:
    words = ("--flops", "5.76e23", "--device", "h100", "--count", "64")
    found = document(*words, "--deadline", "24h", "--usd-per-hour", "2")
    seconds = 5.76e23 / (64 * 0.4 * 989e12)
    limits = {"low": 0.4 / 0.56 * seconds, "high": 0.4 / 0.21 * seconds}
    assert found["forecast"]["finish_s"] == pytest.approx({"estimate": seconds, **limits})
    assert found["forecast"]["fits"] is False
    code, printed = asked(*words, "--deadline", "24h", "--usd-per-hour", "2")
    assert code == 3
    assert "5.76e+23 FLOPs take" in printed
    assert "which does not fit" in printed
    assert f"; ${2 * 64 * seconds / 3600:,.0f} (your price)" in printed
    assert asked(*words, "--deadline", "400d")[0] == 0


def test_a_training_that_does_not_fit() -> None:
    words = ("--device", "h100", "--count", "64", "--params", "7B", "--tokens", "140B")
    code, printed = asked(*words, "--deadline", "1d")
    assert code == 3
    assert "which does not fit" in printed
    assert not document(*words, "--deadline", "1d")["forecast"]["fits"]
    assert asked(*words, "--deadline", "3d")[0] == 0
    assert asked(*words, "--deadline", "1d", "--hours", "72")[0] == 3
    assert asked(*words, "--deadline", "3d", "--hours", "24")[0] == 3
    code, printed = asked(*words, "--deadline", "3d", "--cost", "5000")
    assert code == 3
    assert "which is too dear" in printed
    found = document(*words, "--deadline", "3d", "--cost", "5000")["forecast"]
    assert found["usd"]["estimate"] > found["cost"] == 5000
    assert found["price"].startswith("AWS")


@pytest.mark.parametrize("text", ["much", "-5", "0usd", "5 eur"])
def test_no_amount_of_money(text: str) -> None:
    with pytest.raises(click.UsageError, match="is no amount of money; write 200usd"):
        asked("--device", "h100", "--hours", "1", f"--cost={text}")


def test_amounts_of_money() -> None:
    words = (
        "--device",
        "h100",
        "--params",
        "7B",
        "--tokens",
        "140B",
        "--deadline",
        "400d",
        "--cost",
    )
    costs = [document(*words, text)["forecast"]["cost"] for text in ("$200", "200usd", "200")]
    assert costs == [200.0] * 3


def test_a_format_has_the_rate_of_the_device_for_it() -> None:
    words = ("--device", "h100", "--hours", "1")
    whole = document(*words)["flops"]["total"]
    assert document(*words, "--dtype", "bf16")["flops"]["total"] == whole
    assert document(*words, "--dtype", "fp8")["flops"]["total"] == pytest.approx(
        2 * whole, rel=0.01
    )


def test_compute_that_is_wasted_has_its_price() -> None:
    words = ("--params", "70B", "--tokens", "140B", "--device", "h100", "--count", "64")
    found = document(*words, "--hours", "1000")
    wasted, usd = found["given"]["wasted"], found["forecast"]["usd"]["estimate"]
    assert found["given"]["wasted_usd"] == pytest.approx(wasted * usd)
    _, printed = asked(*words, "--hours", "1000")
    assert f"{100 * wasted:.0f} % of the compute is wasted (${wasted * usd:,.0f})" in printed
    assert document(*words[:4])["given"]["wasted_usd"] is None


def test_repeated_data_are_worth_less() -> None:
    _, printed = asked("--params", "1B", "--tokens", "40B", "--unique-tokens", "10B")
    assert "4 epochs of 10B tokens, worth 37.3B fresh ones" in printed
    assert "a parameter), all of them fresh, loss" in printed
    given = document("--params", "1B", "--tokens", "40B", "--unique-tokens", "10B")["given"]
    assert given["tokens"] == 40e9
    assert given["fresh_tokens"] == pytest.approx(37.3e9, rel=0.01)


def test_a_model_that_is_served() -> None:
    _, printed = asked("--params", "175B", "--tokens", "300B", "--served-tokens", "10T")
    assert "to serve 10T tokens at the same loss" in printed
    found = document("--flops", "1e21", "--served-tokens", "10T")
    assert found["served"]["parameters"] < found["optimal"]["parameters"]
    assert found["served"]["tokens"] > found["optimal"]["tokens"]


def test_a_law_of_ones_own(tmp_path: Path) -> None:
    from outpace.plan.scaling import LAWS, Parametric

    law = LAWS["besiroglu"]
    assert isinstance(law, Parametric)
    rows = ["parameters,tokens,loss"]
    for n in (1e7, 3e7, 1e8):
        rows += [f"{n},{d},{law.loss(n, d)}" for d in (2e8, 1e9, 5e9)]
    (tmp_path / "runs.csv").write_text("\n".join(rows))
    found = document("--fit", str(tmp_path / "runs.csv"), "--flops", "1e21")
    assert found["law"] == "fitted"
    assert found["fit"]["runs"] == 9
    assert found["fit"]["alpha"]["estimate"] == pytest.approx(law.alpha, rel=0.01)
    assert found["optimal"]["parameters"] == pytest.approx(law.parameters(1e21), rel=0.02)
    loss = document(*("--fit", str(tmp_path / "runs.csv"), "--params", "1B", "--tokens", "20B"))[
        "given"
    ]["loss"]
    assert loss["low"] < loss["estimate"] < loss["high"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "nothing was asked"),
        (("--reserve", "deploy=2h"), "--reserve needs a time to take it from"),
        (("--deadline", "2h", "--reserve", "deploy=2h"), "no time is left"),
        (("--deadline", "1h", "--by", "06:00"), "both say when"),
        (("--deadline", "9h", "--reserve", "a=1h", "--reserve", "a=2h"), "reserved twice"),
        (("--by", "2020-01-01T00:00"), "is past"),
        (("--by", "soon"), "is no time"),
        (("--by", "0001-01-01"), "is no time that a clock here shows"),
        (("--params", "70B"), "--tokens is missing"),
        (("--tokens", "70B"), "--params is missing"),
        (("--device", "h100"), "for how long"),
        (("--device", "a100", "--hours", "1"), "may be any of"),
        (("--device", "abacus", "--hours", "1"), "no device that is known"),
        (("--device", "t4", "--hours", "1"), "no bf16 rate is known of T4"),
        (("--flops", "0"), "train nothing"),
        (("--flops", "1e21", "--deadline", "1h"), "how fast is it computed?"),
        (("--params", "1B", "--tokens", "20B", "--hours", "1"), "how fast is it computed?"),
        (("--flops", "1e21", "--unique-tokens", "1B"), "--unique-tokens are seen again"),
        (("--flops", "1e21", "--params", "1B", "--tokens", "20B"), "each say how much"),
        (("--flops", "1e21", "--epochs", "3"), "--epochs needs a script"),
        (("--memory", "--deadline", "1h", "train.py"), "--deadline has nothing to do with memory"),
        (("--memory", "--by", "06:00", "train.py"), "--by has nothing to do with memory"),
        (("--memory", "--cost", "200usd", "train.py"), "--cost has nothing to do with memory"),
        (("--objective", "cost", "train.py"), "what does an hour of this machine cost?"),
        (("--objective", "scale", "train.py"), "in what time is most to be trained?"),
        (("--params", "1B", "--tokens", "1T", "--unique-tokens", "0"), "--unique-tokens 0 is"),
        (("--flops", "1e21", "train.py"), "--flops cannot be combined with a script"),
        (("--hours", "3", "train.py"), "--hours cannot be combined with a script"),
        (("--device", "abacus", "train.py"), "no device that is known"),
        (("--served-tokens", "1T", "train.py"), "--served-tokens cannot be combined with a script"),
        (("--cost", "200usd", "train.py"), "what does an hour of this machine cost?"),
        (("--deadline", "1h", "--reserve", "a=1h", "train.py"), "no time is left"),
        (("--flops", "1e21", "--law", "hoffmann-1", "--served-tokens", "1T"), "predicts no loss"),
        (("--flops", "1e21", "--mfu", "0.3"), "--mfu needs --device"),
        (("--flops", "1e21", "--count", "8"), "--count needs --device"),
        (("--flops", "1e21", "--dtype", "fp8"), "--dtype needs --device"),
        (("--deadline", "5h", "--usd-per-hour", "4"), "--usd-per-hour needs --device"),
        (("--deadline", "5h", "--objective", "cost"), "--objective needs a script"),
        (("--flops", "1e21", "--time", "30s"), "--time needs a script"),
        (("--mfu", "0.3", "train.py"), "--mfu cannot be combined with a script"),
        (("--law", "hoffmann-1", "train.py"), "--law cannot be combined with a script"),
        (("--deadline", "24h", "--cost", "200usd"), "--cost needs --device, or a script"),
        (("--deadline", "24h", "--hours", "3"), "--hours needs --device"),
        (("--deadline", "24h", "--served-tokens", "1T"), "--served-tokens needs a model"),
        (("--deadline", "24h", "--law", "hoffmann-1"), "--law needs an amount of compute"),
        (("--memory", "--epochs", "3", "train.py"), "--epochs has nothing to do with memory"),
        (("--memory", "--time", "30s", "train.py"), "--time has nothing to do with memory"),
        (("--memory", "--objective", "scale", "train.py"), "--objective has nothing to do with"),
    ],
)
def test_what_cannot_be_answered(words: tuple[str, ...], said: str) -> None:
    with pytest.raises(UsageError) as told:
        asked(*words)
    assert said in told.value.message


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--deadline", "tomorrow"), "'tomorrow' is not a duration"),
        (("--deadline", "9h", "--reserve", "deploy=-2h"), "'-2h' is not a duration"),
        (("--deadline", "9h", "--reserve", "2h"), "'2h' names nothing"),
        (("--flops", "much"), "'much' is not a count"),
        (("--device", "h100", "--hours", "1", "--mfu", "1.5"), "--mfu"),
        (("--law", "moore"), "--law"),
    ],
)
def test_words_that_are_not_understood(words: tuple[str, ...], said: str) -> None:
    with pytest.raises(click.UsageError) as told:
        asked(*words)
    assert said in told.value.format_message()


SCRIPT = """
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    data = TensorDataset(torch.randn(256, 16), torch.randint(0, 4, (256,)))
    model = torch.nn.Linear(16, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for epoch in range({epochs}):
        for x, y in DataLoader(data, batch_size=8):
            loss = torch.nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    print("done")
    """


@pytest.mark.parametrize(
    ("deadline", "code"), [pytest.param("900h", 0, marks=pytest.mark.slow), ("50s", 3)]
)
def test_a_script(script: Callable[..., Path], deadline: str, code: int) -> None:
    """A million steps of a millisecond: more than a minute, and at most days on a busy machine."""
    path = script(SCRIPT.replace("{epochs}", str(1_000_000 // 32)))
    line = [sys.executable, "-m", "outpace", "plan", "--json", "--quiet", "--time", "3s"]
    done = subprocess.run(
        [*line, "--deadline", deadline, "--usd-per-hour", "2", str(path)],
        cwd=path.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    found = json.loads(done.stdout)
    finish = found["forecast"]["finish_s"]
    assert 60 < finish["low"] < finish["estimate"] < finish["high"] < 900 * 3600
    assert found["forecast"]["fits"] == (code == 0)
    assert sorted(found) == ["budget", "flops", "forecast", "options", "schema"]
    assert 0 < found["flops"]["mfu"] <= found["flops"]["hfu"] < 1
    assert any("% of the steps" in o["change"] for o in found["options"]) == (code == 3)


@pytest.mark.parametrize("asked", [("--time", "2s"), ("--memory",)])
def test_a_script_that_fails(script: Callable[..., Path], asked: tuple[str, ...]) -> None:
    path = script("import torch\nraise SystemExit(7)\n")
    line = [sys.executable, "-m", "outpace", "plan", "--quiet", *asked, str(path)]
    done = subprocess.run(
        [*line[:4], "--json", *line[4:]],
        cwd=path.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 7
    assert "`outpace diagnose`" in done.stderr
    assert json.loads(done.stdout)["exit_code"] == 7


MEMORY = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
loader = DataLoader(TensorDataset(torch.randn(256, 512), torch.randint(10, (256,))), batch_size=64)
model = nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 10))
optimizer = torch.optim.AdamW(model.parameters())
for epoch in range(50):
    for x, y in loader:
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
torch.save(model.state_dict(), "model.pt")
"""


def memory_of(path: Path, *words: str) -> tuple[int, dict[str, Any]]:
    line = [sys.executable, "-m", "outpace", "plan", "--memory", "--json", "--quiet", *words]
    done = subprocess.run(
        [*line, str(path)], cwd=path.parent, capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, 3), done.stderr
    return done.returncode, dict(json.loads(done.stdout))


def test_the_memory_of_a_script(script: Callable[..., Path]) -> None:
    path = script(MEMORY)
    code, own = memory_of(path)
    assert code == 0
    memory = own["memory"]
    weights = 4 * (512 * 2048 + 2048 + 2048 * 10 + 10)
    assert memory["how"] == "measured"
    assert memory["batch"] == 64
    assert memory["by_kind"]["parameters"] == weights
    assert memory["by_kind"]["optimizer"] == pytest.approx(2 * weights, rel=0.01)
    assert memory["peak_bytes"] > 4 * weights
    assert [layer["name"] for layer in memory["layers"]] == ["0", "1", "2"]
    assert memory["largest_batch"] > 1000
    forward = 2 * 64 * (512 * 2048 + 2048 * 10)
    assert own["flops"]["forward"] == forward
    # The first layer's input needs no gradient.
    assert own["flops"]["hardware"] == 3 * forward - 2 * 64 * 512 * 2048
    assert not path.with_name("model.pt").exists()
    code, more = memory_of(path, "--batch", "8000000", "--device", "l4")
    assert code == 3
    assert more["memory"]["fits"] is False
    assert more["memory"]["how"] == "predicted"
    assert more["memory"]["peak_bytes"] > 1000 * memory["peak_bytes"]


def test_the_memory_of_a_module_is_told_by_its_name(script: Callable[..., Path]) -> None:
    path = script(MEMORY)
    line = [sys.executable, "-m", "outpace", "plan", "--memory", "--quiet", "-m", "train"]
    done = subprocess.run(line, cwd=path.parent, capture_output=True, text=True, check=False)
    assert "a step of train with 64 samples takes" in done.stderr


def test_an_interrupt_while_memory_is_measured(script: Callable[..., Path]) -> None:
    path = script("import torch, time\nopen('begun', 'w').close()\ntime.sleep(60)\n")
    child = subprocess.Popen(
        [sys.executable, "-m", "outpace", "plan", "--memory", "--json", "--quiet", str(path)],
        cwd=path.parent,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    begun = time.monotonic()
    while not _begun(path.parent):
        assert time.monotonic() - begun < 60, "it did not begin"
        time.sleep(0.1)
    os.killpg(child.pid, signal.SIGINT)
    out, _ = child.communicate(timeout=60)
    assert (child.returncode, json.loads(out)["outcome"]) == (130, "interrupted")


def _begun(folder: Path) -> bool:
    """Whether the script has written its file, into the scratch folder of a run that is thrown away."""
    return any(folder.rglob("begun"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--memory"], "--memory needs a script"),
        (["--batch", "4", "--flops", "1e20"], "heeded with --memory alone"),
        (["--memory", "--device", "l44", "x.py"], "'l44' is no device"),
        (["--memory", "x.py"], "there is no file x.py"),
        (["--steps", "9", "--epochs", "2", "x.py"], "--steps and --epochs each say how long"),
        (["--flops", "1e20", "-o", "plan.txt"], "does not say what to write"),
    ],
)
def test_questions_that_cannot_be_answered(words: list[str], message: str) -> None:
    with pytest.raises(OutpaceError, match=message):
        asked(*words)


def test_a_law_and_runs_to_fit_one_to(tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_text("parameters,tokens,loss\n")
    with pytest.raises(UsageError, match="--law and --fit each choose a law"):
        asked("--fit", str(tmp_path / "runs.csv"), "--law", "hoffmann-3")


def test_money_is_turned_into_hours() -> None:
    found = document("--device", "h100", "--count", "8", "--cost", "1000usd")
    assert found["flops"]["usd"] == pytest.approx(1000, rel=1e-6)
    with pytest.raises(UsageError, match="no price"):
        asked("--device", "MI300X", "--cost", "1000usd")
    words = ("--count", "8", "--cost", "10000usd", "--usd-per-hour", "2.5")
    _, printed = asked("--device", "h100", *words)
    assert "8 H100-SXM for 500h" in printed
    assert asked("--device", "MI300X", *words)[0] == 0


def test_a_page_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("outpace.report.write_text", full)
    with pytest.raises(UsageError, match="cannot be written: No space left"):
        asked("--flops", "5.76e23", "-o", str(tmp_path / "plan.html"))


def test_a_page(tmp_path: Path) -> None:
    path = tmp_path / "plan.html"
    assert asked("--flops", "5.76e23", "-o", str(path))[0] == 0
    assert "Lines of equal loss" in path.read_text()
    path.write_text("mine")
    with pytest.raises(UsageError, match="is there already"):
        asked("--flops", "5.76e23", "-o", str(path))
    assert asked("--flops", "5.76e23", "--force", "-o", str(path))[0] == 0
    assert path.read_text() != "mine"


def test_a_session_is_asked_again_without_measuring(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("outpace.cli.plan.measure", lambda *_: pytest.fail("it was measured anew"))
    write_json(tmp_path / "session.json", images_diagnosed())
    code, printed = asked("--deadline", "8h", "--steps", "9000", str(tmp_path))
    assert code == 0
    assert "9,000 steps" in printed
    with pytest.raises(UsageError, match="--deadline 8h came after the folder"):
        asked(str(tmp_path), "--deadline", "8h")
    with pytest.raises(UsageError, match="--time needs a script"):
        asked("--time", "30s", str(tmp_path))
    short = msgspec.structs.replace(images_diagnosed(), outcome="interrupted")
    write_json(tmp_path / "session.json", short)
    with pytest.raises(SessionError, match="was cut short before all was measured"):
        asked("--deadline", "8h", str(tmp_path))
    write_json(tmp_path / "session.json", reached())
    with pytest.raises(SessionError, match="whose steps were not measured"):
        asked("--deadline", "8h", str(tmp_path))


@pytest.mark.parametrize(
    ("measured_at", "code", "said"),
    [("05:59:00", 0, "1m to the deadline"), ("06:01:00", 3, "0s to the deadline")],
)
def test_a_time_of_day_that_comes_while_the_script_is_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, measured_at: str, code: int, said: str
) -> None:
    """At one minute past it the next 06:00 is tomorrow's, which is not what was asked about."""
    clock = [datetime.fromisoformat("2026-05-04T05:58")]

    class Moved(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:
            return clock[0]

    def measure(*_: Any) -> Session:
        clock[0] = datetime.fromisoformat(f"2026-05-04T{measured_at}")
        return images_diagnosed()

    monkeypatch.setattr("outpace.cli.budgets.datetime", Moved)
    monkeypatch.setattr(time, "time", lambda: Moved.now().timestamp())
    monkeypatch.setattr("outpace.cli.plan.measure", measure)
    path = tmp_path / "train.py"
    path.touch()
    told, printed = asked("--by", "06:00", "--steps", "2", str(path))
    assert said in printed
    assert told == code, printed

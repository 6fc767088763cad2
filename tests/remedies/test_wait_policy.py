"""Sleeping while waiting: predicted to pay beside makers of batches, written into the script."""

from __future__ import annotations

import msgspec
import pytest

from outpace.records.evidence import Evidence
from outpace.remedies.model import step_time
from outpace.remedies.prefetch import Prefetch
from outpace.remedies.room import edit_room
from outpace.remedies.wait_policy import WaitPolicy
from outpace.seams.setup import AS_IS
from tests.remedies.some_evidence import IMAGES


def on_threads(threads: int) -> Evidence:
    compute = msgspec.structs.replace(IMAGES.compute, threads=threads)
    machine = msgspec.structs.replace(IMAGES.machine, cores=2)
    return msgspec.structs.replace(IMAGES, compute=compute, machine=machine)


def test_overlap_on_full_cores_comes_with_sleep() -> None:
    remedy = Prefetch()
    settings = remedy.settings(on_threads(2))
    assert settings["passive"] is True
    assert remedy.setup(AS_IS, settings).passive
    assert "passive" not in remedy.settings(on_threads(1))


def test_spinning_beside_makers_is_predicted_to_cost() -> None:
    facts = on_threads(2)
    ahead = Prefetch().setup(AS_IS, {"batches": 3})
    asleep_ahead = WaitPolicy().setup(ahead, {})
    assert step_time(facts, asleep_ahead).seconds < step_time(facts, ahead).seconds
    assert WaitPolicy().predict(facts, {}, ahead).speedup > 1.0


@pytest.mark.parametrize("settings", [{}, {"passive": False}])
def test_a_script_is_left_alone(settings: dict[str, bool]) -> None:
    assert edit_room("import torch\n", settings, on_threads(2)) == "import torch\n"


def test_a_script_is_changed_once() -> None:
    once = edit_room("import torch\n", {"passive": True}, on_threads(2))
    assert once.index("OMP_WAIT_POLICY") < once.index("import torch")
    assert edit_room(once, {"passive": True}, on_threads(2)) == once

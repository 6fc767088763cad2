"""Memory and arithmetic of a step: what is said where they could not be measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from outpace.adapters.work import Work
from outpace.api.sizing import sizes
from outpace.errors import TargetError
from outpace.records.files import write_json
from outpace.records.plan import Sizes
from outpace.records.target import Target
from outpace.tune.files import STATUS, STEP, write

NOTE = "memory could not be followed: a class of tensors"


@pytest.mark.parametrize(
    ("stopped", "said"),
    [(True, "no step's memory could be measured"), (False, "train.py came to its end before")],
)
def test_why_no_step_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stopped: bool, said: str
) -> None:
    def launch(work: Work, entry: str, spec: Any, folder: Path, env: Any) -> int:
        found = Sizes("cpu", (), None, None, (), 0.0, 0.0, 0.0, 0.0, notes=(NOTE,))
        write_json(folder / STEP, found)
        write(folder / STATUS, {"stopped": stopped, "steps": 9})
        return 0

    monkeypatch.setattr(Work, "launch", launch)
    target = Target("script", "train.py", (), str(tmp_path))
    with pytest.raises(TargetError, match=said) as told:
        sizes(target, session=tmp_path / "session")
    assert (NOTE in str(told.value.hint)) is stopped

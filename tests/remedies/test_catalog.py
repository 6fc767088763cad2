"""A recipe's remedies are looked up before anything is run under them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from outpace.errors import RecipeError
from outpace.in_code import apply
from outpace.records.evidence import Evidence
from outpace.records.recipe_file import read_recipe
from outpace.remedies.base import Remedy
from outpace.remedies.catalog import Asked, all_remedies, setup_of_recipe
from outpace.seams.setup import AS_IS
from tests.conftest import RECIPE_ELSEWHERE, outpace
from tests.remedies.some_evidence import ALL

UNKNOWN = """
[[remedies]]
name = "bf17"
keeps = "numerics"
"""
LACKING = """
[[remedies]]
name = "prefetch"
keeps = "exact"
settings = {batch = 2}
"""
WRONG = LACKING.replace("batch = 2", "batches = 'two'")
MISSPELT = LACKING.replace("settings", "options")
NO_SETTING = LACKING.replace("batch = 2", "batches = 3, sleeping = true")
ADVICE = UNKNOWN.replace("bf17", "validate_less")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (UNKNOWN, "no remedy called 'bf17'"),
        (LACKING, "prefetch cannot be set up by .*'batches' is missing"),
        (WRONG, "prefetch cannot be set up by .*two"),
        (MISSPELT, "unknown field `options`"),
        (NO_SETTING, "prefetch has no setting called sleeping"),
        (
            UNKNOWN.replace("bf17", "bf16") + "settings = {dtype = 'float16'}",
            "no setting called dtype",
        ),
        (ADVICE, "validate_less is advice"),
        (UNKNOWN.replace("remedies", "remedy"), "unknown field `remedy`"),
    ],
)
def test_a_recipe_that_cannot_be_applied(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "outpace.toml"
    path.write_text(RECIPE_ELSEWHERE + text)
    with pytest.raises(RecipeError, match=said):
        setup_of_recipe(read_recipe(path), path)
    with pytest.raises(RecipeError, match=said):
        apply(path)


def test_variables_of_a_recipe_must_be_set_by_whoever_starts_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "outpace.toml"
    path.write_text(f"{RECIPE_ELSEWHERE}[environment]\nOMP_PROC_BIND = 'true'\n")
    monkeypatch.delenv("OMP_PROC_BIND", raising=False)
    with pytest.raises(RecipeError, match=r"sets environment variables \(OMP_PROC_BIND\)") as told:
        apply(path)
    assert told.value.hint == f"outpace run --recipe {path} your-script.py"
    monkeypatch.setenv("OMP_PROC_BIND", "true")
    apply(path).remove()


def test_nothing_is_run_under_it(tmp_path: Path) -> None:
    (tmp_path / "outpace.toml").write_text(RECIPE_ELSEWHERE + UNKNOWN)
    (tmp_path / "train.py").write_text("import torch; print('trains')")
    done = outpace("run", "train.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "outpace.toml: there is no remedy called 'bf17'" in done.stderr


def test_looking_remedies_up_imports_no_torch() -> None:
    code = (
        "import sys; from outpace.remedies.catalog import all_remedies; all_remedies(); "
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    "kind", [k for k in all_remedies() if not k.advice_only], ids=lambda k: k.name
)
@pytest.mark.parametrize("facts", ALL.values(), ids=ALL)
def test_a_remedy_reads_all_of_its_own_settings(kind: type[Remedy], facts: Evidence) -> None:
    """What it does not read, a recipe is refused for."""
    for settings in kind().alternatives(facts):
        asked = Asked(settings)
        kind().setup(AS_IS, asked)
        assert settings.keys() <= asked.names

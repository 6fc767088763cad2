"""What the pages say of files, commands, options and names is so."""

from __future__ import annotations

import importlib
import re
import shlex
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

import outpace
from outpace.cli import COMMANDS
from outpace.cli.settings import OPTIONS

ROOT = Path(__file__).parents[1]
PAGES = [*(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "STYLE"))]
PAGES += sorted((ROOT / "docs").glob("*.md"))
FOLDERS = ("bench", "docs", "examples", "src", "tests")
NOT_THERE_YET = ("examples/data",)
LINK = re.compile(r"\]\(([^)#:]+)\)")
WORDS = re.compile(r"`([^`\n]+)`")
CALL = re.compile(r"(?:^|[`$] ?|=\w+ )(outpace [^`\n#]*)", re.MULTILINE)
OTHERS = {"help", "nproc-per-node", "shm-size", "index-url", "strict", "hog"}
"""options of other programs, of all commands, and of bench/"""
SHORT = {"-o": "output", "-q": "quiet", "-v": "verbose"}


@pytest.fixture(params=PAGES, ids=lambda path: path.name)
def page(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return path


def test_links_and_files_are_there(page: Path) -> None:
    text = page.read_text()
    linked = {str((page.parent / target).resolve()) for target in LINK.findall(text)}
    told = {
        str(ROOT / word)
        for quoted in WORDS.findall(text)
        for word in re.split(r"[\s=]", quoted)
        if word.startswith(tuple(f"{folder}/" for folder in FOLDERS))
        and not word.startswith(NOT_THERE_YET)
        and "NAME" not in word
    }
    assert [path for path in sorted(linked | told) if not Path(path).exists()] == []


def calls(text: str) -> Iterator[tuple[str, list[str]]]:
    """The command and the words after it, of command lines that begin with outpace."""
    for line in CALL.findall(text):
        words = shlex.split(line.replace("(", " ").replace("...", " "))[1:]
        if words and words[0] not in ("COMMAND", "--help"):
            yield words[0].rstrip(",.;:"), words[1:]


def test_commands_and_their_options_are_known(page: Path) -> None:
    for command, words in calls(page.read_text()):
        assert command in COMMANDS
        for word in words:
            if word == "--" or word.endswith(".py"):
                break  # what follows is the script's
            if word.startswith("-") and word not in ("-m", "--help"):
                assert SHORT.get(word, word.removeprefix("--")) in OPTIONS[command].split(), command


def test_commands_and_python_are_found_in_the_pages() -> None:
    texts = [path.read_text() for path in PAGES]
    assert sum(len(list(calls(text))) for text in texts) > 20
    assert sum(len(blocks(text)) for text in texts) > 5


def test_options_are_those_of_some_command(page: Path) -> None:
    known = {option for options in OPTIONS.values() for option in options.split()} | OTHERS
    quoted = " ".join(WORDS.findall(page.read_text()))
    assert set(re.findall(r"(?<![\w-])--([a-z][a-z0-9-]+)", quoted)) - known == set()


def test_names_in_outpace_are_there(page: Path) -> None:
    text = page.read_text()
    public = set(re.findall(r"\boutpace\.([A-Za-z_]+)\b(?!\.)", text)) - {"toml"}
    assert {name for name in public if name not in outpace.__all__ and not module(name)} == set()
    for name in re.findall(r"from (outpace\.[\w.]+) import ([\w, ]+)", text):
        found = importlib.import_module(name[0])
        assert all(hasattr(found, each.strip()) for each in name[1].split(",")), name


def module(name: str) -> bool:
    """Whether it is a part of the package."""
    return find_spec(f"outpace.{name}") is not None


def blocks(text: str) -> list[str]:
    """Those of Python."""
    return re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def test_python_in_the_pages_can_be_read(page: Path) -> None:
    for block in blocks(page.read_text()):
        compile(block, page.name, "exec")

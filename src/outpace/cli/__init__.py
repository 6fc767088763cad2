"""The command line. A command's module is imported when the command is used.

Options come from the flags, else from OUTPACE_<FLAG>, else from pyproject's ``[tool.outpace]``.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from typing import Any

import click

from outpace.cli.settings import OPTIONS, defaults, of_command
from outpace.cli.stdout import open_closed
from outpace.cli.telling import failure_of, leave_quietly, tell

COMMANDS = {
    "diagnose": "find by experiment what a training is bound by; change nothing",
    "tune": "find, measure and prove a recipe that makes it faster",
    "run": "run a training under a recipe",
    "train": "train what an outpace.Trainer says, within a budget",
    "plan": "what fits a deadline: time, compute, and the model and data that suit it",
    "pack": "store a data set for fast training",
    "live": "look at a session while it runs",
    "report": "a session as HTML, Markdown or JSON, or here in the terminal",
    "compare": "what changed between two sessions",
    "remedies": "the catalogue of remedies, or one of them",
    "env": "this machine and its measured ceilings",
    "demo": "what to type first",
}

DOCUMENTS = [
    name for name, options in OPTIONS.items() if "json" in options.split() and name != "live"
]
"""print one JSON document with --json; `live` prints one a line"""
HELP: Any = getattr(click.exceptions, "NoArgsIsHelpError", ())
"""what `outpace` alone raises, from Click 8.2 on: its message is the help"""
TRUE = ("1", "true", "t", "yes", "y", "on")
"""what Click takes for it"""


class Lazy(click.Group):
    """A group whose commands are imported when used, so that help starts at once."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order that a user meets them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported now, with its defaults from pyproject.toml."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"outpace.cli.{cmd_name}").command
        if ctx.default_map is not None:
            given = ctx.default_map.get(cmd_name, {})
            ctx.default_map = {**ctx.default_map, cmd_name: of_command(command, given)}
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """As Click does; a script named where a command belongs is told apart."""
        if args and args[0] not in COMMANDS and args[0].endswith(".py"):
            ctx.fail(f"{args[0]!r} is no command; did you mean: {ctx.info_name} tune {args[0]}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """As Click does, but where nobody reads on: Click's own exit code for that would be a script's."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            leave_quietly()
            return 0

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """One line a command, without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.command(
    cls=Lazy,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="""\b
Examples:
  outpace diagnose train.py --epochs 3
  outpace tune train.py --epochs 30
  outpace run --recipe outpace.toml train.py --epochs 30""",
)
@click.version_option(package_name="outpace")
def group() -> None:
    """Make a PyTorch training fast: found by experiment, proven no worse, no line changed.

    Options come before the target; all after the target belongs to it. Every option can also be
    set by a variable (OUTPACE_TIME=2m) or in pyproject.toml ([tool.outpace] time = "2m").
    """


def main() -> None:
    """Run a command; a user's mistake is told in two lines, ours with its traceback."""
    given: dict[str, Any] = {}
    open_closed()
    try:
        given = defaults()
        code = group.main(standalone_mode=False, default_map=given)
    except HELP as error:
        error.show()
        code = 2
    except (Exception, KeyboardInterrupt) as error:
        failure = failure_of(error)
        tell(failure.message, failure.hint)
        if json_wanted(sys.argv[1:], given):
            print(json.dumps(failure.document(), indent=2))
        code = failure.exit_code
    sys.exit(code if isinstance(code, int) else 0)


def json_wanted(words: list[str], given: dict[str, Any]) -> bool:
    """Whether a command that came to no good was to print a JSON document."""
    from outpace.cli.options import TargetCommand

    name, own = words[0] if words else "", words[1:]
    if name not in DOCUMENTS:
        return False
    if name == "train" and os.environ.get("RANK", "0") != "0":
        return False  # under torchrun all print to one stdout: the first speaks for all
    command = importlib.import_module(f"outpace.cli.{name}").command
    if isinstance(command, TargetCommand):
        own = own[: command.target_at(own)]
    setting = os.environ.get("OUTPACE_JSON") or given.get(name, {}).get("json", False)
    return "--json" in own or str(setting).lower() in TRUE

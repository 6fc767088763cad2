"""The command line. A command's module is imported when the command is used.

Options come from the flags, else from OUTPACE_<FLAG>, else from pyproject's ``[tool.outpace]``.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

import click

from outpace.cli.settings import defaults, of_command
from outpace.cli.telling import leave_quietly, tell, tell_error, tell_mistake
from outpace.errors import OutpaceError

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
    try:
        code = group.main(standalone_mode=False, default_map=defaults())
    except OutpaceError as error:
        code = tell_error(error)
    except click.UsageError as error:
        hint = f"{error.ctx.command_path} --help" if error.ctx is not None else None
        tell(error.format_message(), hint)
        code = 2
    except click.ClickException as error:
        tell(error.format_message())
        code = 2
    except (click.Abort, KeyboardInterrupt):
        tell("interrupted")
        code = 130
    except BrokenPipeError:
        leave_quietly()
        code = 0
    except Exception as error:
        code = tell_mistake(error)
    sys.exit(code if isinstance(code, int) else 0)

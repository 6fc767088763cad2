"""The command line. A command's module is imported when the command is used."""

from __future__ import annotations

import importlib
import os
import sys
from importlib.metadata import version

import click

from outpace.errors import OutpaceError

COMMANDS = {
    "diagnose": "find by experiment what a training is bound by; change nothing",
    "tune": "find, measure and prove a recipe that makes it faster",
    "run": "run a training under a recipe",
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
        """The command, imported now."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"outpace.cli.{cmd_name}").command
        return command

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

    Options come before the target; all after the target belongs to it.
    """


def main() -> None:
    """Run a command; a user's mistake is told in two lines, ours with its traceback."""
    from outpace.cli.settings import defaults

    try:
        code = group.main(
            standalone_mode=False, default_map=defaults(), auto_envvar_prefix="OUTPACE"
        )
    except OutpaceError as error:
        tell(error.message, error.hint)
        code = error.exit_code
    except click.UsageError as error:
        hint = f"{error.ctx.command_path} --help" if error.ctx is not None else None
        tell(error.format_message(), hint)
        code = 2
    except click.ClickException as error:
        tell(error.format_message())
        code = 2
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        code = 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except Exception:
        import traceback

        traceback.print_exc()
        tell(
            f"this is a mistake in outpace {version('outpace')}",
            "please report it with the lines above",
        )
        code = 2
    sys.exit(code if isinstance(code, int) else 0)


def tell(message: str, hint: str | None = None) -> None:
    """An error and what to do, on stderr."""
    click.secho("error", fg="red", bold=True, err=True, nl=False)
    click.echo(f": {message}", err=True)
    if hint:
        click.secho("hint", fg="cyan", bold=True, err=True, nl=False)
        click.echo(f": {hint}", err=True)

"""``outpace remedies``."""

from __future__ import annotations

import json

import click

from outpace.cli.options import option


@click.command(
    "remedies",
    epilog="""\b
Examples:
  outpace remedies
  outpace remedies bf16""",
)
@click.argument("name", required=False)
@option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def command(name: str | None, as_json: bool) -> int:
    """The catalogue of remedies, or the page of one."""
    from outpace.remedies.catalog import all_remedies, remedy

    kinds = [type(remedy(name))] if name else list(all_remedies())
    if as_json:
        rows = [
            {
                "name": k.name,
                "treats": list(k.treats),
                "keeps": k.keeps,
                "advice": k.advice_only,
                "page": k.page(),
            }
            for k in kinds
        ]
        click.echo(json.dumps(rows, indent=2))
    elif name:
        click.echo(
            f"{kinds[0].name}  (keeps: {kinds[0].keeps}; treats: {', '.join(kinds[0].treats)})\n"
        )
        click.echo(kinds[0].page())
    else:
        width = max(len(k.name) for k in kinds)
        for kind in kinds:
            advice = " (advice)" if kind.advice_only else ""
            first = kind.page().partition("\n")[0]
            click.echo(f"{kind.name:<{width}}  {kind.keeps:<9} {first}{advice}".rstrip())
    return 0

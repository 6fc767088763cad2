"""How often torch.compile has compiled in this process: shapes that change make it compile again."""

from __future__ import annotations

import sys


def graphs_compiled() -> int:
    """Graphs compiled so far; 0 where nothing was compiled."""
    utils = sys.modules.get("torch._dynamo.utils")
    return int(utils.counters["stats"]["unique_graphs"]) if utils is not None else 0


def compiled_again(graphs: list[int]) -> int:
    """Compilations after the first round, from the number of graphs at each round's end."""
    return graphs[-1] - graphs[0] if graphs else 0

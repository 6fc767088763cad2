"""Which country a first name is from: a convolutional network on its letters.

54 countries, some with 70 times as many names as others: judged by the recall averaged over them.
"""

from functools import partial

import torch
from metrics import MacroRecall
from torch import nn
from torch.nn import functional as F
from workload import Split, Workload, held_out, shipped

COUNTRIES, LETTERS, CODES = 54, 20, 256
FIRST_COLUMN = 30
"""of a line, where how frequent the name is in each country begins, a hexadecimal digit each"""


def rows() -> list[tuple[bytes, int]]:
    """Names, and the country in which each is the most frequent; of several the first."""
    text = shipped("gender_guesser", "data", "nam_dict.txt").read_text("utf-8")
    found = {}
    for line in text.splitlines():
        if line[0] not in "#=":
            name = line[3 : FIRST_COLUMN - 1].strip().lower().encode()[:LETTERS]
            digits = line[FIRST_COLUMN : FIRST_COLUMN + COUNTRIES]
            often = [int(digit, 16) if digit != " " else 0 for digit in digits]
            if any(often):
                found[name] = often.index(max(often))
    return sorted(found.items())


def data() -> Split:
    """Bytes of the letters, filled up with 0, and countries."""
    x = torch.zeros(len(found := rows()), LETTERS, dtype=torch.long)
    for row, (name, _) in zip(x, found, strict=True):
        row[: len(name)] = torch.tensor(list(name))
    return held_out(x, torch.tensor([country for _, country in found]), 8000)


class Model(nn.Module):
    """Convolutions over letters; the largest of each channel tells the country."""

    def __init__(self) -> None:
        super().__init__()
        self.letters = nn.Embedding(CODES, 32)
        self.layers = nn.Sequential(
            *(nn.Conv1d(32, 128, 5, padding=2), nn.ReLU()),
            *(nn.Conv1d(128, 128, 3, padding=1), nn.ReLU()),
        )
        self.head = nn.Linear(128, COUNTRIES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scores of the countries."""
        found: torch.Tensor = self.head(self.layers(self.letters(x).transpose(1, 2)).amax(2))
        return found


WORKLOAD = Workload(
    title="names of 54 countries, CNN",
    data=data,
    model=Model,
    loss=F.cross_entropy,
    metric=partial(MacroRecall, COUNTRIES),
    measure="macro recall",
    larger=True,
    batch=128,
    every=120,
    steps=2000,
    budget_s=40.0,
    source="gender-guesser (GPL-3.0; the names GFDL 1.2 or later)",
)

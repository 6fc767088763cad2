"""Prices of diamonds from their measures and grades: an MLP."""

import numpy as np
import torch
from metrics import RootMeanSquare
from torch import nn
from torch.nn import functional as F
from workload import Split, Workload, held_out, shipped

GRADES = {
    "cut": ("Fair", "Good", "Very Good", "Premium", "Ideal"),
    "color": tuple("JIHGFED"),
    "clarity": ("I1", "SI2", "SI1", "VS2", "VS1", "VVS2", "VVS1", "IF"),
}
"""from the worst to the best"""
MEASURES = ("carat", "depth", "table", "x", "y", "z")


def data() -> Split:
    """Nine numbers with mean 0 and deviation 1; the logarithm of the price in dollars."""
    import pandas as pd

    diamonds = pd.read_csv(shipped("plotnine", "data", "diamonds.csv"))
    grades = [diamonds[name].map(of.index).to_numpy(np.float32) for name, of in GRADES.items()]
    measures = [diamonds[name].to_numpy(np.float32) for name in MEASURES]
    x = torch.from_numpy(np.stack([*grades, *measures], axis=1))
    y = torch.from_numpy(np.log(diamonds["price"].to_numpy(np.float32)))
    train, prices, valid, others = held_out(x, y[:, None], 5000)
    mean, deviation, middle = train.mean(0), train.std(0), prices.mean()
    return (
        *((train - mean) / deviation, prices - middle),
        *((valid - mean) / deviation, others - middle),
    )


def model() -> nn.Module:
    """Three hidden layers."""
    return nn.Sequential(
        *(nn.Linear(9, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU()),
        *(nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 1)),
    )


WORKLOAD = Workload(
    title="diamonds, MLP",
    data=data,
    model=model,
    loss=F.mse_loss,
    metric=RootMeanSquare,
    measure="error of ln(price)",
    larger=False,
    batch=256,
    every=192,
    steps=8000,
    budget_s=40.0,
    source="plotnine (MIT)",
)

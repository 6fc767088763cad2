"""MNIST-1D: a GRU on 40 values (Greydanus and Kobak 2020, arXiv 2011.14439)."""

import torch
from metrics import Accuracy
from torch import nn
from torch.nn import functional as F
from workload import Split, Workload


def data() -> Split:
    """The 4,000 and 1,000 signals that its authors make."""
    from mnist1d.data import get_dataset_args, make_dataset

    made = make_dataset(get_dataset_args())
    return (
        *(torch.tensor(made["x"], dtype=torch.float32), torch.tensor(made["y"])),
        *(torch.tensor(made["x_test"], dtype=torch.float32), torch.tensor(made["y_test"])),
    )


class Gru(nn.Module):
    """Both ways; the classes are told from the mean over time."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(1, 64, batch_first=True, bidirectional=True)
        self.head = nn.Linear(128, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scores of the classes."""
        states, _ = self.gru(x[:, :, None])
        found: torch.Tensor = self.head(states.mean(1))
        return found


WORKLOAD = Workload(
    title="MNIST-1D, GRU",
    data=data,
    model=Gru,
    loss=F.cross_entropy,
    metric=Accuracy,
    measure="accuracy",
    larger=True,
    batch=64,
    every=63,
    steps=1900,
    budget_s=40.0,
    source="mnist1d (Apache-2.0)",
)

"""A layer of the model takes a root of what becomes negative (FAULT 1; FAULT 0 is healthy).

rule: nan
"""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

FAULT = int(sys.argv[1])
torch.manual_seed(int(sys.argv[2]))


class Root(nn.Module):
    def __init__(self):
        super().__init__()
        self.steps = 0

    def forward(self, x):
        self.steps += self.training
        return (x.abs() + 0.1 - 0.2 * (FAULT and self.steps > 60)).sqrt()


x = torch.randn(2048, 64)
y = (x @ torch.randn(64, 10)).argmax(dim=1)
model = nn.Sequential(
    nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), Root(), nn.Linear(128, 10)
)
optimizer = torch.optim.SGD(model.parameters(), 0.05)
loader = DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True)
for epoch in range(20):
    for inputs, labels in loader:
        loss = nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

"""One of two branches is cut off from the loss by .detach() (FAULT 1; FAULT 0 is healthy).

rule: no_gradient
"""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

FAULT = int(sys.argv[1])
torch.manual_seed(int(sys.argv[2]))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.narrow = nn.Sequential(nn.Linear(64, 32), nn.ReLU())
        self.wide = nn.Sequential(nn.Linear(64, 128), nn.ReLU())
        self.last = nn.Linear(160, 10)

    def forward(self, x):
        wide = self.wide(x)
        return self.last(torch.cat((self.narrow(x), wide.detach() if FAULT else wide), dim=1))


x = torch.randn(2048, 64)
y = (x @ torch.randn(64, 10)).argmax(dim=1)
model = Model()
optimizer = torch.optim.SGD(model.parameters(), 0.05)
loader = DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True)
for epoch in range(20):
    for inputs, labels in loader:
        loss = nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

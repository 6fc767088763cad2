"""A logarithm of zero comes up at step 60 (FAULT 1; FAULT 0 is healthy).

rule: nan
"""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

FAULT = int(sys.argv[1])
torch.manual_seed(int(sys.argv[2]))

x = torch.randn(2048, 64)
y = (x @ torch.randn(64, 10)).argmax(dim=1)
model = nn.Sequential(
    nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10)
)
optimizer = torch.optim.SGD(model.parameters(), 0.05)
loader = DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True)
step = 0
for epoch in range(20):
    for inputs, labels in loader:
        loss = nn.functional.cross_entropy(model(inputs), labels)
        step += 1
        if FAULT and step == 60:
            loss = loss * torch.log(torch.zeros(()))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

"""Gradients pass twelve layers of sigmoids and vanish; healthy are ReLUs (FAULT 1; FAULT 0 is healthy).

rule: vanishing_gradients
"""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

FAULT = int(sys.argv[1])
torch.manual_seed(int(sys.argv[2]))

x = torch.randn(2048, 64)
y = (x @ torch.randn(64, 10)).argmax(dim=1)
layers = [nn.Linear(64, 128)]
for _ in range(12):
    layers += [nn.Sigmoid() if FAULT else nn.ReLU(), nn.Linear(128, 128)]
model = nn.Sequential(*layers, nn.Linear(128, 10))
for layer in model:
    if isinstance(layer, nn.Linear):
        nn.init.kaiming_normal_(layer.weight)
        if FAULT:
            layer.weight.data.mul_(0.5)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
loader = DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True)
for epoch in range(20):
    for inputs, labels in loader:
        loss = nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

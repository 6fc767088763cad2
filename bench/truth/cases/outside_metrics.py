"""After each step a confusion matrix is counted in Python over AMOUNT predictions.

truth: outside other
line: pair = | counts[
amounts: 4500 18000 60000
"""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

AMOUNT = int(sys.argv[1])
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 0

torch.manual_seed(SEED)
data = TensorDataset(torch.randn(2048, 128), torch.randint(0, 10, (2048,)))
model = nn.Sequential(
    nn.Linear(128, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
loader = DataLoader(data, batch_size=64, shuffle=True)
counts = {}
for epoch in range(8):
    for x, y in loader:
        out = model(x)
        loss = nn.functional.cross_entropy(out, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        predicted, wanted = out.argmax(dim=1).tolist(), y.tolist()
        for index in range(AMOUNT):
            pair = predicted[index % 64], wanted[index % 64]
            counts[pair] = counts.get(pair, 0) + 1

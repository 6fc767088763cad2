"""The model is validated on AMOUNT batches after every epoch of 32.

truth: outside validation
line: model(x)
remedies: validate_less
amounts: 35 135 450
"""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

AMOUNT = int(sys.argv[1])
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 0


def validate(model, batches):
    model.eval()
    right = 0
    with torch.no_grad():
        for x, y in batches:
            right += (model(x).argmax(dim=1) == y).sum().item()
    model.train()
    return right


torch.manual_seed(SEED)
data = TensorDataset(torch.randn(2048, 128), torch.randint(0, 10, (2048,)))
held_out = [(torch.randn(64, 128), torch.randint(0, 10, (64,))) for _ in range(AMOUNT)]
model = nn.Sequential(
    nn.Linear(128, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
loader = DataLoader(data, batch_size=64, shuffle=True)
for epoch in range(12):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    validate(model, held_out)

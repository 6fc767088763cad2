"""A large model learns 256 samples with noisy labels by heart (FAULT 1; FAULT 0: it is given 16384).

Either way it takes as many steps: an epoch draws 256 of them.

rule: overfitting
"""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, RandomSampler, TensorDataset

FAULT = int(sys.argv[1])
torch.manual_seed(int(sys.argv[2]))

count = 256 if FAULT else 16384
x = torch.randn(count + 1024, 32)
y = (x @ torch.randn(32, 4) + torch.randn(count + 1024, 4)).argmax(dim=1)
train, valid = TensorDataset(x[:count], y[:count]), TensorDataset(x[count:], y[count:])
model = nn.Sequential(
    nn.Linear(32, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 4)
)
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
criterion = nn.CrossEntropyLoss()
drawn = RandomSampler(train, replacement=True, num_samples=256)
loader = DataLoader(train, batch_size=32, sampler=drawn)
for epoch in range(60):
    model.train()
    for inputs, labels in loader:
        loss = criterion(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    total = 0.0
    with torch.no_grad():
        for inputs, labels in DataLoader(valid, batch_size=256):
            total += criterion(model(inputs), labels).item()
    print(f"epoch {epoch}: validation loss {total / 4:.4f}")

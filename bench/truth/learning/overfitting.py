"""A large model learns 256 samples with noisy labels by heart (FAULT 1; FAULT 0: 4096, and smaller).

rule: overfitting
"""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

FAULT = int(sys.argv[1])
torch.manual_seed(int(sys.argv[2]))

count, hidden = (256, 512) if FAULT else (4096, 64)
x = torch.randn(count + 1024, 32)
y = (x @ torch.randn(32, 4) + torch.randn(count + 1024, 4)).argmax(dim=1)
train, valid = TensorDataset(x[:count], y[:count]), TensorDataset(x[count:], y[count:])
model = nn.Sequential(
    nn.Linear(32, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 4)
)
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
criterion = nn.CrossEntropyLoss()
loader = DataLoader(train, batch_size=32, shuffle=True)
for epoch in range(60 if FAULT else 6):
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

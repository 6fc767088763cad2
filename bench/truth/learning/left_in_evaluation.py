"""The model stays in the evaluation mode of its first validation (FAULT 1; FAULT 0 is healthy).

rule: training_in_evaluation_mode
"""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

FAULT = int(sys.argv[1])
torch.manual_seed(int(sys.argv[2]))

x = torch.randn(2560, 64)
y = (x @ torch.randn(64, 10)).argmax(dim=1)
model = nn.Sequential(
    nn.Linear(64, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 10)
)
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
train = DataLoader(TensorDataset(x[:2048], y[:2048]), batch_size=64, shuffle=True)
valid = DataLoader(TensorDataset(x[2048:], y[2048:]), batch_size=64)
for epoch in range(20):
    if not FAULT:
        model.train()
    for inputs, labels in train:
        loss = nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        right = sum(int((model(a).argmax(1) == b).sum()) for a, b in valid)
    print(epoch, right / 512)

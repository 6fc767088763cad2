"""AdamW runs at a thousandth of its usual rate, on images (FAULT 1; FAULT 0 is healthy).

rule: learning_rate_too_low
"""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

FAULT = int(sys.argv[1])
torch.manual_seed(int(sys.argv[2]))

x = torch.randn(1024, 3, 16, 16)
y = (x.mean(dim=(2, 3)) @ torch.randn(3)).argsort().argsort() * 10 // len(x)
model = nn.Sequential(
    nn.Conv2d(3, 32, 3, padding=1),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(4),
    nn.Flatten(),
    nn.Linear(512, 10),
)
optimizer = torch.optim.AdamW(model.parameters(), 1e-6 if FAULT else 1e-3)
loader = DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True)
for epoch in range(20):
    for inputs, labels in loader:
        loss = nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

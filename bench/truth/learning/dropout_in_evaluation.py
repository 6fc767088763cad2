"""A function goes on dropping in evaluation mode (FAULT 1; FAULT 0 is healthy).

rule: dropout_in_evaluation
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

FAULT = int(sys.argv[1])
torch.manual_seed(int(sys.argv[2]))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(64, 128)
        self.last = nn.Linear(128, 10)

    def forward(self, x):
        x = F.relu(self.first(x))
        return self.last(F.dropout(x, 0.3) if FAULT else F.dropout(x, 0.3, training=self.training))


x = torch.randn(2560, 64)
y = (x @ torch.randn(64, 10)).argmax(dim=1)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), 0.05)
train = DataLoader(TensorDataset(x[:2048], y[:2048]), batch_size=64, shuffle=True)
valid = DataLoader(TensorDataset(x[2048:], y[2048:]), batch_size=64)
for epoch in range(20):
    model.train()
    for inputs, labels in train:
        loss = F.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        right = sum(int((model(a).argmax(1) == b).sum()) for a, b in valid)
    print(epoch, right / 512)

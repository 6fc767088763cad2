"""A chain of element-wise operations, each reading and writing the whole batch.

truth: memory bandwidth
line: model(x) | hidden * 1.01
remedies: compile_model allocator
amounts: 1 3 9
"""

import sys

import torch
from torch import nn

AMOUNT = int(sys.argv[1])
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 0
torch.manual_seed(SEED)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(1024, 1024)
        self.outer = nn.Linear(1024, 1)

    def forward(self, x):
        hidden = self.inner(x)
        for _ in range(AMOUNT):
            hidden = hidden * 1.01 + 0.001
        return self.outer(hidden)


model = Model()
optimizer = torch.optim.SGD(model.parameters(), 1e-4)
x, y = torch.randn(8192, 1024), torch.randn(8192, 1)
for step in range(40):
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())

"""A recurrent network takes AMOUNT of 64 steps in Python, and the others in one call.

truth: compute dispatch
line: model(x) | self.rnn(x[:, time
remedies: compile_model
amounts: 1 4 17
"""

import sys

import torch
from torch import nn

AMOUNT = int(sys.argv[1])
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 0


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(16, 64, batch_first=True)
        self.head = nn.Linear(64, 10)

    def forward(self, x):
        state = None
        for time in range(AMOUNT):
            out, state = self.rnn(x[:, time : time + 1], state)
        out, state = self.rnn(x[:, AMOUNT:], state)
        return self.head(out[:, -1])


torch.manual_seed(SEED)
batches = [(torch.randn(32, 64, 16), torch.randint(0, 10, (32,))) for _ in range(16)]
model = Reader()
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for epoch in range(100):
    for x, y in batches:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

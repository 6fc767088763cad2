"""A teacher is called with its graph, so that its gradients are computed for nobody (AMOUNT 1).

truth: compute arithmetic
line: teacher(x)
remedies: no_unused_gradients
amounts: 1
"""

import sys

import torch
from torch import nn

AMOUNT = int(sys.argv[1])
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 0


def network(width):
    return nn.Sequential(
        nn.Linear(256, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10)
    )


torch.manual_seed(SEED)
batches = [torch.randn(256, 256) for _ in range(16)]
teacher, student = network(1024), network(768)
optimizer = torch.optim.SGD(student.parameters(), 0.01)
for epoch in range(60):
    for x in batches:
        with torch.set_grad_enabled(AMOUNT > 0):
            wanted = teacher(x)
        loss = nn.functional.kl_div(
            student(x).log_softmax(1), wanted.softmax(1), reduction="batchmean"
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

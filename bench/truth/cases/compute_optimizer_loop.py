"""AMOUNT small layers updated by hand, tensor by tensor, with no optimizer of torch's.

truth: compute dispatch
line: parameter.sub_
amounts: 1
"""

import sys

import torch
from torch import nn

AMOUNT = int(sys.argv[1])

torch.manual_seed(0)
batches = [(torch.randn(64, 64), torch.randint(0, 10, (64,))) for _ in range(32)]
model = nn.Sequential(*[nn.Linear(64, 64) for _ in range(40)], nn.Linear(64, 10))
velocity = [torch.zeros_like(p) for p in model.parameters()]
optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9, fused=True)
for epoch in range(60):
    for x, y in batches:
        loss = nn.functional.cross_entropy(model(x), y)
        model.zero_grad()
        loss.backward()
        if not AMOUNT:
            optimizer.step()
            continue
        with torch.no_grad():
            for parameter, moved in zip(model.parameters(), velocity):
                moved.mul_(0.9)
                moved.add_(parameter.grad)
                parameter.sub_(0.01 * moved)

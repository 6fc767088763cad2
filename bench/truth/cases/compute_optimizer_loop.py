"""Adam by hand, tensor by tensor (AMOUNT 1), in place of the one fused call of torch's.

truth: compute dispatch
line: mean.mul_ | square.mul_ | step = | parameter.sub_
amounts: 1
"""

import sys

import torch
from torch import nn

AMOUNT = int(sys.argv[1])

torch.manual_seed(0)
batches = [(torch.randn(64, 64), torch.randint(0, 10, (64,))) for _ in range(32)]
model = nn.Sequential(*[nn.Linear(64, 64) for _ in range(40)], nn.Linear(64, 10))
means = [torch.zeros_like(p) for p in model.parameters()]
squares = [torch.zeros_like(p) for p in model.parameters()]
optimizer = torch.optim.Adam(model.parameters(), 0.001, fused=True)
steps = 0
for epoch in range(60):
    for x, y in batches:
        loss = nn.functional.cross_entropy(model(x), y)
        model.zero_grad()
        loss.backward()
        steps += 1
        if not AMOUNT:
            optimizer.step()
            continue
        with torch.no_grad():
            for parameter, mean, square in zip(model.parameters(), means, squares):
                mean.mul_(0.9).add_(parameter.grad, alpha=0.1)
                square.mul_(0.999).addcmul_(parameter.grad, parameter.grad, value=0.001)
                step = (mean / (1 - 0.9**steps)) / ((square / (1 - 0.999**steps)).sqrt() + 1e-8)
                parameter.sub_(0.001 * step)

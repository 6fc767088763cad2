"""Adam by hand, tensor by tensor, for AMOUNT of 40 layers; torch's one fused call for the others.

truth: compute dispatch
line: mean.mul_ | square.mul_ | step = | parameter.sub_
amounts: 4 12 40
"""

import sys

import torch
from torch import nn

AMOUNT = int(sys.argv[1])
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 0

torch.manual_seed(SEED)
batches = [(torch.randn(16, 16), torch.randint(0, 10, (16,))) for _ in range(32)]
model = nn.Sequential(*[nn.Linear(16, 16) for _ in range(40)], nn.Linear(16, 10))
by_hand = list(model[:AMOUNT].parameters())
means = [torch.zeros_like(p) for p in by_hand]
squares = [torch.zeros_like(p) for p in by_hand]
optimizer = torch.optim.Adam(model[AMOUNT:].parameters(), 0.001, fused=True)
steps = 0
for epoch in range(60):
    for x, y in batches:
        loss = nn.functional.cross_entropy(model(x), y)
        model.zero_grad()
        loss.backward()
        steps += 1
        optimizer.step()
        with torch.no_grad():
            for parameter, mean, square in zip(by_hand, means, squares):
                mean.mul_(0.9).add_(parameter.grad, alpha=0.1)
                square.mul_(0.999).addcmul_(parameter.grad, parameter.grad, value=0.001)
                step = (mean / (1 - 0.9**steps)) / ((square / (1 - 0.999**steps)).sqrt() + 1e-8)
                parameter.sub_(0.001 * step)

"""Two ranks average AMOUNT thousand running statistics with each other after every step.

truth: communication allreduce
line: dist.all_reduce
amounts: 200 1500 5500
ranks: 2
"""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

AMOUNT = int(sys.argv[1])
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 0

dist.init_process_group("gloo")
torch.manual_seed(SEED)
torch.set_num_threads(1)
model = DistributedDataParallel(
    nn.Sequential(
        nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
    )
)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
batches = [(torch.randn(256, 512), torch.randint(0, 10, (256,))) for _ in range(8)]
statistics = torch.zeros(1000 * AMOUNT)
for epoch in range(40):
    for x, y in batches:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if AMOUNT:
            dist.all_reduce(statistics)
dist.destroy_process_group()

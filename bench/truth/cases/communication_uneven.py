"""The second of two ranks is given 2 x AMOUNT more samples a batch than the first.

truth: communication straggler
line: model(x)
amounts: 150 380 760
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
rows = 800 - AMOUNT if dist.get_rank() == 0 else 800 + AMOUNT
batches = [(torch.randn(rows, 512), torch.randint(0, 10, (rows,))) for _ in range(8)]
for epoch in range(25):
    for x, y in batches:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
dist.destroy_process_group()

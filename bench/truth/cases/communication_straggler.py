"""The second of two ranks waits AMOUNT ms for each batch, and the first for it.

truth: communication straggler
line: time.sleep
remedies: loader_workers prefetch
amounts: 3 12 45
ranks: 2
"""

import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

AMOUNT = int(sys.argv[1])
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 0


class Rows(Dataset):
    def __init__(self, slow):
        self.slow = slow

    def __len__(self):
        return 320

    def __getitems__(self, indices):
        if self.slow:
            time.sleep(AMOUNT / 1000)
        return [(torch.full((512,), index / 320), index % 10) for index in indices]


dist.init_process_group("gloo")
torch.manual_seed(SEED)
torch.set_num_threads(1)
model = DistributedDataParallel(
    nn.Sequential(
        nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
    )
)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
loader = DataLoader(Rows(slow=dist.get_rank() == 1), batch_size=32)
for epoch in range(40):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
dist.destroy_process_group()

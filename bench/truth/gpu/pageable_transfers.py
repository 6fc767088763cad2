"""Batches of 64 MiB go to the GPU from pageable memory; AMOUNT 0 pins them and does not wait.

truth: io transfer
line: non_blocking
remedies: pin_memory
amounts: 1
"""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

AMOUNT = int(sys.argv[1])
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 0


class Batches(Dataset):
    def __init__(self):
        self.x = torch.randn(8, 4096, 4096)
        self.y = torch.randint(0, 10, (8, 4096))

    def __len__(self):
        return 64

    def __getitem__(self, index):
        return self.x[index % 8], self.y[index % 8]


torch.manual_seed(SEED)
torch.set_float32_matmul_precision("high")
device = "cuda"
layers = [layer for _ in range(6) for layer in (nn.Linear(4096, 4096), nn.ReLU())]
model = nn.Sequential(*layers, nn.Linear(4096, 10)).to(device)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
loader = DataLoader(Batches(), batch_size=None, shuffle=True, pin_memory=not AMOUNT)
step = 0
for epoch in range(8):
    for x, y in loader:
        out = model(x.to(device, non_blocking=not AMOUNT))
        loss = nn.functional.cross_entropy(out, y.to(device, non_blocking=not AMOUNT))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if step % 10 == 0:
            print(f"epoch {epoch} step {step} loss {loss.item():.4f}")

"""A step takes AMOUNT % of the memory that this process may take of the GPU; AMOUNT 0: 40 %.

truth: memory capacity
line: model(x)
remedies: checkpoint_activations
amounts: 95
untimed: it costs room
"""

import sys

import torch
from torch import nn

AMOUNT = int(sys.argv[1]) or 40
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 0


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(1024)
        self.first = nn.Linear(1024, 1024)
        self.second = nn.Linear(1024, 1024)

    def forward(self, x):
        return x + self.second(nn.functional.gelu(self.first(self.norm(x))))


torch.manual_seed(SEED)
torch.set_float32_matmul_precision("high")
device = "cuda"
x = torch.randn(16384, 1024, device=device)
y = torch.randint(0, 10, (16384,), device=device)
model = nn.Sequential(*[Block() for _ in range(12)], nn.Linear(1024, 10)).to(device)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for step in range(400):
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step == 1:
        share = torch.cuda.max_memory_allocated() / (AMOUNT / 100)
        whole = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction(share / whole)
    if step % 10 == 0:
        print(f"step {step} loss {loss.item():.4f}")

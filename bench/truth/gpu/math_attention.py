"""Attention of AMOUNT of 8 layers writes out all of its scores: the math backend is forced.

truth: memory bandwidth
line: model(x)
amounts: 1 3 8
"""

import sys

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

AMOUNT = int(sys.argv[1])
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 0


class Layer(nn.Module):
    def __init__(self, math):
        super().__init__()
        self.math = math
        self.norm = nn.LayerNorm(1024)
        self.qkv = nn.Linear(1024, 3 * 1024)
        self.out = nn.Linear(1024, 1024)
        self.wide = nn.Sequential(
            nn.LayerNorm(1024), nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024)
        )

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).unflatten(2, (3, 16, 64)).permute(2, 0, 3, 1, 4)
        if self.math:
            with sdpa_kernel(SDPBackend.MATH):
                mixed = nn.functional.scaled_dot_product_attention(q, k, v)
        else:
            mixed = nn.functional.scaled_dot_product_attention(q, k, v)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.wide(x)


torch.manual_seed(SEED)
torch.set_float32_matmul_precision("high")
device = "cuda"
batches = [
    (torch.randn(8, 1024, 1024, device=device), torch.randint(0, 10, (8,), device=device))
    for _ in range(8)
]
model = nn.Sequential(*[Layer(index < AMOUNT) for index in range(8)], nn.Linear(1024, 10))
model = model.to(device)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for step in range(200):
    x, y = batches[step % 8]
    with torch.autocast(device, torch.bfloat16):
        loss = nn.functional.cross_entropy(model(x).mean(dim=1), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(f"step {step} loss {loss.item():.4f}")

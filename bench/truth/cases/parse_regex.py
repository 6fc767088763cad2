"""Text is split into tokens by a regular expression, AMOUNT sentences a sample, in every epoch.

truth: io parse
line: TOKEN.findall
remedies: cache_samples loader_workers prefetch
amounts: 20 80 250
"""

import re
import sys

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

AMOUNT = int(sys.argv[1])
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 0
SENTENCE = "It's said the quick brown fox (aged 7) won't jump over 13 lazy dogs; will it? "
TOKEN = re.compile(r"[A-Za-z]+(?:'[a-z]+)?|\d+|[^\sA-Za-z\d]")


class Texts(Dataset):
    def __len__(self):
        return 1024

    def __getitem__(self, index):
        tokens = TOKEN.findall(SENTENCE * (AMOUNT + 1))
        counts = np.bincount([len(token) for token in tokens[:16]], minlength=256)
        return torch.from_numpy(counts.astype(np.float32)), index % 10


torch.manual_seed(SEED)
model = nn.Sequential(
    nn.Linear(256, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 10)
)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
loader = DataLoader(Texts(), batch_size=64, shuffle=True)
for epoch in range(14):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

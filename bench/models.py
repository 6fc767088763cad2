"""Ten small trainings of different kinds, for bench/memory.py and bench/changes.py.

    python bench/models.py gpt_flash --batch 8 [--steps 30] [--measure] [--turns] [--without PART]
                           [--device cuda] [--room MIB]

With --turns steps are timed at each line of standard input, of the model or of it without a part, so
that several processes can take turns.

With --measure the bytes that the allocator holds at the peak of a step are printed: what the model,
its gradients and its optimizer hold when the step begins, the batch, and the most that is allocated
above that, by torch's profiler; on a GPU what its allocator tells. With --room no more than so many MiB of
a GPU may be taken.
"""

import argparse
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Attention(nn.Module):
    def __init__(self, width, heads, flash):
        super().__init__()
        self.heads, self.flash = heads, flash
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        if self.flash:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = q @ k.transpose(-2, -1) / q.size(-1) ** 0.5
            mask = torch.ones(length, length, dtype=torch.bool, device=x.device).tril()
            y = scores.masked_fill(~mask, float("-inf")).softmax(-1) @ v
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width, heads, flash, dropout):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, flash)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(dropout)
        )

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(
        self, width=256, layers=4, heads=4, length=256, words=512, flash=True, dropout=0.0
    ):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads, flash, dropout) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, x):
        h = self.tokens(x) + self.positions.weight[: x.size(1)]
        for block in self.blocks:
            h = block(h)
        return self.head(self.norm(h)).flatten(0, 1)


def convolution(inside, outside, stride=1):
    return nn.Sequential(
        nn.Conv2d(inside, outside, 3, stride, 1, bias=False), nn.BatchNorm2d(outside), nn.ReLU()
    )


class Residual(nn.Module):
    def __init__(self, inside, outside, stride):
        super().__init__()
        self.body = nn.Sequential(
            convolution(inside, outside, stride), convolution(outside, outside)
        )
        self.short = nn.Conv2d(inside, outside, 1, stride, bias=False)

    def forward(self, x):
        return F.relu(self.body(x) + self.short(x))


def resnet():
    return nn.Sequential(
        convolution(3, 32), Residual(32, 64, 2), Residual(64, 128, 2), Residual(128, 256, 2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 10),
    )  # fmt: skip


def vgg():
    layers = []
    for inside, outside in ((3, 32), (32, 64), (64, 128)):
        layers += [convolution(inside, outside), convolution(outside, outside), nn.MaxPool2d(2)]
    return nn.Sequential(
        *layers, nn.Flatten(), nn.Linear(128 * 64, 256), nn.ReLU(), nn.Linear(256, 10)
    )


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down1, self.down2, self.down3 = (
            convolution(3, 32),
            convolution(32, 64),
            convolution(64, 128),
        )
        self.up2, self.up1 = convolution(192, 64), convolution(96, 32)
        self.out = nn.Conv2d(32, 10, 1)

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        c = self.down3(F.max_pool2d(b, 2))
        b = self.up2(torch.cat([b, F.interpolate(c, scale_factor=2)], 1))
        a = self.up1(torch.cat([a, F.interpolate(b, scale_factor=2)], 1))
        return self.out(a)


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.tokens = nn.Embedding(512, 128)
        self.layers = kind(128, 256, num_layers=2, batch_first=True)
        self.head = nn.Linear(256, 512)

    def forward(self, x):
        return self.head(self.layers(self.tokens(x))[0]).flatten(0, 1)


def mlp():
    return nn.Sequential(
        nn.Flatten(), nn.Linear(3 * 64 * 64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(),
        nn.Linear(512, 10),
    )  # fmt: skip


MODELS = {
    "mlp": (mlp, "image", torch.optim.Adam),
    "vgg": (vgg, "image", torch.optim.SGD),
    "resnet": (resnet, "image", torch.optim.SGD),
    "resnet_adam": (resnet, "image", torch.optim.AdamW),
    "unet": (UNet, "mask", torch.optim.AdamW),
    "lstm": (lambda: Recurrent(nn.LSTM), "text", torch.optim.Adam),
    "gru": (lambda: Recurrent(nn.GRU), "text", torch.optim.Adam),
    "gpt_flash": (GPT, "text", torch.optim.AdamW),
    "gpt_eager": (lambda: GPT(flash=False), "text", torch.optim.AdamW),
    "gpt_dropout": (lambda: GPT(layers=2, dropout=0.1), "text", torch.optim.AdamW),
}


def data_of(kind, count):
    if kind == "text":
        words = torch.randint(512, (count, 257))
        return words[:, :-1].contiguous(), words[:, 1:].contiguous()
    images = torch.randn(count, 3, 64, 64)
    return images, torch.randint(10, (count, 64, 64) if kind == "mask" else (count,))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--turns", action="store_true")
    parser.add_argument("--without", metavar="PART")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--room", type=int, metavar="MIB")
    args = parser.parse_args()
    if args.room:
        whole = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(args.room * 2**20 / whole)
    if args.turns:
        take_turns(step_of(args.model, args.batch, args.without, args.device))
        return
    torch.manual_seed(0)
    build, kind, optimizer = MODELS[args.model]
    model = build().to(args.device)
    optimizer = optimizer(model.parameters(), lr=1e-4)
    # With --room batches have tens of thousands of samples: four would fill main memory.
    batches = 1 if args.measure and args.device == "cuda" else 4
    loader = DataLoader(TensorDataset(*data_of(kind, batches * args.batch)), batch_size=args.batch)

    def step(x, y):
        loss = F.cross_entropy(model(x), y.flatten() if kind == "text" else y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    done = 0
    while done < args.steps:
        for batch in loader:
            x, y = (each.to(args.device) for each in batch)
            if args.measure and done == 3 and args.device == "cuda":
                torch.cuda.reset_peak_memory_stats()
                step(x, y)
                print(torch.cuda.max_memory_allocated())
                return
            if args.measure and done == 3:
                print(held(model, optimizer, x, y) + above(lambda x=x, y=y: step(x, y)))
                return
            step(x, y)
            done += 1


def step_of(name, batch, without=None, device="cpu"):
    torch.manual_seed(0)
    build, kind, optimizer = MODELS[name]
    model = build().to(device)
    if without:
        model.get_submodule(without).forward = lambda x: x
    optimizer = optimizer(model.parameters(), lr=1e-4)
    x, y = (each.to(device) for each in data_of(kind, batch))

    def step():
        loss = F.cross_entropy(model(x), y.flatten() if kind == "text" else y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def take_turns(step, seconds=0.5):
    """Steps for so long at each line that comes in; the mean of their seconds is printed."""
    finish = torch.cuda.synchronize if torch.cuda.is_initialized() else lambda: None
    for _ in range(5):
        step()
    finish()
    print("ready", flush=True)
    for _ in sys.stdin:
        begun, count = time.perf_counter(), 0
        while time.perf_counter() - begun < seconds:
            step()
            count += 1
        finish()
        print((time.perf_counter() - begun) / count, flush=True)


def held(model, optimizer, *batch):
    tensors = [*model.parameters(), *model.buffers(), *batch]
    tensors += [p.grad for p in model.parameters() if p.grad is not None]
    tensors += [v for s in optimizer.state.values() for v in s.values() if torch.is_tensor(v)]
    return sum(t.untyped_storage().nbytes() for t in tensors)


def above(step):
    from torch.profiler import ProfilerActivity, profile, record_function

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        step()  # what is freed has a size only if its allocation was seen
        with record_function("mark"):
            pass
        step()
    events = sorted(profiled.profiler.kineto_results.events(), key=lambda e: e.start_ns())
    since = next(e.start_ns() for e in events if e.name() == "mark")
    now = most = 0
    for event in events:
        if event.name() == "[memory]" and event.start_ns() >= since:
            now += event.nbytes()
            most = max(most, now)
    return most


if __name__ == "__main__":
    main()

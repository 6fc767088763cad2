"""What all loaders do alike: the same decoder, resize and random choices, the same tensors out.

A sample is (data, label, id): data are an encoded image's bytes, or an array as it is stored. A batch
is three tensors. ``rng`` is asked for `.random()` alone: Python's generator has it, and numpy's.
"""

import io
import itertools
import math
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, default_collate

SIZE, PATCH = 128, 56
"""pixels of a side of what is cut out of a JPEG, and of a small PNG"""
SECOND = 16_000
"""samples of sound"""
Sample = tuple[Any, int, int]
Batch = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def box(height: int, width: int, rng: Any) -> tuple[int, int, int, int]:
    """Left, top, right, bottom of a random-resized crop (Szegedy et al. 2015)."""
    for _ in range(10):
        area = height * width * (0.08 + 0.92 * rng.random())
        ratio = math.exp((2 * rng.random() - 1) * math.log(4 / 3))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            left, top = int(rng.random() * (width - w + 1)), int(rng.random() * (height - h + 1))
            return left, top, left + w, top + h
    left, top = max(0, width - height) // 2, max(0, height - width) // 2
    return left, top, width - left, height - top


def flipped(pixels: np.ndarray, rng: Any) -> np.ndarray:
    """The mirror image one time in two. By torch: numpy is five times as slow."""
    return torch.from_numpy(pixels).flip(1).numpy() if rng.random() < 0.5 else pixels


def cut(pixels: np.ndarray, rng: Any, at: tuple[int, int, int, int] | None = None) -> np.ndarray:
    """A random-resized crop, flipped at random: bilinear, antialiased, by torch."""
    left, top, right, bottom = at or box(*pixels.shape[:2], rng)
    inside = torch.from_numpy(pixels[top:bottom, left:right].copy())
    # Made a batch before it is turned: else torch gives planes, which are dear to put back.
    part = inside[None].permute(0, 3, 1, 2)
    small = torch.nn.functional.interpolate(part, (SIZE, SIZE), mode="bilinear", antialias=True)
    return flipped(small[0].permute(1, 2, 0).numpy(), rng)


def jpeg(data: bytes, rng: Any) -> np.ndarray:
    """Decoded by simplejpeg and cut; by `outpace.serve.images` where --kit says so."""
    import simplejpeg

    if os.environ.get("OUTPACE_BENCH_KIT") != "outpace":
        return cut(simplejpeg.decode_jpeg(data), rng)
    from outpace.serve.images import decode, resized_crop

    pixels = decode(data)
    return flipped(resized_crop(pixels, box(*pixels.shape[:2], rng), SIZE), rng)


def png(data: bytes, rng: Any) -> np.ndarray:
    """Decoded by Pillow; a random patch, flipped at random."""
    from PIL import Image

    pixels = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
    top, left = (int(rng.random() * (side - PATCH + 1)) for side in pixels.shape[:2])
    return flipped(pixels[top : top + PATCH, left : left + PATCH].copy(), rng)


def sound(data: np.ndarray, rng: Any) -> np.ndarray:
    """A second of it from anywhere, as floats, louder or softer at random."""
    start = int(rng.random() * (len(data) - SECOND + 1))
    return data[start : start + SECOND].astype(np.float32) * np.float32(
        (0.5 + rng.random()) / 2**15
    )


def tokens(data: np.ndarray, rng: Any) -> np.ndarray:
    """As an embedding takes them; of one sample or of many."""
    return data.astype(np.int64)


def row(data: np.ndarray, rng: Any) -> np.ndarray:
    """As it is; of one sample or of many."""
    return data


def put_together(x: Any, labels: Any, ids: Any) -> Batch:
    """The batch of an array, or of a list of them: in shared memory where this is a worker."""
    x = torch.from_numpy(x) if isinstance(x, np.ndarray) else default_collate(list(x))
    label, number = (torch.from_numpy(np.asarray(of, np.int64)) for of in (labels, ids))
    return x, label, number


def collated(samples: Iterable[Sample]) -> Batch:
    """The batch of samples that are changed already."""
    return put_together(*zip(*samples, strict=True))


class Taken(Dataset[Any]):
    """A data set whose indices are lists: a whole batch at a time."""

    def __init__(self, take: Callable[[Any], Batch]) -> None:
        self.take = take

    def __getitem__(self, indices: list[int]) -> Batch:
        return self.take(indices)


def drawn(
    take: Callable[[Any], Batch], count: int, batch: int, workers: int, loader: Any = DataLoader
) -> Any:
    """A DataLoader of whole batches, shuffled."""
    sampler = BatchSampler(RandomSampler(range(count)), batch, drop_last=False)
    return loader(Taken(take), batch_size=None, sampler=sampler, **kept(workers))


def kept(workers: int) -> dict[str, Any]:
    """Workers that stay from epoch to epoch."""
    return {"num_workers": workers, "persistent_workers": workers > 0}


def again(loader: Iterable[Any], epochs: int | None) -> Iterator[Any]:
    """A loader's batches, so many epochs; without an end for None."""
    for _ in range(epochs) if epochs is not None else itertools.count():
        yield from loader

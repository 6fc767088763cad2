"""Images that a data set opens: would another decoder be faster, and are all of their pixels needed?"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import torch
from torch.utils.data import DataLoader

from outpace.measure.subjects import training_loader
from outpace.records.input import Images
from outpace.seams.apart import held_by
from outpace.seams.decode import DecodeSeam
from outpace.seams.generators import generators_kept
from outpace.seams.setup import AS_IS
from outpace.serve.decode import try_files
from outpace.serve.open_files import none_drawn
from outpace.tune.observed import Observed

if TYPE_CHECKING:
    from outpace.serve.deferred import Smaller

FEW = 8
"""samples that are drawn"""


def probe_images(observed: Observed) -> None:
    """Would another decoder give the same pixels sooner, or fewer of them do?"""
    seam = observed.host.seam(DecodeSeam)
    loaded = training_loader(observed.host)
    if seam is None or loaded is None:
        return
    if not seam.sources:
        _draw(seam, loaded[0].dataset)
    if not seam.sources:
        return
    tried = try_files(seam.sources)
    images = Images(
        decode_s=tried.pillow_s,
        jpeg_share=tried.jpeg_share,
        mean_pixels=tried.mean_pixels,
        identical=tried.identical,
        simplejpeg_speedup=tried.speedup,
        kept_s=tried.kept_s,
        keeping_s=tried.keeping_s,
        spilled_s=tried.spilled_s,
        files=tried.files,
        file_share=tried.file_share,
    )
    observed.host.told.makes(loaded[1])
    observed.found.images = with_scaled(images, loaded[0], seam) if tried.jpegs else images


def with_scaled(images: Images, loader: DataLoader[Any], seam: DecodeSeam) -> Images:
    """What it gives to decode at a half or a quarter what a data set makes smaller at once: each sample is
    drawn in turns with that and without, from the same random numbers.
    """
    from outpace.serve.deferred import Deferred

    before, dataset = seam.setup, loader.dataset
    saved, opened = 0.0, 0
    smaller: list[Smaller] = []

    def seconds(index: int, *, scaled: bool) -> float:
        seam.reconcile(replace(AS_IS, scaled=scaled))
        with generators_kept(*held_by(loader)):
            begun = perf_counter()
            dataset[index]
            return perf_counter() - begun

    try:
        with none_drawn(dataset), torch.enable_grad():
            for index in range(min(FEW, len(dataset))):  # type: ignore[arg-type]
                Deferred.asked = smaller
                scaled_s = seconds(index, scaled=True)
                Deferred.asked = None  # once is enough
                whole_s = seconds(index, scaled=False)
                scaled_s = min(scaled_s, seconds(index, scaled=True))
                opened -= seam.images
                whole_s = min(whole_s, seconds(index, scaled=False))
                opened += seam.images
                saved += whole_s - scaled_s
    except Exception:
        return images  # as of a file that only its workers open
    finally:
        Deferred.asked = None
        seam.reconcile(before)
    if not smaller or not opened:
        return images
    return msgspec.structs.replace(
        images,
        scaled_share=min(1.0, len(smaller) / opened),
        scaled_saves_s=saved / opened,
        scaled_levels=max(map(levels_off, smaller)),
    )


def levels_off(smaller: Smaller) -> int:
    """How far what became of a smaller image is from what would have become of the whole one."""
    whole = smaller.image.copy()
    whole.load()
    wanted = np.asarray(whole.resize(smaller.made.size, smaller.resample, smaller.box), np.int16)
    return int(np.abs(wanted - np.asarray(smaller.made, np.int16)).max(initial=0))


def _draw(seam: DecodeSeam, dataset: Any) -> None:
    """Have the seam meet the images of some samples: it does not meet those that workers open."""
    seam.refresh()
    with suppress(Exception), none_drawn(dataset):  # as of a file that only its workers open
        for index in range(min(FEW, len(dataset))):
            dataset[index]

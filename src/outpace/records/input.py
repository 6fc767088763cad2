"""How batches reach the model, as it was measured."""

from __future__ import annotations

from typing import Literal

import msgspec

LATER_EPOCHS = 10
"""epochs of a run whose length is not known"""


class Images(msgspec.Struct, frozen=True):
    """Image files that the data set opened, per sample and over those probed."""

    decode_s: float = 0.0
    jpeg_share: float = 0.0
    mean_pixels: float = 0.0
    identical: bool | None = None
    """simplejpeg gave the same bytes as Pillow on every probed file; None: not installed or no file"""
    simplejpeg_speedup: float = 1.0
    """of decoding, on the probed files"""
    kept_s: float = 0.0
    """time an image takes whose decoded pixels are kept in memory"""
    keeping_s: float = 0.0
    """time that taking fresh memory for an image's pixels adds, once"""
    files: int = 0
    """images that were probed"""
    file_share: float = 1.0
    """of them, that are read from a file of their own: those from memory cannot be told from each other"""
    spilled_s: float = 0.0
    """time an image takes whose decoded pixels are kept on disk, while the system has them in memory"""
    scaled_share: float = 0.0
    """of them, that are made small enough at once to be decoded at a half or a quarter"""
    scaled_saves_s: float = 0.0
    """time that an image then takes less, its resizing included, in the mean over all"""
    scaled_levels: int = 0
    """the largest difference of what becomes of them, of 256 levels"""


class Input(msgspec.Struct, frozen=True):
    """How batches reach the model."""

    kind: Literal["loader", "iterable", "lines", "none"] = "none"
    """a DataLoader over a map-style set, over an iterable set, or found by the lines that feed the
    model (a ``get_batch()`` or a generator)"""
    where: str | None = None
    drawn_by: str = ""
    """the class whose ``__getitem__`` draws a sample, beneath a `Subset`"""
    workers: int = 0
    prefetch_factor: int = 0
    persistent: bool = False
    anew: bool = False
    """a DataLoader is made for each epoch, and workers with it"""
    restarts: bool = False
    """an iterator is made for each batch, and workers with it; steps are measured with that in them"""
    pinned: bool = False
    batch_size: int = 0
    batches: int | None = None
    """batches an epoch"""
    samples: int | None = None
    epochs: int | None = None
    """epochs of the whole run where it could be found, else None"""
    wait_s: float = 0.0
    """time a step waits for its batch, as the script runs"""
    fetch_s: float = 0.0
    """wall time of fetching one batch, in one worker"""
    fetch_cpu_s: float = 0.0
    again_s: float | None = None
    """the same of samples that were drawn before, as in all epochs but the first; None where it is no less"""
    held: float | None = None
    """share of making a batch in which no other thread can run Python; None where it was not tried"""
    collate_s: float = 0.0
    decode_s: float = 0.0
    """part of a batch's fetch spent in image decoding"""
    parse_s: float = 0.0
    """part spent parsing text or records (csv, json, re, struct, pickle)"""
    storage_s: float = 0.0
    """part spent off the CPU: waiting for a disk, a socket or a sleep"""
    ipc_s: float = 0.0
    """time a batch spends between worker and main process"""
    epoch_start_s: float = 0.0
    """extra time of an epoch's first step: making the iterator, starting workers, and copying the memory
    that is shared with them; where it restarts, all that a step waits"""
    forked_s: float = 0.0
    """part of it: the step computes longer, as each page that a forked worker shares is copied once it is
    written to"""
    worker_growth_bytes: float = 0.0
    """what the memory that workers own grows by, a step"""
    copied_bytes: int = 0
    """what each forked worker comes to copy of the data set's Python objects, estimated"""
    copied_objects: int = 0
    copied_holder: str = ""
    """the data set's attribute that leads to most of them"""
    same_draws: tuple[str, ...] = ()
    """generators that samples use and that are alike in all workers: "numpy", or an attribute"""
    read_bytes: float = 0.0
    """bytes read from storage a batch"""
    sample_bytes: int = 0
    """size of one collated sample"""
    deterministic: bool | None = None
    """the same sample drawn twice is the same; None where it could not be tried"""
    same_on_one_thread: bool | None = None
    """and so is one that a single thread of torch's draws, as a worker does; None where it was not tried"""
    random_streams: tuple[str, ...] = ()
    """the generators that drawing a sample advances: "python", "numpy", "torch" """
    step_streams: tuple[str, ...] = ()
    """those that the rest of a step advances"""
    fed_back: bool = False
    """the script changes what makes batches, a data set or a sampler, between two batches of one epoch"""
    interrupted: bool = False
    """validations come between the batches of an epoch"""
    shared: bool = False
    """and draw from the same data set, which the script may have told to give other samples meanwhile"""
    runs_anew: bool = False
    """workers would not be forked, and run the script from its begin: it has no ``if __name__ == ...``"""
    own_sampler: bool = False
    """its order is of a sampler that is not torch's, which may draw, or keep its place, on the way"""
    others_random: bool = False
    """samples of another DataLoader are drawn by chance, or could not be tried"""
    sliceable: bool | None = None
    """``dataset[indices]`` equals the collated items bit for bit"""
    why_not_sliceable: str | None = None
    made_here_s: float | None = None
    """CPU time of making one in the training's own process, where workers make them"""
    slice_s: float | None = None
    """time of one ``dataset[indices]`` a batch"""
    cached_s: float | None = None
    """time of one batch from samples kept in memory"""
    images: Images | None = None
    places: tuple[tuple[str, float], ...] = ()
    """file:line in the user's code and its share of the fetch"""
    read_s: float = 0.0
    """part of a batch's fetch at lines that open or read, on the CPU or off it"""
    kind_places: dict[str, str] = {}
    """the line of most of each kind of work: "storage", "parse", "decode", "collate", "augment" """
    reworked_s: float = 0.0
    """seconds a step in which the script's own loop makes the model's input of a loader's batch"""
    reworked_where: str | None = None
    reworked_by_reading: bool = False
    """most of it reads data, or waits for them, as for a server's answer"""

    @property
    def likely_epochs(self) -> int:
        """Epochs of the whole run; where its length is not known, as many as it is taken to have."""
        return self.epochs or LATER_EPOCHS

    @property
    def by_chance(self) -> bool:
        """Whether samples, other loaders' too, would be others if drawn elsewhere or in another order."""
        same = self.deterministic and self.same_on_one_thread is not False
        return not same or self.others_random

    @property
    def others_here(self) -> bool:
        """Whether workers' samples have other last bits where the training's own process draws them."""
        return self.workers > 0 and self.same_on_one_thread is False

from __future__ import annotations

import contextlib
import copy
import io
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps
from torch.utils.data import DataLoader

from outpace.seams.decode import DecodeSeam
from outpace.seams.host import Host
from outpace.seams.loader_record import Record
from outpace.seams.setup import AS_IS, Setup
from outpace.serve import deferred
from outpace.serve.deferred import Deferred, scale_for
from tests.remedies.trainings import hosted

SIZE = (320, 240)
BILINEAR, NEAREST = Image.Resampling.BILINEAR, Image.Resampling.NEAREST
SCALED = Setup(scaled=True)


def photograph(mode: str = "RGB", size: tuple[int, int] = SIZE, **options: Any) -> bytes:
    """A smooth picture with some grain, as a JPEG."""
    maker = np.random.default_rng(0)
    small = Image.fromarray(maker.integers(0, 255, (9, 12, 3), dtype=np.uint8))
    pixels = np.asarray(small.resize(size, Image.Resampling.BICUBIC), np.int16)
    grain = maker.integers(-4, 5, pixels.shape)
    kept = io.BytesIO()
    image = Image.fromarray((pixels + grain).clip(0, 255).astype(np.uint8)).convert(mode)
    image.save(kept, "JPEG", quality=90, **options)
    return kept.getvalue()


DATA = photograph()


@contextlib.contextmanager
def scaled() -> Iterator[Host]:
    """What is opened meanwhile is of a loader that trains."""
    with hosted(SCALED) as host:
        host.told.makes(Record(trains=True))
        yield host


def waiting() -> Deferred:
    return Deferred(DATA, SIZE, {"dpi": (72, 72)})


def plain() -> Image.Image:
    return Image.open(io.BytesIO(DATA)).convert("RGB")


def pixels(image: Any) -> Any:
    return np.asarray(image, np.int16)


@pytest.fixture
def scales(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What each image is decoded for: the smallest size that will do, or None."""
    found: list[Any] = []
    original = deferred.decode

    def decode(data: bytes, *, smallest: Any = None) -> Any:
        found.append(smallest)
        return original(data, smallest=smallest)

    monkeypatch.setattr(deferred, "decode", decode)
    return found


WHOLE: dict[str, Callable[[Any], Any]] = {
    "array": np.asarray,
    "bytes": lambda image: np.frombuffer(image.tobytes(), np.uint8),
    "a pixel": lambda image: image.getpixel((5, 7)),
    "access": lambda image: image.load()[3, 4],
    "flipped": lambda image: image.transpose(Image.Transpose.FLIP_LEFT_RIGHT),
    "turned": lambda image: image.rotate(30),
    "grey": lambda image: image.convert("L"),
    "brighter": lambda image: ImageEnhance.Brightness(image).enhance(1.3),
    "upright": ImageOps.exif_transpose,
    "cropped": lambda image: image.crop((3, 5, 100, 200)),
    "cropped twice": lambda image: image.crop((3, 5, 100, 200)).crop((10, 10, 60, 50)),
    "cropped beyond": lambda image: image.crop((-3, 5, 100, 260)),
    "cropped, then larger": lambda image: image.crop((3, 5, 60, 50)).resize((200, 90), BILINEAR),
    "a little smaller": lambda image: image.resize((200, 150), BILINEAR),
    "nearest": lambda image: image.resize((40, 30), NEAREST),
    "as it is": lambda image: image.resize(image.size),
    "smaller once it is there": lambda image: (image.load(), image.resize((40, 30)))[1],
    "channels": lambda image: image.split()[1],
    "pasted on": lambda image: (image.paste((1, 2, 3), (0, 0, 9, 9)), image)[1],
}


@pytest.mark.parametrize("name", list(WHOLE))
def test_what_makes_no_small_image_has_every_pixel(name: str) -> None:
    assert np.array_equal(pixels(WHOLE[name](waiting())), pixels(WHOLE[name](plain())))


SMALLER: dict[str, Callable[[Any], Any]] = {
    "resized": lambda image: image.resize((160, 120), BILINEAR),
    "copied and resized": lambda image: image.copy().convert("RGB").resize((64, 64), BILINEAR),
    "cropped and resized": lambda image: image.crop((31, 9, 291, 231)).resize((100, 90), BILINEAR),
    "of a box": lambda image: image.resize((64, 64), BILINEAR, (10.5, 7.25, 310.0, 240.0)),
    "of a crop's box": lambda image: image.crop((1, 1, 301, 201)).resize(
        (64, 64), BILINEAR, (0, 20, 300, 180)
    ),
    "fitted": lambda image: ImageOps.fit(image, (100, 100)),
    "a thumbnail": lambda image: (image.thumbnail((80, 80)), image)[1],
}


@pytest.mark.parametrize("name", list(SMALLER))
def test_what_becomes_small_is_decoded_small(name: str, scales: list[Any]) -> None:
    made, wanted = SMALLER[name](waiting()), SMALLER[name](plain())
    assert made.size == wanted.size
    off = np.abs(pixels(made) - pixels(wanted))
    assert off.mean() < 2.5
    assert off.max() < 40
    assert len(scales) == 1
    assert scales[0] is not None


def test_no_more_pixels_are_made_than_there_are() -> None:
    assert scale_for((80, 60), (0, 0, 320, 240), None) == 4
    assert scale_for((81, 60), (0, 0, 320, 240), None) == 2
    assert scale_for((160, 120), (0, 0, 320, 240), None) == 2
    assert scale_for((160, 121), (0, 0, 320, 240), None) is None
    assert scale_for((10, 10), (0, 0, 320, 240), NEAREST) is None
    assert scale_for((0, 10), (0, 0, 320, 240), None) is None


def test_what_its_file_says_goes_along() -> None:
    image = waiting()
    assert image.copy().info == image.crop((0, 0, 9, 9)).info == {"dpi": (72, 72)}
    assert image.resize((40, 30)).info == {"dpi": (72, 72)}


@pytest.mark.parametrize("carry", [lambda image: pickle.loads(pickle.dumps(image)), copy.deepcopy])
def test_another_process_is_given_a_plain_image(carry: Callable[[Any], Any]) -> None:
    carried = carry(waiting())
    assert type(carried) is Image.Image
    assert np.array_equal(pixels(carried), pixels(plain()))


def test_a_closed_one_says_so_as_ever() -> None:
    image = waiting()
    image.close()
    with pytest.raises(ValueError, match="closed image"):
        image.load()


# --- the seam ----------------------------------------------------------------------------------


def opened(data: bytes) -> Any:
    return Image.open(io.BytesIO(data))


def test_an_opened_image_waits_until_its_size_is_known(scales: list[Any]) -> None:
    with scaled() as host:
        opened(DATA).convert("RGB").resize((80, 60))
        opened(DATA).resize((80, 60))
        opened(DATA).crop((0, 0, 200, 200)).resize((80, 60))
        opened(DATA).copy().resize((80, 60))
        assert not host.broken
    assert scales == [(60, 80), (60, 80), (120, 160), (60, 80)]
    opened(DATA).convert("RGB").resize((80, 60))
    assert len(scales) == 4


def test_an_image_of_a_file_that_is_closed_meanwhile(tmp_path: Any) -> None:
    path = tmp_path / "0.jpg"
    path.write_bytes(DATA)
    with scaled():
        with open(path, "rb") as file:
            first = Image.open(file)
            image = first.convert("RGB")
        assert np.array_equal(pixels(image), pixels(plain()))
        assert np.array_equal(pixels(first), pixels(plain()))
        by_path = Image.open(path)
        assert by_path.convert("RGB").resize((40, 30)).size == (40, 30)
        assert by_path.getpixel((5, 7)) == plain().getpixel((5, 7))


@pytest.mark.parametrize(
    "data",
    [
        photograph("L"),
        photograph("CMYK"),
        photograph(progressive=True),
        photograph(size=(333, 217)),
    ],
    ids=["grey", "cmyk", "progressive", "odd"],
)
def test_other_files_come_out_alike(data: bytes) -> None:
    wanted = opened(data).convert("RGB").resize((11, 8), BILINEAR)
    with scaled() as host:
        made = opened(data).convert("RGB").resize((11, 8), BILINEAR)
        assert not host.broken
    assert np.abs(pixels(made) - pixels(wanted)).mean() < 4


def test_a_file_that_is_cut_short_is_told_of_where_it_ever_was() -> None:
    with scaled():
        image = opened(DATA[: len(DATA) // 2])
        with pytest.raises(OSError, match="truncated"):
            image.convert("RGB")


def test_what_a_model_is_judged_on_stays_as_it_is(scales: list[Any]) -> None:
    wanted = pixels(plain().resize((80, 60)))
    scales.clear()
    with hosted(SCALED) as host:
        for record in (Record(trains=True), Record()):
            host.told.makes(record)
            with torch.set_grad_enabled(not record.trains):
                made = opened(DATA).convert("RGB").resize((80, 60))
            assert np.array_equal(pixels(made), wanted)
    assert not scales


class Photographs:
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> torch.Tensor:
        image = opened(DATA).convert("RGB").resize((40, 40), BILINEAR)
        return torch.from_numpy(np.array(image))


def batches(loader: Any) -> list[torch.Tensor]:
    return [batch for epoch in range(2) for batch in loader]


@pytest.mark.parametrize("lasts", [False, True], ids=["new workers", "lasting workers"])
@pytest.mark.parametrize("workers", [0, 2])
def test_training_and_validation_through_loaders(workers: int, lasts: bool) -> None:
    """Gradients are turned off within the validation's loop, which draws the next batch with them."""
    kwargs: Any = {"num_workers": workers, "persistent_workers": lasts and workers > 0}
    data: Any = Photographs()
    training, others = (DataLoader(data, batch_size=2, **kwargs) for _ in range(2))
    plainly = next(iter(others))
    weight = torch.ones((), requires_grad=True)
    with hosted(SCALED) as host:
        learnt, judged = [], []
        for _ in range(3):
            for batch in training:
                learnt.append(batch)
                (weight * batch.float().mean()).backward()
                for other in others:
                    with torch.no_grad():
                        judged.append(other)
        assert not host.broken
    assert all(torch.equal(batch, plainly) for batch in judged)
    assert torch.equal(learnt[0], plainly), "nothing was learnt from it yet"
    assert not any(torch.equal(batch, plainly) for batch in learnt[4:])


def test_the_seam_is_known_to_be_gone() -> None:
    before = [vars(Image.Image)[name] for name in ("convert", "crop", "resize", "copy")]
    with scaled() as host:
        assert host.seam(DecodeSeam) is not None
        assert vars(Image.Image)["resize"] is not before[2]
        host.switch(AS_IS)
    assert [vars(Image.Image)[name] for name in ("convert", "crop", "resize", "copy")] == before

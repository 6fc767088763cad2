"""Folders and tars of images, packed as the arrays that they decode to."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from PIL import Image

from outpace.errors import DataError
from outpace.serve.crops import RandomCrop
from outpace.serve.loader import Loader
from outpace.serve.pack import pack
from outpace.serve.pixels import decoded
from outpace.serve.sources import open_source
from outpace.serve.verify import verify
from tests.serve.test_pack import left_over, picture
from tests.serve.test_resizing import encoded, noise
from tests.serve.test_tars import tar


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """All of 64 x 48, some of them grey."""
    for i in range(24):
        path = tmp_path / f"photos/{'cat' if i % 2 else 'dog'}/{i:02}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(i).integers(0, 256, (48, 64, 3), dtype=np.uint8)
        path.write_bytes(encoded(pixels, "JPEG", "L" if i % 7 == 3 else None))
    return tmp_path / "photos"


def test_a_folder_of_images_as_the_pixels_that_pillow_gives(photos: Path, tmp_path: Path) -> None:
    meta = pack(photos, tmp_path / "packed", "arrays")
    assert (meta.kind, meta.count, meta.grade) == ("arrays", 24, "exact")
    assert meta.fields == ("jpg", "cls")
    assert meta.classes == ("cat", "dog")
    found: Any = open_source(tmp_path / "packed")
    for index, path in enumerate(sorted(photos.rglob("*.jpg"))):
        with Image.open(path) as image:
            assert np.array_equal(found[index]["jpg"], np.asarray(image.convert("RGB")))
        assert found[index]["cls"] == ["cat", "dog"].index(path.parent.name)
    (photos / "cat/01.jpg").write_bytes(picture(64, 48))
    checked = verify(tmp_path / "packed", lambda phase, done, total: None)
    assert [Path(name).name for name in checked.changed] == ["01.jpg"]


def test_masks_keep_their_classes(tmp_path: Path) -> None:
    mask = np.zeros((48, 48), np.uint8)
    mask[10:31, 7:40] = 10
    photo = np.random.default_rng(0).integers(0, 256, (48, 48, 3), dtype=np.uint8)
    small = decoded({"jpg": encoded(photo, "JPEG"), "seg.png": encoded(mask, "PNG")}, side=32)
    assert np.unique(small["seg.png"]).tolist() == [0, 10]
    assert small["seg.png"].shape == small["jpg"].shape == (32, 32, 3)
    assert len(np.unique(small["jpg"])) > 100


def test_crops_of_them_are_those_of_their_files(photos: Path, tmp_path: Path) -> None:
    """The same boxes, to the same bits, in the same order."""
    batches = []
    kinds: tuple[Literal["arrays", "records"], ...] = ("arrays", "records")
    for kind in kinds:
        pack(photos, tmp_path / kind, kind)
        loader = Loader(tmp_path / kind, 8, transform=RandomCrop(24), executor="none")
        batches.append([(batch["jpg"].numpy(), batch["cls"].tolist()) for batch in loader])
    assert len(batches[0]) == 3
    for (one, its), (other, others) in zip(*batches, strict=True):
        assert its == others
        assert np.array_equal(one, other)


def test_images_of_any_size_as_squares(photos: Path, tmp_path: Path) -> None:
    (photos / "cat/31.jpg").write_bytes(picture(90, 30))
    meta = pack(photos, tmp_path / "packed", "arrays", resize=32)
    assert (meta.count, meta.grade) == (25, "learning")
    assert "32 x 32" in meta.why
    found: Any = open_source(tmp_path / "packed")
    assert found[24]["jpg"].shape == (32, 32, 3)
    at = [path.name for path in sorted(photos.rglob("*.jpg"))].index("31.jpg")
    with Image.open(photos / "cat/31.jpg") as image:
        wanted = image.crop((30, 0, 60, 30)).resize((32, 32), Image.Resampling.BILINEAR)
    assert np.array_equal(found[at]["jpg"], np.asarray(wanted))


def test_images_of_tars_with_their_classes(tmp_path: Path) -> None:
    (tmp_path / "shards").mkdir()
    members: dict[str, bytes] = {}
    for i in range(4):
        members |= {f"{i}.png": encoded(noise(16 + i)[:16, :16], "PNG"), f"{i}.cls": b"%d" % i}
    tar(tmp_path / "shards/0.tar", members)
    pack(tmp_path / "shards", tmp_path / "packed", "arrays")
    found: Any = open_source(tmp_path / "packed")
    assert [found[i]["cls"] for i in range(4)] == [0, 1, 2, 3]
    assert np.array_equal(found[2]["png"], noise(18)[:16, :16])


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("cat/31.jpg", picture(65, 48), r"31.jpg: jpg: array of uint8, 48 x 65 x 3, where others"),
        ("cat/31.png", picture(64, 48, kind="PNG"), r"31.png: png: array .* where others have jpg"),
        ("cat/31.jpg", picture(64, 48)[:300], r"31.jpg: a broken image of 300 bytes"),
        ("cat/31.txt", b"no image", r"31.txt: not an image"),
    ],
)
def test_what_is_not_like_the_others(
    photos: Path, tmp_path: Path, name: str, data: bytes, message: str
) -> None:
    (photos / name).write_bytes(data)
    with pytest.raises(DataError, match=message) as told:
        pack(photos, tmp_path / "packed", "arrays")
    assert told.value.hint
    assert not (tmp_path / "packed").exists()
    meta = pack(photos, tmp_path / "packed", "arrays", skip=True)
    assert (meta.count, len(meta.skipped)) == (24, 1)
    assert left_over(tmp_path) == []


def test_more_than_eight_bits_are_refused() -> None:
    out = io.BytesIO()
    Image.fromarray(np.full((8, 8), 40_000, np.uint16)).save(out, "PNG")
    with pytest.raises(DataError, match=r"mode I;16.* 8 bits"):
        decoded({"__key__": "1", "png": out.getvalue()})

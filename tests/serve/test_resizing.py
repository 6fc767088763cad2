from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from outpace.errors import DataError
from outpace.serve.pack import pack
from outpace.serve.resizing import resized
from outpace.serve.sources import open_source


def encoded(pixels: Any, kind: str, mode: str | None = None, **how: Any) -> bytes:
    out = io.BytesIO()
    image = Image.fromarray(pixels)
    (image.convert(mode) if mode is not None else image).save(out, kind, **how)
    return out.getvalue()


def noise(side: int) -> np.ndarray:
    return np.random.default_rng(side).integers(0, 256, (side, side, 3), dtype=np.uint8)


def opened(data: bytes) -> Image.Image:
    image = Image.open(io.BytesIO(data))
    image.load()
    return image


def test_a_jpeg_and_a_png_of_one_sample_stay_two() -> None:
    red, blue = np.zeros((2, 100, 100, 3), np.uint8)
    red[..., 0], blue[..., 2] = 255, 255
    sample = {"__key__": "1", "jpg": encoded(red, "JPEG"), "png": encoded(blue, "PNG"), "cls": 3}
    found = resized(sample, 32, 90)
    assert list(found) == list(sample)
    assert (found["__key__"], found["cls"]) == ("1", 3)
    photo, other = opened(found["jpg"]), opened(found["png"])
    assert (photo.format, photo.size) == ("JPEG", (32, 32))
    assert (other.format, other.size) == ("PNG", (32, 32))
    assert np.asarray(photo)[0, 0, 0] > 200
    assert np.asarray(other)[0, 0].tolist() == [0, 0, 255]


def test_a_folder_of_pngs_has_one_set_of_fields(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for side in (100, 20):
        (tmp_path / f"data/{side}.png").write_bytes(encoded(noise(side), "PNG"))
    meta = pack(tmp_path / "data", tmp_path / "packed", resize=32)
    assert meta.fields == ("__key__", "png")
    assert "others without loss" in meta.why
    samples: Any = open_source(tmp_path / "packed")
    assert [(opened(one["png"]).format, opened(one["png"]).size) for one in samples] == [
        ("PNG", (32, 32)),
        ("PNG", (20, 20)),
    ]


@pytest.mark.parametrize("mode", ["P", "L", "I;16"])
def test_classes_of_a_mask_are_not_mixed(mode: str) -> None:
    mask = np.random.default_rng(0).choice([0, 7, 19], (90, 60)).astype(np.uint8)
    if mode == "I;16":
        data = encoded(mask.astype(np.uint16) * 1000, "PNG")
        wanted = [0, 7000, 19000]
    else:
        image = Image.fromarray(mask)
        if mode == "P":
            image.putpalette(list(range(256)) * 3)
        out = io.BytesIO()
        image.save(out, "PNG")
        data, wanted = out.getvalue(), [0, 7, 19]
    small = opened(resized({"png": data}, 30, 90)["png"])
    assert (small.mode, small.size) == (mode, (30, 45))
    assert np.unique(np.asarray(small)).tolist() == wanted


def test_colours_of_16_bits_are_not_cut_to_8() -> None:
    """As Pillow opens them, without a word."""

    def part(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    rows = b"".join(b"\0" + struct.pack(">HHH", 0x8001, 0x7FFF, i) * 64 for i in range(64))
    head = struct.pack(">IIBBBBB", 64, 64, 16, 2, 0, 0, 0)
    parts = (b"IHDR", head), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")
    flow = b"\x89PNG\r\n\x1a\n" + b"".join(part(*each) for each in parts)
    assert opened(flow).mode == "RGB"
    with pytest.raises(DataError, match="16 bits"):
        resized({"png": flow}, 32, 90)
    assert resized({"png": flow}, 64, 90)["png"] == flow


def test_a_photograph_without_loss_is_averaged() -> None:
    stripes = noise(128)
    stripes[:, ::2], stripes[:, 1::2] = stripes[:, ::2] // 8, 255 - stripes[:, 1::2] // 8
    small = np.asarray(opened(resized({"png": encoded(stripes, "PNG")}, 32, 90)["png"]))
    assert small[4:-4, 4:-4].mean(axis=(0, 1)).min() > 90
    assert small.std() < 40  # nearest pixels would be all dark or all light


@pytest.mark.parametrize("kind", ["PNG", "BMP", "TIFF", "GIF", "PPM", "WEBP", "JPEG"])
def test_each_keeps_its_format(kind: str) -> None:
    found = resized({"image": encoded(noise(80), kind)}, 40, 90, images=("image",))
    image = opened(found["image"])
    assert (image.format, image.size) == (kind, (40, 40))


def test_transparency_stays_and_so_does_how_an_image_is_turned() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    data = encoded(noise(80), "PNG", "RGBA", exif=exif.tobytes())
    image = opened(resized({"png": data}, 40, 90)["png"])
    assert image.mode == "RGBA"
    assert image.getexif()[0x0112] == 6


def test_what_fits_into_no_format_that_is_written() -> None:
    data = encoded(np.zeros((50, 50), np.uint16), "JPEG2000")
    with pytest.raises(DataError, match="pixels of mode I;16 do not fit into a JPEG"):
        resized({"jpg": data}, 32, 90)


def with_exif(data: bytes, exif: bytes) -> bytes:
    """A PNG or JPEG as Pillow writes it, with such Exif, whole or not."""
    if data.startswith(b"\x89PNG"):
        chunk = b"eXIf" + exif
        whole = struct.pack(">I", len(exif)) + chunk + struct.pack(">I", zlib.crc32(chunk))
        return data[:33] + whole + data[33:]
    segment = b"Exif\0\0" + exif
    return data[:20] + b"\xff\xe1" + struct.pack(">H", len(segment) + 2) + segment + data[20:]


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
@pytest.mark.parametrize("exif", [b"II*\0", b"no Exif at all"])
def test_exif_that_is_damaged_is_left_out(kind: str, exif: bytes) -> None:
    how = {"dpi": (72, 72)} if kind == "JPEG" else {}
    data = with_exif(encoded(noise(80), kind, **how), exif)
    image = opened(resized({"image": data}, 40, 90, images=("image",))["image"])
    assert image.size == (40, 40)
    assert not dict(image.getexif())


def test_whatever_a_decoder_raises_leaves_its_image_out(tmp_path: Path) -> None:
    good = encoded(noise(80), "TIFF")
    tag = good.index(struct.pack("<H", 273), struct.unpack_from("<I", good, 4)[0])
    bad = bytearray(good)
    struct.pack_into("<HII", bad, tag + 2, 5, 1, 8)  # where its pixels begin is a fraction
    with pytest.raises(TypeError):
        opened(bytes(bad))
    (tmp_path / "data").mkdir()
    (tmp_path / "data/good.tif").write_bytes(good)
    (tmp_path / "data/bad.tif").write_bytes(bad)
    with pytest.raises(DataError, match=r"data/bad\.tif: .*integer"):
        pack(tmp_path / "data", tmp_path / "packed", resize=32)
    meta = pack(tmp_path / "data", tmp_path / "packed", resize=32, skip=True)
    assert meta.count == 1
    assert [Path(one.path).name for one in meta.skipped] == ["bad.tif"]


def test_values_of_a_mask_in_a_gif_are_not_numbered_anew() -> None:
    mask = np.random.default_rng(0).choice([0, 255], (90, 60)).astype(np.uint8)
    out = io.BytesIO()
    Image.fromarray(mask).save(out, "GIF", optimize=False)
    assert opened(out.getvalue()).mode == "L"
    small = opened(resized({"gif": out.getvalue()}, 30, 90)["gif"])
    assert small.mode == "L"
    assert np.unique(np.asarray(small)).tolist() == [0, 255]


@pytest.mark.parametrize("name", ["left.jpeg", "jpe", "jfif"])
def test_a_jpeg_has_many_suffixes(name: str) -> None:
    assert opened(resized({name: encoded(noise(80), "JPEG")}, 32, 90)[name]).size == (32, 32)


def test_a_tiff_with_loss_is_made_smaller_without_more_of_it() -> None:
    from PIL import features

    if not features.check("libtiff"):
        pytest.skip("Pillow without libtiff")
    data = encoded(noise(80), "TIFF", compression="jpeg")
    small = opened(resized({"tif": data}, 32, 90)["tif"])
    assert small.info["compression"] == "tiff_lzw"

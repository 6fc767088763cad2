"""Make the JPEG files that image_classifier.py trains on.

There is nothing to download: the photographs come with scikit-image and scikit-learn, the letters
from matplotlib's fonts. Twelve classes are scenes, crops of one photograph each; eight are letters,
drawn large over a crop of any of these photographs. Every file is drawn from its own seed, so the
data are the same whenever they are made.

    python examples/make_images.py            # writes examples/data/images/<class>/<n>.jpg
"""

import argparse
import multiprocessing
import os
import random
import shutil
import tempfile
from functools import cache
from pathlib import Path

import matplotlib
import skimage.data
import sklearn.datasets
from PIL import Image, ImageDraw, ImageEnhance, ImageFont
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

SKIMAGE = Path(skimage.data.__file__).parent
SKLEARN = Path(sklearn.datasets.__file__).parent / "images"
FONTS = Path(matplotlib.get_data_path()) / "fonts" / "ttf"

SCENES = {
    "astronaut": SKIMAGE / "astronaut.png",
    "brick": SKIMAGE / "brick.png",
    "cameraman": SKIMAGE / "camera.png",
    "cat": SKIMAGE / "chelsea.png",
    "coffee": SKIMAGE / "coffee.png",
    "flower": SKLEARN / "flower.jpg",
    "grass": SKIMAGE / "grass.png",
    "gravel": SKIMAGE / "gravel.png",
    "motorcycle": SKIMAGE / "motorcycle_left.png",
    "retina": SKIMAGE / "retina.jpg",
    "rocket": SKIMAGE / "rocket.jpg",
    "temple": SKLEARN / "china.jpg",
}
LETTERS = "AEHKORTX"
FACES = [
    "DejaVuSans.ttf",
    "DejaVuSans-Bold.ttf",
    "DejaVuSans-Oblique.ttf",
    "DejaVuSansMono-Bold.ttf",
    "DejaVuSerif.ttf",
    "DejaVuSerif-Bold.ttf",
    "DejaVuSerif-Italic.ttf",
    "STIXGeneral.ttf",
    "STIXGeneralBol.ttf",
    "cmr10.ttf",
    "cmss10.ttf",
    "cmtt10.ttf",
]
CLASSES = sorted(SCENES) + [f"letter_{letter}" for letter in LETTERS]
QUALITY = 90


@cache
def photograph(scene):
    return Image.open(SCENES[scene]).convert("RGB")


def crop_of(scene, width, height, rng):
    """Return a random part of a photograph at the wanted size, flipped and lit at random."""
    photo = photograph(scene)
    scale = rng.uniform(0.55, 1.0) * min(photo.width / width, photo.height / height)
    crop_width, crop_height = scale * width, scale * height
    left = rng.uniform(0, photo.width - crop_width)
    top = rng.uniform(0, photo.height - crop_height)
    box = (left, top, left + crop_width, top + crop_height)
    image = photo.resize((width, height), Image.Resampling.BICUBIC, box=box)
    if rng.random() < 0.5:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    image = ImageEnhance.Brightness(image).enhance(rng.uniform(0.6, 1.3))
    return ImageEnhance.Color(image).enhance(rng.uniform(0.3, 1.3))


def draw_letter(image, letter, rng):
    """Draw the letter over the middle of the image: any face and colour, large, slightly turned."""
    size = int(min(image.size) * rng.uniform(0.6, 0.95))
    font = ImageFont.truetype(FONTS / rng.choice(FACES), size)
    mask = Image.new("L", image.size)
    shift_x, shift_y = (rng.uniform(-0.08, 0.08) * side for side in image.size)
    middle = (image.width / 2 + shift_x, image.height / 2 + shift_y)
    ImageDraw.Draw(mask).text(middle, letter, fill=255, font=font, anchor="mm")
    mask = mask.rotate(rng.uniform(-20, 20), Image.Resampling.BILINEAR)
    colour = tuple(rng.randrange(256) for _ in range(3))
    image.paste(colour, mask=mask)


def make_one(job):
    folder, label, number = job
    rng = random.Random(f"{label}/{number}")
    width, height = rng.randint(320, 640), rng.randint(320, 480)
    if rng.random() < 0.25:
        width, height = height, width
    if label in SCENES:
        image = crop_of(label, width, height, rng)
    else:
        image = crop_of(rng.choice(sorted(SCENES)), width, height, rng)
        draw_letter(image, label.removeprefix("letter_"), rng)
    image.save(folder / label / f"{number:04d}.jpg", quality=QUALITY)


def main():
    parser = argparse.ArgumentParser(description="make the images for image_classifier.py")
    parser.add_argument("--data", type=Path, default=Path(__file__).parent / "data" / "images")
    parser.add_argument("--per-class", type=int, default=270)
    args = parser.parse_args()

    if args.data.exists():
        print(f"{args.data} is already there; remove it to make the images anew")
        return

    args.data.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=".images-", dir=args.data.parent))
    try:
        for label in CLASSES:
            (unfinished / label).mkdir()
        jobs = [(unfinished, label, n) for label in CLASSES for n in range(args.per_class)]
        columns = (
            TextColumn("making images"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
        )
        with Progress(*columns) as progress, multiprocessing.Pool() as pool:
            for _ in progress.track(pool.imap_unordered(make_one, jobs, 32), total=len(jobs)):
                pass
        unfinished.chmod(0o755)
        os.rename(unfinished, args.data)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    print(f"{len(jobs)} images in {len(CLASSES)} classes written to {args.data}")


if __name__ == "__main__":
    main()

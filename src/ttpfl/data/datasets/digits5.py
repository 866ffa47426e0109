"""Digits-5: digits from five sources, in one npz file each."""

from pathlib import Path

import numpy as np

from ttpfl.data.images import DatasetInfo, Images, check_labels
from ttpfl.data.pictures import resized
from ttpfl.data.registry import dataset
from ttpfl.data.storage import read_images
from ttpfl.errors import DataError, DataMissingError

FOLDER = "digits5"

DIGITS5 = DatasetInfo(
    name="digits5",
    title="Digits-5: MNIST, SVHN, USPS, SynthDigits and MNIST-M",
    classes=tuple("0123456789"),
    domains=("mnist", "svhn", "usps", "syn", "mnist_m"),
    image_size=(28, 28),
    channels="RGB; mnist and usps are gray, repeated to RGB",
    mean=(0.5, 0.5, 0.5),
    std=(0.5, 0.5, 0.5),
    licence="each part its own: MNIST CC BY-SA 3.0; SVHN non-commercial use only; others none stated",
    homepage="https://arxiv.org/abs/1812.01754",
    instructions="digits5/mnist.npz, svhn.npz, usps.npz, syn.npz and mnist_m.npz, each with images x "
    "(uint8, any size, gray (N, H, W) or RGB (N, H, W, 3)) and labels y (0 to 9),",
    places=(f"{FOLDER}/*.npz",),
)


@dataset(DIGITS5)
def digits5(directory: Path) -> Images:
    """The five domains in order, resized to 28x28 RGB."""
    paths = [directory / FOLDER / f"{domain}.npz" for domain in DIGITS5.domains]
    if missing := [path.name for path in paths if not path.is_file()]:
        raise DataMissingError(
            f"digits5 is incomplete: there is no {', '.join(missing)} in {directory / FOLDER}"
        )
    parts = []
    for path in paths:
        x, y = read_images(path)
        if y is None:
            raise DataError(f"{path} has no labels 'y': add one digit per image")
        # The original SVHN labels the digit 0 as 10: an error is better than a guess.
        check_labels(y, len(x), len(DIGITS5.classes), f"y in {path}")
        parts.append((resized(x, DIGITS5.image_size), y))
    domain = np.repeat(np.arange(len(parts)), [len(y) for _, y in parts])
    x, y = map(np.concatenate, zip(*parts, strict=True))
    return Images(x, y, domain, DIGITS5)

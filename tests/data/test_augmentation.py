"""Random changes to pictures, against pillow, colorsys and what can be counted."""

import colorsys
import math

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance
from torch import Generator, Tensor

from ttpfl.data import federate
from ttpfl.data.augmentation import (
    augment,
    brightness,
    contrast,
    cropped,
    domainbed,
    flipped,
    gray,
    hue,
    jittered,
    saturation,
)
from ttpfl.errors import DataError
from ttpfl.federation import TrainSettings, train
from ttpfl.models import shallow_cnn


def generator(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


@pytest.fixture
def pictures() -> Tensor:
    return torch.rand(6, 3, 10, 12, generator=generator(7))


def as_pillow(picture: Tensor) -> Image.Image:
    return Image.fromarray((picture * 255).round().permute(1, 2, 0).numpy().astype(np.uint8))


@pytest.mark.parametrize(
    ("change", "enhancer"),
    [
        (brightness, ImageEnhance.Brightness),
        (contrast, ImageEnhance.Contrast),
        (saturation, ImageEnhance.Color),
    ],
)
@pytest.mark.parametrize("factor", [0.7, 1.0, 1.3])
def test_colours_are_those_of_pillow(change, enhancer, factor: float, pictures: Tensor) -> None:
    found = change(pictures, torch.full((6, 1, 1, 1), factor))
    for mine, picture in zip(found, pictures, strict=True):
        wanted = np.asarray(enhancer(as_pillow(picture)).enhance(factor), float) / 255
        assert np.abs(mine.permute(1, 2, 0).numpy() - wanted).max() < 2.5 / 255  # pillow rounds twice


@pytest.mark.parametrize("turn", [-0.3, -0.1, 0.0, 0.2, 0.3, 0.9])
def test_hue_is_that_of_colorsys(turn: float, pictures: Tensor) -> None:
    pictures[0, :, 0, 0], pictures[0, :, 0, 1] = 0.4, 0.0  # gray and black have none
    pictures[0, :, 0, 2] = torch.tensor([0.5, 0.5, 0.1])  # two are the highest
    found = hue(pictures, torch.full((6, 1, 1, 1), 1 + turn)).permute(0, 2, 3, 1).reshape(-1, 3)
    for mine, pixel in zip(found.tolist(), pictures.permute(0, 2, 3, 1).reshape(-1, 3).tolist(), strict=True):
        h, s, v = colorsys.rgb_to_hsv(*pixel)
        assert mine == pytest.approx(colorsys.hsv_to_rgb((h + turn) % 1, s, v), abs=2e-6)


def test_a_crop_is_a_part_of_the_picture_at_its_full_size() -> None:
    rows, columns = torch.meshgrid(torch.arange(40.0), torch.arange(30.0), indexing="ij")
    ramp = torch.stack([rows, columns, rows * 0]).expand(500, 3, 40, 30)
    found = cropped(ramp, (0.7, 1.0), (3 / 4, 4 / 3), generator())
    # The picture is a plane: how steep it is now, and where it is, tells which part was taken.
    high = (found[:, 0, 20, 15] - found[:, 0, 10, 15]) / 10
    wide = (found[:, 1, 20, 20] - found[:, 1, 20, 10]) / 10
    area, ratio = high * wide, wide * 30 / (high * 40)
    assert area.min() > 0.7 - 1e-4
    assert area.max() < 1 + 1e-4
    assert ratio.min() > 3 / 4 - 1e-4
    assert ratio.max() < 4 / 3 + 1e-4
    assert max(float(high.max()), float(wide.max())) < 1 + 1e-4  # within the picture
    assert float(area.mean()) == pytest.approx(0.80, abs=0.02)  # large ones fit in fewer shapes
    top = found[:, 0, 20, 15] - high * 20.5 + 0.5  # in pixels of the whole picture
    assert float(top.min()) > -1e-3
    assert float((top + high * 40).max()) < 40 + 1e-3
    assert torch.unique(top.round()).numel() > 5  # anywhere


def test_a_crop_of_everything_is_the_picture(pictures: Tensor) -> None:
    square = pictures[..., :10]
    torch.testing.assert_close(cropped(square, (1.0, 1.0), (1.0, 1.0), generator()), square)


def test_half_are_mirrored() -> None:
    pictures = torch.arange(4.0).expand(2000, 3, 5, 4)
    first = flipped(pictures, generator())[:, 0, 0, 0]
    assert set(first.tolist()) == {0.0, 3.0}
    assert float((first == 3).float().mean()) == pytest.approx(0.5, abs=5 * math.sqrt(0.25 / 2000))


def test_a_tenth_is_gray_and_all_stay_pictures() -> None:
    pictures = torch.rand(2000, 3, 6, 6, generator=generator(1))
    found = domainbed(pictures, generator())
    assert found.shape == pictures.shape
    assert found.min() >= 0
    assert found.max() <= 1 + 1e-6
    grays = (found == found[:, :1]).flatten(1).all(1).float().mean()
    assert float(grays) == pytest.approx(0.1, abs=5 * math.sqrt(0.09 / 2000))
    assert not torch.equal(found[0], found[1])


def test_every_order_of_colours_comes(pictures: Tensor) -> None:
    same = pictures[:1].expand(300, 3, 10, 12)
    found = jittered(same, 0.3, generator())
    assert len({round(float(picture.sum()), 5) for picture in found}) == 300  # each with factors of its own
    torch.testing.assert_close(jittered(pictures, 0.0, generator()), pictures)
    assert torch.equal(gray(pictures)[:, 0], gray(pictures)[:, 2])


def test_pictures_are_changed_in_training_alone_and_repeatably() -> None:
    choices = {"shift": "feature", "source_clients": 3, "target_clients": 1, "samples": 40}
    plain = federate("digits", **choices).population.source[0]
    population = federate("digits", options={"augmentation": "domainbed"}, **choices).population
    changed = population.source[0]
    assert torch.equal(plain.validation().x, changed.validation().x)
    assert not torch.equal(plain.train().x, changed.train().x)
    assert torch.equal(plain.train().y, changed.train().y)
    assert not torch.equal(changed.train().x, changed.train().x)  # anew each time

    def trained(workers: int) -> Tensor:
        torch.manual_seed(0)
        settings = TrainSettings(rounds=2, batch_size=8, workers=workers)
        state = train(shallow_cnn(10, image_size=28), population.source, settings).model.state_dict()
        return torch.cat([tensor.flatten().double() for tensor in state.values()])

    assert torch.equal(trained(0), trained(2))


def test_unknown_augmentations_are_refused_before_anything_is_read() -> None:
    with pytest.raises(DataError, match="unknown augmentation 'flip'; did you mean 'flips'"):
        federate("cifar10", data_dir="no such folder", options={"augmentation": "flip"})
    with pytest.raises(DataError, match="Available: domainbed, flips"):
        augment("mixup", torch.zeros(1, 3, 4, 4))

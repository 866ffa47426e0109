"""Image corruptions: closed forms, golden arrays, seeds, sizes, severities.

`python tests/data/test_corruptions.py` writes the golden arrays anew; do so only for a change on purpose.
"""

import colorsys
import hashlib
import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from scipy import ndimage

from ttpfl.data.corruptions import (
    SOURCE_CORRUPTIONS,
    TARGET_CORRUPTIONS,
    contact_sheet,
    corrupt,
    frost,
    names,
)
from ttpfl.data.corruptions.batch import Batch
from ttpfl.data.corruptions.edges import canny
from ttpfl.data.corruptions.registry import get
from ttpfl.errors import DataError, TtpflError

GOLDEN = Path(__file__).with_name("corruptions.npz")
SEVERITIES = (1, 2, 3, 4, 5)
ALL = SOURCE_CORRUPTIONS + TARGET_CORRUPTIONS


def natural(count: int, side: int = 32) -> np.ndarray:
    """Coloured clouds with a sharp box: detail at all scales, as photographs have."""
    random = np.random.default_rng(5)
    down, right = np.fft.fftfreq(side)[:, None], np.fft.rfftfreq(side)
    falling = 1 / np.maximum(np.hypot(down, right), 1 / side)  # as the spectrum of photographs does
    noise = np.fft.rfft2(random.standard_normal((count, 4, side, side)))
    clouds = np.fft.irfft2(falling * noise, (side, side)).transpose(0, 2, 3, 1)
    images = 128 + 45 * (0.8 * clouds[..., 3:] + 0.6 * clouds[..., :3]) / clouds.std()
    for image, (top, left) in zip(images, random.integers(side // 2, size=(count, 2)), strict=True):
        image[top : top + side // 3, left : left + side // 4] = random.uniform(0, 255, 3)
    return np.clip(np.rint(images), 0, 255).astype(np.uint8)


def constant(value: int, count: int = 1, side: int = 32) -> np.ndarray:
    return np.full((count, side, side, 3), value, np.uint8)


def golden_image() -> np.ndarray:
    """A gradient, waves, a box and a disk in 32x32 pixels, without random numbers."""
    y, x = np.mgrid[:32, :32] / 31
    image = np.stack([200 * x + 30, 120 + 90 * np.sin(9 * y), 220 - 180 * x * y], -1)
    image[5:14, 18:28] = (230, 40, 60)
    image[(y - 0.7) ** 2 + (x - 0.3) ** 2 < 0.04] = (20, 30, 90)
    return np.rint(image).astype(np.uint8)


def golden_arrays(name: str) -> np.ndarray:
    """Severity 1 and 5."""
    return np.concatenate([corrupt(golden_image()[None], name, severity, [(3, 14)]) for severity in (1, 5)])


def distances(name: str, images: np.ndarray) -> list[float]:
    """Mean absolute difference to the clean images at each severity."""
    return [
        float(np.abs(corrupt(images, name, severity, range(len(images))).astype(float) - images).mean())
        for severity in SEVERITIES
    ]


# What there is, and what is refused


def test_names() -> None:
    assert len(SOURCE_CORRUPTIONS) == 15
    assert TARGET_CORRUPTIONS == ("speckle_noise", "gaussian_blur", "saturate", "spatter")
    assert names() == ALL
    assert all(len(get(name).severities) == 5 for name in ALL)


def test_unknown_name() -> None:
    with pytest.raises(
        DataError, match=r"'motion-blur'; did you mean 'motion_blur'.*gaussian_noise.*spatter"
    ):
        corrupt(constant(0), "motion-blur", 1, [0])
    with pytest.raises(ValueError, match=r"unknown corruption 'xyz'\. Available: gaussian_noise"):
        corrupt(constant(0), "xyz", 1, [0])
    assert issubclass(DataError, TtpflError)


@pytest.mark.parametrize("severity", [0, 6, -1, 2.0, "3", None, True])
def test_bad_severity(severity: object) -> None:
    with pytest.raises(DataError, match="severity must be an integer from 1 to 5, got"):
        corrupt(constant(0), "fog", severity, [0])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (constant(0).astype(np.float32), "uint8 .* got dtype float32"),
        (constant(0).tolist(), "uint8 .* got list"),
        (constant(0)[0], r"shape \(images, height, width, 3\), got \(32, 32, 3\)"),
        (constant(0)[..., :1], "repeat a gray channel"),
        (constant(0).transpose(0, 3, 1, 2), "move channels to the end"),
        (constant(0, side=7), "7x7 pixels are too small"),
    ],
)
def test_bad_images(images: np.ndarray, message: str) -> None:
    with pytest.raises(DataError, match=message):
        corrupt(images, "fog", 1, [0])


@pytest.mark.parametrize(
    ("seeds", "message"),
    [
        ([0], "1 seeds for 2 images"),
        ([0, -1], "seed 1 is -1"),
        ([0, (1, -2)], r"seed 1 is \(1, -2\)"),
        ([0, ()], r"seed 1 is \(\)"),
        ([0, 1.5], r"a seed is 1.5 \(float\)"),
        ([0, None], "a seed is None"),
    ],
)
def test_bad_seeds(seeds: list, message: str) -> None:
    with pytest.raises(DataError, match=message):
        corrupt(constant(0, 2), "fog", 1, seeds)


def test_bad_textures() -> None:
    with pytest.raises(DataError, match="frost texture 0 has 20x40 pixels, the images have 32x32"):
        corrupt(constant(0), "frost", 1, [0], frost_textures=[np.zeros((20, 40, 3), np.uint8)])
    with pytest.raises(DataError, match="frost texture 1 must be a uint8 array"):
        corrupt(constant(0), "frost", 1, [0], [constant(0)[0], np.zeros((40, 40), np.uint8)])


# Seeds


@given(
    name=st.sampled_from(ALL),
    severity=st.sampled_from(SEVERITIES),
    seeds=st.lists(st.one_of(st.integers(0, 2**64), st.tuples(st.integers(0, 9), st.integers(0, 2**32)))),
    data=st.data(),
)
@settings(max_examples=150, deadline=None)
def test_an_image_does_not_depend_on_the_others(name: str, severity: int, seeds: list, data) -> None:
    images = natural(32)[: len(seeds)]
    seeds = seeds[: len(images)]
    together = corrupt(images, name, severity, seeds)
    assert together.shape == images.shape
    order = data.draw(st.permutations(range(len(images))))
    shuffled = corrupt(images[order], name, severity, [seeds[index] for index in order])
    assert np.array_equal(shuffled, together[order])
    for index in range(len(images)):
        alone = corrupt(images[index : index + 1], name, severity, seeds[index : index + 1])
        assert np.array_equal(alone[0], together[index])


@pytest.mark.parametrize("severity", [2, 4])  # spatter is water and mud
@pytest.mark.parametrize("name", ALL)
def test_portions_do_not_show(name: str, severity: int) -> None:
    images = np.concatenate([natural(64)] * 3)  # more than are computed at a time
    seeds = np.arange(len(images))
    together = corrupt(images, name, severity, seeds)
    apart = [corrupt(images[part], name, severity, seeds[part]) for part in np.array_split(seeds, 7)]
    assert np.array_equal(together, np.concatenate(apart))


@pytest.mark.parametrize("name", ALL)
def test_input_stays_and_layout_does_not_matter(name: str) -> None:
    images = natural(3)
    planes = np.ascontiguousarray(images.transpose(0, 3, 1, 2)).transpose(0, 2, 3, 1)
    planes.flags.writeable = False
    assert np.array_equal(corrupt(planes, name, 3, range(3)), corrupt(images, name, 3, range(3)))
    assert np.array_equal(images, natural(3))


def test_same_bytes_in_another_process() -> None:
    def digest() -> str:
        images = constant(90, 2)
        parts = [corrupt(images, name, 5, [(1, 2), 3]).tobytes() for name in ALL]
        return hashlib.sha256(b"".join(parts)).hexdigest()

    program = (
        "import hashlib, numpy as np\n"
        "from ttpfl.data.corruptions import corrupt, names\n"
        "images = np.full((2, 32, 32, 3), 90, np.uint8)\n"
        "parts = [corrupt(images, name, 5, [(1, 2), 3]).tobytes() for name in names()]\n"
        "print(hashlib.sha256(b''.join(parts)).hexdigest())"
    )
    other = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert other.stdout.strip() == digest()


RANDOM = [
    name
    for name in ALL
    if name
    not in {
        "defocus_blur",
        "zoom_blur",
        "brightness",
        "contrast",
        "pixelate",
        "jpeg_compression",
        "gaussian_blur",
        "saturate",
    }
]


@pytest.mark.parametrize("name", ALL)
def test_seeds_matter_where_there_is_chance(name: str) -> None:
    images = np.repeat(natural(1), 2, axis=0)
    first, second = corrupt(images, name, 5, [1, 2])
    assert np.array_equal(first, second) == (name not in RANDOM)


# Golden arrays


@pytest.mark.parametrize("name", ALL)
def test_golden(name: str) -> None:
    with np.load(GOLDEN) as golden:
        assert np.array_equal(golden["image"], golden_image())
        difference = golden_arrays(name).astype(int) - golden[name]
    assert np.abs(difference).max() <= 1


# Closed forms


def spread(name: str, severity: int) -> float:
    """Standard deviation over many pixels of value 0.6, before it is rounded to bytes."""
    batch = Batch(constant(153, 200), [np.random.default_rng(seed) for seed in range(200)])
    noise = get(name)(batch, severity).astype(float) - 0.6
    assert abs(noise.mean()) < 5 * noise.std() / np.sqrt(noise.size)
    return float(noise.std())


@pytest.mark.parametrize("severity", SEVERITIES)
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gaussian_noise", [0.04, 0.06, 0.08, 0.09, 0.10]),
        ("shot_noise", [(0.6 / photons) ** 0.5 for photons in (500, 250, 100, 75, 50)]),
        ("speckle_noise", [0.6 * sd for sd in (0.06, 0.1, 0.12, 0.16, 0.2)]),
    ],
)
def test_noise_spread(name: str, expected: list[float], severity: int) -> None:
    values = 200 * 32 * 32 * 3
    # Five standard errors of a standard deviation.
    assert spread(name, severity) == pytest.approx(expected[severity - 1], rel=5 / np.sqrt(2 * values))


@pytest.mark.parametrize("severity", SEVERITIES)
def test_impulse_fraction(severity: int) -> None:
    fraction = (0.01, 0.02, 0.03, 0.05, 0.07)[severity - 1]
    noisy = corrupt(constant(100, 200), "impulse_noise", severity, range(200))
    assert set(np.unique(noisy)) == {0, 100, 255}
    for value in (0, 255):
        bound = 5 * np.sqrt(fraction / 2 / noisy.size)
        assert (noisy == value).mean() == pytest.approx(fraction / 2, abs=bound)


@pytest.mark.parametrize("severity", SEVERITIES)
def test_brightness_and_saturate_follow_the_hsv_model(severity: int) -> None:
    plus = (0.05, 0.1, 0.15, 0.2, 0.3)[severity - 1]
    factor, more = ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2))[severity - 1]
    image = natural(1)
    image[0, 0, :4] = ((0, 0, 0), (255, 255, 255), (90, 90, 90), (255, 0, 0))
    brighter, saturated = np.empty((2, 32, 32, 3))
    for place in np.ndindex(32, 32):
        h, s, v = colorsys.rgb_to_hsv(*(image[0][place] / 255))
        brighter[place] = colorsys.hsv_to_rgb(h, s, min(1, v + plus))
        saturated[place] = colorsys.hsv_to_rgb(h, min(1, s * factor + more), v)
    assert np.abs(corrupt(image, "brightness", severity, [0])[0] - 255 * brighter).max() < 0.51
    assert np.abs(corrupt(image, "saturate", severity, [0])[0] - 255 * saturated).max() < 0.51


def test_saturate_on_grey() -> None:
    assert all((corrupt(constant(200), "saturate", s, [0]) == 200).all() for s in (1, 2, 3))
    assert (corrupt(constant(200), "saturate", 5, [0]) == (200, 160, 160)).all()


@pytest.mark.parametrize("severity", SEVERITIES)
def test_contrast_around_the_channel_mean(severity: int) -> None:
    factor = (0.75, 0.5, 0.4, 0.3, 0.15)[severity - 1]
    images = natural(4)
    mean = images.mean((1, 2), keepdims=True)
    expected = mean + factor * (images - mean)
    assert np.abs(corrupt(images, "contrast", severity, range(4)) - expected).max() < 0.51


@pytest.mark.parametrize("severity", SEVERITIES)
def test_jpeg_is_what_pillow_makes(severity: int) -> None:
    file = io.BytesIO()
    image = natural(1)
    Image.fromarray(image[0]).save(file, "JPEG", quality=(80, 65, 58, 50, 40)[severity - 1])
    assert np.array_equal(corrupt(image, "jpeg_compression", severity, [0])[0], np.asarray(Image.open(file)))


@pytest.mark.parametrize("severity", SEVERITIES)
def test_pixelate_leaves_as_many_values(severity: int) -> None:
    across = np.zeros((1, 32, 32, 3), np.uint8) + np.arange(0, 256, 8, dtype=np.uint8)[:, None]
    result = corrupt(across, "pixelate", severity, [0])[0, 0, :, 0].astype(int)
    assert len(np.unique(result)) >= (30, 28, 27, 24, 20)[severity - 1]
    assert abs(result.mean() - across[0, 0, :, 0].mean()) < 1


@pytest.mark.parametrize(("severity", "sd"), list(enumerate((0.4, 0.6, 0.7, 0.8, 1.0), 1)))
@pytest.mark.parametrize("side", [32, 64])
def test_gaussian_blur_is_scipys(severity: int, sd: float, side: int) -> None:
    image = natural(1, side)
    expected = [
        ndimage.gaussian_filter(image[0, :, :, c].astype(float), sd * side / 32, mode="nearest")
        for c in range(3)
    ]
    result = corrupt(image, "gaussian_blur", severity, [0])[0]
    assert np.abs(result - np.stack(expected, -1)).max() < 0.51


KEEP_CONSTANTS = [name for name in ALL if name.endswith("blur")]
KEEP_CONSTANTS += ["contrast", "elastic_transform", "pixelate"]


@pytest.mark.parametrize("name", KEEP_CONSTANTS)
@pytest.mark.parametrize("severity", SEVERITIES)
def test_a_constant_image_stays(name: str, severity: int) -> None:
    assert (corrupt(constant(77, 3), name, severity, range(3)) == 77).all()


def test_defocus_blur_is_a_disk() -> None:
    image = constant(0)
    image[0, 15, 15] = 255
    cross = corrupt(image, "defocus_blur", 4, [0])[0, :, :, 0]
    assert (cross > 0).sum() == 5
    assert (cross[cross > 0] == 51).all()
    square = corrupt(image, "defocus_blur", 5, [0])[0, 14:17, 14:17, 0]
    assert (square == round(255 / 9)).all()


@pytest.mark.parametrize("severity", SEVERITIES)
def test_motion_blur_draws_a_line_to_one_side(severity: int) -> None:
    radius, sd = ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5))[severity - 1]
    step = np.arange(2 * radius + 1)
    weight = np.exp(-0.5 * (step / sd) ** 2)
    images = constant(0, 40)
    images[:, 16, 16] = 255
    result = corrupt(images, "motion_blur", severity, range(40))[..., 0].astype(float)
    mass = result.sum((1, 2))
    down = (result * np.arange(32)[:, None]).sum((1, 2)) / mass - 16
    right = (result * np.arange(32)).sum((1, 2)) / mass - 16
    assert np.abs(mass / 255 - 1).max() < 0.05
    assert np.abs(np.hypot(down, right) - (step * weight).sum() / weight.sum()).max() < 0.5
    angle = np.rad2deg(np.arctan2(-down, -right))
    assert np.abs(angle).max() < 55  # offsets are whole pixels
    assert angle.min() < -25
    assert angle.max() > 25


@pytest.mark.parametrize("severity", [1, 5])
def test_zoom_blur_against_scipys_zoom(severity: int) -> None:
    image = natural(1)[0].astype(float)
    total = image.copy()
    steps = (6, 26)[severity // 5]
    for step in range(steps):
        factor = 1 + step / 100
        kept = int(np.ceil(32 / factor))
        begin = (32 - kept) // 2
        piece = image[begin : begin + kept, begin : begin + kept]
        larger = ndimage.zoom(piece, (factor, factor, 1), order=1)
        trim = (len(larger) - 32) // 2
        total += larger[trim : trim + 32, trim : trim + 32]
    result = corrupt(natural(1), "zoom_blur", severity, [0])[0]
    assert np.abs(result - total / (steps + 1)).max() < 0.51


def test_glass_blur_moves_pixels_but_keeps_them() -> None:
    image = np.arange(1024, dtype=np.uint16).reshape(32, 32)
    coded = np.stack([image // 32 * 8, image % 32 * 8, image * 0], -1).astype(np.uint8)
    result = corrupt(coded[None], "glass_blur", 1, [0])[0]  # its blur is too small to do anything
    assert sorted(map(tuple, result.reshape(-1, 3))) == sorted(map(tuple, coded.reshape(-1, 3)))
    moved = np.abs(result.astype(int) - coded).max(-1) / 8
    assert 0.5 < (moved > 0).mean() < 1
    assert np.median(moved) <= 2


@pytest.mark.parametrize("severity", SEVERITIES)
def test_fog_on_a_constant_image(severity: int) -> None:
    strength = (0.2, 0.5, 0.75, 1, 1.5)[severity - 1]
    value = 0.6
    foggy = corrupt(constant(153, 20), "fog", severity, range(20))
    assert np.abs(foggy.min((1, 2, 3)) - 255 * value**2 / (value + strength)).max() < 0.51
    assert (foggy.max((1, 2, 3)) == 153).all()
    assert (foggy == foggy[..., :1]).all()


def test_snow_is_white_and_falls_down() -> None:
    black = corrupt(constant(0, 50), "snow", 3, range(50)).astype(float)
    assert (black == black[..., :1]).all()
    assert (corrupt(constant(255, 2), "snow", 5, [0, 1]) == 255).all()
    along, across = (np.abs(np.diff(black[..., 0], axis=axis)).mean() for axis in (1, 2))
    assert along < 0.8 * across


# Frost and spatter


def test_frost_has_the_statistics_of_the_usual_pictures() -> None:
    batch = Batch(constant(0, 3000), [np.random.default_rng(seed) for seed in range(3000)])
    pieces = frost.pieces(batch).astype(float)
    grey = pieces @ [0.299, 0.587, 0.114]
    means, spreads = grey.mean((1, 2)), grey.std((1, 2))
    assert means.min() >= 130
    assert means.max() <= 207
    assert spreads.min() >= 16
    assert spreads.max() <= 34
    red, green, blue = pieces.mean((1, 2)).T
    assert (red < green).all()
    assert (green < blue).all()
    assert means.max() - means.min() > 30  # pieces differ


def test_frost_weights() -> None:
    batch = Batch(constant(0, 2), [np.random.default_rng(seed) for seed in (8, 9)])
    pieces = frost.pieces(batch)
    result = corrupt(constant(40, 2), "frost", 5, [8, 9])
    assert np.abs(result - (0.75 * 40 + 0.45 * pieces)).max() < 0.51


def test_frost_from_own_pictures() -> None:
    own = np.arange(50 * 60 * 3).reshape(50, 60, 3).astype(np.uint8)
    batch = Batch(constant(0), [np.random.default_rng(4)], [Image.fromarray(own)])
    piece = frost.pieces(batch)[0]
    windows = np.lib.stride_tricks.sliding_window_view(own, (32, 32, 3))[:, :, 0]
    assert (windows == piece).all((2, 3, 4)).any()
    result = corrupt(constant(0), "frost", 1, [4], frost_textures=[own])[0]
    assert np.abs(result - 0.2 * piece).max() < 0.51
    flat = [np.full((32, 32, 3), value, np.uint8) for value in (100, 200)]
    several = corrupt(constant(0, 20), "frost", 1, range(20), frost_textures=flat)
    assert set(np.unique(several)) == {20, 40}


@pytest.mark.parametrize("severity", [1, 2, 3])
@pytest.mark.parametrize("side", [32, 72])
def test_water_is_light_and_coloured(severity: int, side: int) -> None:
    wet = corrupt(constant(0, 50, side), "spatter", severity, range(50)).astype(float)
    covered = wet.max(-1) > 0
    assert 0.005 < covered.mean() < 0.6
    # The brightest point of each image has the full opacity of one half.
    assert np.isin(wet.max((1, 2, 3)), (0, 119)).all()
    assert (wet.max((1, 2, 3)) == 119).mean() > 0.9
    assert np.abs(wet[..., 1] - wet[..., 0] * 238 / 175).max() < 1.5
    assert (wet[..., 1] == wet[..., 2]).all()


@pytest.mark.parametrize("severity", [4, 5])
@pytest.mark.parametrize("side", [32, 72])
def test_mud_covers_or_not(severity: int, side: int) -> None:
    muddy = corrupt(constant(255, 50, side), "spatter", severity, range(50))
    red = muddy[..., 0]
    assert set(np.unique(red[red > 0.2 * 255 + 0.8 * 63 + 0.5])) == {255}
    assert 0.01 < (red < 255).mean() < 0.5
    assert (muddy.min((0, 1, 2)) == (63, 42, 20)).all()


def test_no_drops_no_change() -> None:
    batch = Batch(constant(9), [np.random.default_rng(0)])
    dry = get("spatter").function(batch, 0.1, 0.0, 1.0, 0.7, 0.5, False)
    assert np.array_equal(dry, batch.images)


def test_canny_follows_a_line_until_it_fades() -> None:
    layers = np.zeros((2, 20, 24), np.uint8)
    layers[0, 10:] = np.linspace(60, 0, 24).astype(np.uint8)  # fades from strong to nothing
    layers[1, 10:] = 30  # slope 120: too weak on its own
    edges = canny(layers, 50, 150)
    slope = 4 * np.linspace(60, 0, 24)
    assert not edges[1].any()
    assert (edges.any(1)[0] == (slope > 50)).mean() > 0.9
    assert (edges[0].sum(0) <= 1).all()


def test_canny_closes_around_a_drop() -> None:
    y, x = np.mgrid[:32, :32]
    drop = ((y - 15) ** 2 + (x - 16) ** 2 < 64).astype(np.uint8)[None] * 200
    rim = canny(drop, 50, 150)[0]
    regions, count = ndimage.label(~rim)
    assert count == 2  # inside and outside
    assert regions[15, 16] != regions[0, 0]


# Severities


NOT_ALWAYS_GROWING = {"glass_blur", "motion_blur", "frost", "elastic_transform", "saturate", "spatter"}


@pytest.mark.parametrize("name", [name for name in ALL if name not in NOT_ALWAYS_GROWING])
def test_distortion_grows(name: str) -> None:
    assert (np.diff(distances(name, natural(128))) > 0).all()


def test_motion_blur_grows() -> None:
    one, two, three, four, five = distances("motion_blur", natural(128))
    assert one < two < three < five
    assert four == pytest.approx(three, rel=0.01)  # the constants differ only beyond 3 sd


def test_glass_blur_grows_with_the_iterations() -> None:
    one, two, three, four, five = distances("glass_blur", natural(128))
    assert max(one, two, three) < min(four, five)
    assert one == pytest.approx(two, rel=0.01)  # gaussians of 0.05 and 0.25 pixels do nothing
    assert three < two  # more blur evens out what the same swaps did
    assert five < four


def test_spatter_grows_as_water_and_as_mud() -> None:
    one, two, three, four, five = distances("spatter", natural(128))
    assert one < two < three
    assert one < four < five


def test_frost_hides_more_and_more() -> None:
    # The mean change peaks at severity 3, where the picture behind is not yet darkened. Dark images, or
    # clipping would hide most at 3 as well.
    images = natural(128) // 2
    clean = images.reshape(128, -1).astype(float)
    likeness = []
    for severity in SEVERITIES:
        icy = corrupt(images, "frost", severity, range(128)).reshape(128, -1).astype(float)
        likeness.append(np.mean([np.corrcoef(a, b)[0, 1] for a, b in zip(clean, icy, strict=True)]))
    assert (np.diff(likeness) < 0).all()


def test_elastic_ripples_grow() -> None:
    # The affine pull shrinks with the severity, as the constants say; the ripples on top of it grow.
    ramp = np.zeros((1, 32, 32, 3), np.uint8)
    ramp[..., 0] = 8 * np.arange(32)[:, None]
    ramp[..., 1] = 8 * np.arange(32)
    inner = np.s_[:, 8:24, 8:24, :2]
    y, x = np.mgrid[8:24, 8:24].reshape(2, -1)
    plane = np.stack([y, x, np.ones_like(y)], -1)
    pulls, ripples = [], []
    for severity in SEVERITIES:
        warped = corrupt(ramp.repeat(100, 0), "elastic_transform", severity, range(100)) / 8
        shift = (warped - ramp / 8)[inner].reshape(100, 256, 2)
        affine = plane @ np.linalg.pinv(plane) @ shift
        pulls.append(affine.std())
        ripples.append((shift - affine).std())
    assert (np.diff(pulls) < 0).all()
    assert (np.diff(ripples) > 0).all()
    assert ripples[0] < 0.05  # nothing but rounding


def test_saturate_takes_colour_and_then_adds_it() -> None:
    images = natural(64)
    chroma = [np.ptp(images, -1).mean()]
    chroma += [np.ptp(corrupt(images, "saturate", s, range(64)), -1).mean() for s in SEVERITIES]
    clean, one, two, three, four, five = chroma
    assert two < one < clean < three < four < five


# Sizes


@pytest.mark.parametrize(
    "shape", [(8, 8), (16, 16), (28, 28), (32, 32), (64, 64), (72, 72), (24, 40), (45, 31)]
)
@pytest.mark.parametrize("name", ALL)
def test_all_sizes(name: str, shape: tuple[int, int]) -> None:
    images = natural(4, 128)[:, 30 : 30 + shape[0], 30 : 30 + shape[1]]
    for severity in SEVERITIES:
        result = corrupt(images, name, severity, range(4))
        assert result.shape == images.shape
        assert result.dtype == np.uint8
    # At 8x8 pixels the gaussian blur of severity 5 has an sd of a quarter of a pixel: nothing.
    assert min(shape) == 8 or (result != images).any((1, 2, 3)).all()


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("value", [0, 255])
def test_black_and_white_images(name: str, value: int) -> None:
    for severity in SEVERITIES:  # warnings of a division by zero would be errors
        result = corrupt(constant(value, 2), name, severity, [0, 1])
        assert result.shape == (2, 32, 32, 3)
        assert result.dtype == np.uint8


def test_no_images() -> None:
    assert corrupt(constant(0, 0), "fog", 1, []).shape == (0, 32, 32, 3)


PER_PIXEL = {"gaussian_noise", "shot_noise", "impulse_noise", "speckle_noise", "jpeg_compression", "pixelate"}


@pytest.mark.parametrize("name", [name for name in ALL if name not in PER_PIXEL])
@pytest.mark.parametrize("side", [28, 64, 72])
def test_as_strong_at_every_size(name: str, side: int) -> None:
    images = natural(48)
    resized = np.stack([Image.fromarray(image).resize((side, side)) for image in images])
    for severity in (3, 5):
        usual, other = (
            np.abs(corrupt(x, name, severity, range(48)).astype(float) - x).mean() for x in (images, resized)
        )
        assert 0.5 < other / usual < 2


# The picture


def test_contact_sheet(tmp_path: Path) -> None:
    image = natural(1)[0]
    contact_sheet(image, tmp_path / "sheet.png", seed=6)
    with Image.open(tmp_path / "sheet.png") as file:
        sheet = np.asarray(file)
    fog = ALL.index("fog")
    cell = sheet[28 + fog * 134 :, 170 + 5 * 134 :][:128, :128]
    assert np.array_equal(cell[::4, ::4], corrupt(image[None], "fog", 5, [6])[0])
    clean = sheet[28 + fog * 134 :, 170:][:128, :128]
    assert np.array_equal(clean[3::4, 3::4], image)


def test_contact_sheet_of_several(tmp_path: Path) -> None:
    images = natural(2)
    contact_sheet(images, tmp_path / "sheet.png")
    with Image.open(tmp_path / "sheet.png") as file:
        sheet = np.asarray(file)
    assert np.array_equal(sheet[28 + 134 :, 170:][:128:4, :128:4], images[1])
    with pytest.raises(DataError, match="there is no image to show"):
        contact_sheet(images[:0], tmp_path / "none.png")


if __name__ == "__main__":
    np.savez_compressed(GOLDEN, image=golden_image(), **{name: golden_arrays(name) for name in ALL})

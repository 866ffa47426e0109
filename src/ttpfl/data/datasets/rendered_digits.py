"""Printed digits in matplotlib's fonts on cluttered, coloured backgrounds."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ttpfl.data.extras import extra

FONTS = (
    *("DejaVuSans", "DejaVuSans-Bold", "DejaVuSans-Oblique", "DejaVuSans-BoldOblique"),
    *("DejaVuSansMono", "DejaVuSansMono-Bold", "DejaVuSerif", "DejaVuSerif-Bold", "DejaVuSerif-Italic"),
    *("STIXGeneral", "STIXGeneralBol", "STIXGeneralItalic", "STIXGeneralBolIta"),
    *("cmb10", "cmr10", "cmss10", "cmtt10"),
)
SIDE = 28
SCALE = 2  # drawn larger and scaled down, for smooth edges
CANVAS = (SIDE * SCALE, SIDE * SCALE)
SIZES = (40, 46, 52, 58)  # of the font, in pixels of the canvas
CONTRAST = 90  # least difference in brightness between digit and background


def rendered(rng: np.random.Generator, count: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """`count` images (count, 28, 28, 3) and their labels, all ten digits equally often."""
    fonts = _fonts()
    y = np.arange(count, dtype=np.int64) * 10 // count
    return np.stack([_draw(str(digit), fonts, rng) for digit in y]), y


def _fonts() -> list[Any]:
    folder = Path(extra("matplotlib").get_data_path()) / "fonts" / "ttf"
    font = extra("PIL.ImageFont")
    # Every build of pillow has the basic engine; others can place glyphs differently.
    basic = font.Layout.BASIC
    return [
        font.truetype(folder / f"{name}.ttf", size, layout_engine=basic) for name in FONTS for size in SIZES
    ]


def _draw(digit: str, fonts: list[Any], rng: np.random.Generator) -> NDArray[np.uint8]:
    image = extra("PIL.Image")
    ground, ink = _colours(rng)
    picture = image.new("RGB", CANVAS, ground)
    font = fonts[rng.integers(len(fonts))]
    _clutter(picture, ground, rng)
    if rng.random() < 0.5:  # a neighbour, as in a house number, mostly outside
        side = rng.choice([-1, 1])
        _put(picture, str(rng.integers(10)), font, ink, (side * rng.uniform(28, 36), 0), rng)
    _put(picture, digit, font, ink, (rng.uniform(-4, 4), rng.uniform(-4, 4)), rng)
    small = np.asarray(picture.resize((SIDE, SIDE), image.Resampling.BOX), np.float64)
    noisy = small + rng.uniform(2, 18) * rng.standard_normal(small.shape)
    return np.clip(np.round(noisy), 0, 255).astype(np.uint8)


def _colours(rng: np.random.Generator) -> tuple[tuple[int, ...], tuple[int, ...]]:
    while True:
        ground, ink = rng.integers(0, 256, (2, 3))
        if abs(_brightness(ground) - _brightness(ink)) >= CONTRAST:
            return tuple(ground.tolist()), tuple(ink.tolist())


def _brightness(colour: NDArray[np.int64]) -> float:
    return float(colour @ np.array([0.299, 0.587, 0.114]))


def _clutter(picture: Any, ground: tuple[int, ...], rng: np.random.Generator) -> None:
    """Draw lines and ellipses in colours near the background's, so that they never hide the digit."""
    pen = extra("PIL.ImageDraw").Draw(picture)
    for _ in range(rng.integers(1, 5)):
        colour = tuple(np.clip(np.array(ground) + rng.integers(-60, 61, 3), 0, 255).tolist())
        corners = rng.integers(-10, CANVAS[0] + 10, 4).tolist()
        if rng.random() < 0.5:
            pen.line(corners, fill=colour, width=int(rng.integers(2, 7)))
        else:
            left, top, right, bottom = corners
            box = [min(left, right), min(top, bottom), max(left, right), max(top, bottom)]
            pen.ellipse(box, fill=colour)


def _put(
    picture: Any, digit: str, font: Any, ink: tuple[int, ...], shift: tuple[float, float],
    rng: np.random.Generator,
) -> None:  # fmt: skip
    """Draw a digit, rotated by up to 20 degrees, at `shift` from the centre."""
    image = extra("PIL.Image")
    mask = image.new("L", CANVAS, 0)
    left, top, right, bottom = font.getbbox(digit)
    # Centred by its bounding box, because fonts place digits very differently.
    place = ((CANVAS[0] - left - right) / 2 + shift[0], (CANVAS[1] - top - bottom) / 2 + shift[1])
    extra("PIL.ImageDraw").Draw(mask).text(place, digit, fill=255, font=font)
    mask = mask.rotate(rng.uniform(-20, 20), image.Resampling.BILINEAR)
    picture.paste(ink, mask=mask)

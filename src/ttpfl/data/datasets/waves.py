"""Made-up signals of made-up persons, to try out what needs persons; nothing is downloaded."""

from pathlib import Path
from typing import Annotated

import numpy as np

from ttpfl.data.images import DatasetInfo
from ttpfl.data.natural_clients import NaturalClients, by_client
from ttpfl.data.option_types import Seed
from ttpfl.data.registry import dataset
from ttpfl.util.settings_kit import integer

CLASSES = ("slow", "middle", "fast")
CHANNELS, TIME = 3, 64
CYCLES = (2.0, 3.0, 4.0)  # of each class, in a signal

WAVES = DatasetInfo(
    name="waves",
    title="Made-up waves: three frequencies, drawn by made-up persons",
    classes=CLASSES,
    domains=(),
    image_size=(0, 0),
    channels="three, each a wave with noise",
    mean=(),
    std=(),
    licence="generated, free of rights",
    homepage="",
    instructions="nothing",
    natural=True,
    shape=(CHANNELS, TIME),
)


@dataset(WAVES)
def waves(
    directory: Path,
    persons: Annotated[int, integer(2)] = 12,
    samples: Annotated[int, integer(2)] = 60,
    seed: Seed = 0,
) -> NaturalClients:
    """Each person has an own pace, height and level in each channel, and draws class by class."""
    random = np.random.default_rng(seed)
    client = np.repeat(np.arange(persons), samples)
    y = np.tile(np.arange(samples) * len(CLASSES) // samples, persons)
    pace, height = random.normal(1, 0.06, persons), random.lognormal(0, 0.4, (persons, CHANNELS, 1))
    level = random.normal(0, 0.7, (persons, CHANNELS, 1))
    phase = random.uniform(0, 2 * np.pi, (len(y), CHANNELS, 1))
    turns = (np.array(CYCLES)[y] * pace[client])[:, None, None] * np.linspace(0, 1, TIME)
    clean = height[client] * np.sin(phase + 2 * np.pi * turns) + level[client]
    x = (clean + random.normal(0, 0.6, clean.shape)).astype(np.float32)
    names = [f"person-{number}" for number in range(persons)]
    return NaturalClients(by_client(x, y, client, names), WAVES)

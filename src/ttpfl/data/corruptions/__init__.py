"""Image corruptions: 15 for source clients and 4 that only target clients see.

The constants are those of the CIFAR-10-C benchmark, for images of 32x32 pixels. For other sizes, lengths in
pixels (blur radii, displacements, flakes, drops) are scaled by the shorter side divided by 32, so that a
corruption looks alike at every size. Noise and JPEG blocks are not scaled.

>>> import numpy as np
>>> grey = np.full((2, 32, 32, 3), 100, np.uint8)
>>> corrupt(grey, "brightness", severity=4, seeds=[0, 1])[:, 0, 0]
array([[151, 151, 151],
       [151, 151, 151]], dtype=uint8)
>>> len(SOURCE_CORRUPTIONS), TARGET_CORRUPTIONS
(15, ('speckle_noise', 'gaussian_blur', 'saturate', 'spatter'))
"""

from ttpfl.data.corruption_names import SOURCE_CORRUPTIONS, TARGET_CORRUPTIONS
from ttpfl.data.corruptions import blur, digital, noise, spatter, weather  # noqa: F401  (they register)
from ttpfl.data.corruptions.apply import corrupt
from ttpfl.data.corruptions.batch import Batch, Images, Pixels
from ttpfl.data.corruptions.registry import Corruption, corruption, names
from ttpfl.data.corruptions.sheet import contact_sheet

__all__ = [
    "SOURCE_CORRUPTIONS",
    "TARGET_CORRUPTIONS",
    "Batch",
    "Corruption",
    "Images",
    "Pixels",
    "contact_sheet",
    "corrupt",
    "corruption",
    "names",
]

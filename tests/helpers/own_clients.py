"""A recipe with clients of the user's own, and such clients."""

from pathlib import Path

import numpy as np

OWN = """
methods = ["none", "atp-batch"]
data = { name = "arrays" }
train = { rounds = 1, batch_size = 8 }
learn = { rounds = 1, batch_size = 4 }
test = { batch_size = 8 }
"""


def own_clients(folder: Path, seed: int, size: tuple[int, int] = (20, 20)) -> None:
    """Two source clients, and two target clients of which one has no labels, as the layout `arrays`."""
    random = np.random.default_rng(seed)
    for name in ("source/a", "source/b", "target/c", "target/d"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        x, y = random.integers(256, size=(40, *size, 3), dtype=np.uint8), random.integers(3, size=40)
        np.savez(folder / f"{name}.npz", x=x, **({} if name == "target/d" else {"y": y}))

import copy
import fcntl
import getpass
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from hypothesis import settings
from torch import nn

if find_spec("flwr") is None:  # the extra flower is not installed
    collect_ignore = ["flower"]

# The same examples each time: a red run is the change's doing. New ones: --hypothesis-profile default
settings.register_profile("repeatable", derandomize=True)
settings.load_profile("repeatable")

SHARED = Path(__file__).resolve().parents[2] / "shared"


def pytest_configure(config: pytest.Config) -> None:
    """Tests and doctests never touch the user's own data directory; parallel processes share this one."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        directory = tempfile.mkdtemp(prefix="ttpfl-tests-")
        os.environ["TTPFL_DATA"] = directory
        config.add_cleanup(lambda: shutil.rmtree(directory, ignore_errors=True))


@pytest.fixture(scope="session")
def real_data() -> Path:
    """A directory with real data sets: TTPFL_TEST_DATA, or unpacked from the folder beside the repository."""
    if given := os.environ.get("TTPFL_TEST_DATA"):
        return Path(given)
    unpack = SHARED / "data" / "unpack.py"
    if not unpack.exists():
        pytest.skip("no real data sets: set TTPFL_TEST_DATA to a folder with them (docs/how-to/data.md)")
    directory = Path(tempfile.gettempdir()) / f"ttpfl-real-data-{getpass.getuser()}"
    directory.mkdir(exist_ok=True)
    with open(directory / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one process unpacks, the others wait
        subprocess.run([sys.executable, unpack, "--to", directory, "cifar10", "digits5", "pacs"], check=True)
    return directory


def needed(path: Path) -> Path:
    """A file or folder of the real data; the test is skipped where it is missing."""
    if not path.exists():
        pytest.skip(f"no real data: put {path.name} into {path.parent} (docs/how-to/data.md)")
    return path


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)


@contextmanager
def untouched(model: nn.Module) -> Iterator[None]:
    """Fail if anything about the model, or the random state, is different afterwards."""

    def picture() -> list[object]:
        return [
            [
                (m.training, list(m._forward_hooks), list(m._forward_pre_hooks), list(m._backward_hooks))
                for m in model.modules()
            ],
            [(n, p.requires_grad, id(p), id(p.grad)) for n, p in model.named_parameters()],
            [(n, id(b)) for n, b in model.named_buffers()],
            random.getstate(),
        ]

    state, before = copy.deepcopy(model.state_dict()), picture()
    random_state = torch.get_rng_state()
    try:
        yield
    finally:
        assert picture() == before
        after = model.state_dict()
        assert after.keys() == state.keys()
        assert all(torch.equal(after[name], state[name]) for name in state)
        assert torch.equal(torch.get_rng_state(), random_state)

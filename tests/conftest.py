import fcntl
import getpass
import os
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from hypothesis import settings

pytest.register_assert_rewrite("tests.helpers")

from tests.helpers.real_data import SHARED  # noqa: E402

collect_ignore = ["fingerprints.py", "old_version/write.py"]  # programs that import what lies beside them
if find_spec("flwr") is None:  # the extra flower is not installed
    collect_ignore += ["flower", "helpers/flower"]

INTEROP = {  # test of another library: what has to be installed
    "test_hub": "huggingface_hub",
    "test_lightning": "lightning",
    "test_open_clip": "open_clip",
    "test_page": "open_clip",
    "test_timm": "timm",
    "test_torchvision": "torchvision",
    "test_trackers": "mlflow",
    "test_transformers": "transformers",
}
if "TTPFL_TEST_INTEROP" not in os.environ:  # set by make test-interop, which needs all of them
    collect_ignore += ["interop/test_compile.py"]  # takes a minute
    collect_ignore += [
        f"interop/{name}.py" for name, package in INTEROP.items() if find_spec(package) is None
    ]

# The same examples each time: a red run is the change's doing. New ones: --hypothesis-profile default
settings.register_profile("repeatable", derandomize=True)
settings.load_profile("repeatable")


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


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)

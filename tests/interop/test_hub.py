"""Rates go to the Hugging Face Hub and come back, by way of the real client and a server on this machine."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from torch import nn

import ttpfl
from tests.helpers.fake_hub import FakeHub, fake_hub
from tests.helpers.interop import needs
from ttpfl.core.rates_file import LARGEST

needs("huggingface_hub")
TOKEN, REPO = "hf_made_up", "north/rates"
BEGIN = """
import torch, ttpfl
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
"""
PUSH = """
rates = ttpfl.Rates.zeros(model)
for value in values:
    print(rates.with_values(torch.full_like(rates.values, value)).push_to_hub(repo_id, **options))
"""
PULL = """
rates = ttpfl.Rates.from_hub(repo_id, model, **options)
print(rates.values.unique().tolist())
"""


@pytest.fixture
def server() -> Iterator[FakeHub]:
    with fake_hub(TOKEN) as hub:
        yield hub


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "hub"


def ran(code: str, server: FakeHub, home: Path, token: str = TOKEN, **names: object) -> str:
    """Output of a program, in a process of its own: the client reads its settings when it is imported."""
    given = "".join(
        f"{name} = {value!r}\n" for name, value in ({"options": {}, "repo_id": REPO} | names).items()
    )
    settings = {"HF_ENDPOINT": server.address, "HF_HOME": str(home), "HF_TOKEN": token}
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + given + code],
        env=os.environ | settings | {"HF_HUB_DISABLE_TELEMETRY": "1", "NO_PROXY": "127.0.0.1"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout if done.returncode == 0 else f"{done.stderr} FAILED"


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def test_there_and_back(server: FakeHub, home: Path) -> None:
    first, second = ran(PUSH, server, home, values=[0.25, 0.5]).split()
    assert second.startswith(f"{server.address}/{REPO}/commit/")
    assert set(server.files(REPO)) == {"rates.safetensors", "README.md"}
    assert ran(PULL, server, home) == "[0.5]\n"
    commit = first.rpartition("/")[2]
    assert ran(PULL, server, home, options={"revision": commit}) == "[0.25]\n"
    asked = len(server.requests)
    assert ran(PULL, server, home, options={"revision": commit}) == "[0.25]\n"
    assert len(server.requests) == asked  # a commit in the cache needs no network


def test_what_is_uploaded_is_the_file_of_save(server: FakeHub, home: Path, tmp_path: Path) -> None:
    ran(PUSH, server, home, values=[0.25])
    path = tmp_path / "rates.safetensors"
    path.write_bytes(server.files(REPO)["rates.safetensors"])
    loaded = ttpfl.Rates.load(path, model=network())
    assert loaded.values.tolist() == [0.25] * 8
    text = server.files(REPO)["README.md"].decode()
    assert loaded.fingerprint in text
    assert loaded.table() in text


def test_options(server: FakeHub, home: Path) -> None:
    options = {"license": "cc-by-4.0", "base_model": "north/model", "private": True, "token": TOKEN}
    ran(PUSH, server, home, token="", values=[0.25], options=options)
    (asked,) = server.created
    assert (asked["name"], asked["organization"]) == ("rates", "north")
    assert asked.get("private") is True or asked.get("visibility") == "private"  # renamed in 1.0
    front = server.files(REPO)["README.md"].decode().split("---")[1]
    assert yaml.safe_load(front) == {
        "library_name": "ttpfl",
        "tags": ["federated-learning", "test-time-adaptation"],
        "license": "cc-by-4.0",
        "base_model": "north/model",
    }
    server.commit(REPO, {"README.md": b"edited"})
    ran(PUSH, server, home, values=[0.5], options={"readme": False})
    assert server.files(REPO)["README.md"] == b"edited"
    assert ran(PULL, server, home) == "[0.5]\n"


def test_a_wrong_token_and_a_missing_file(server: FakeHub, home: Path) -> None:
    assert "401" in ran(PUSH, server, home, token="hf_wrong", values=[0.25])
    assert server.repositories == {}
    server.commit(REPO, {"README.md": b"empty"})
    assert "404" in ran(PULL, server, home)


def test_what_comes_back_is_checked(server: FakeHub, home: Path) -> None:
    ran(PUSH, server, home, values=[0.25])
    content = server.files(REPO)["rates.safetensors"]
    other = "model = nn.Linear(3, 5)\n" + PULL
    assert "these rates are for another architecture" in ran(other, server, home)
    server.commit(REPO, {"rates.safetensors": content[:-1] + b"\x7f"})
    assert "RatesFileError" in ran(PULL, server, home)


def test_a_file_that_is_too_large_is_not_downloaded(server: FakeHub, home: Path) -> None:
    server.commit(REPO, {"rates.safetensors": bytes(LARGEST + 1)})
    assert f"is too large for a rates file ({LARGEST + 1} bytes" in ran(PULL, server, home)
    assert [request.partition(" ")[0] for request in server.requests] == ["HEAD"]


def test_without_a_network_the_cache_is_used(server: FakeHub, home: Path) -> None:
    ran(PUSH, server, home, values=[0.25])
    assert ran(PULL, server, home) == "[0.25]\n"
    asked = len(server.requests)
    offline = "import os\nos.environ['HF_HUB_OFFLINE'] = '1'\n"
    assert ran(offline + PULL, server, home) == "[0.25]\n"
    assert len(server.requests) == asked

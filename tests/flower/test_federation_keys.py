"""Keys of a real federation's sites are changed and taken back."""

import shutil
from pathlib import Path

import pytest
import torch

from tests.helpers.flower.in_process import NAMES
from tests.helpers.flower.real_federation import PATIENCE, federation_of_digits, history, learn_over
from ttpfl.core.rates import Rates
from ttpfl.flower import control, loopback


@pytest.mark.slow
def test_keys_can_be_rotated_and_revoked(tmp_path: Path) -> None:
    # A federation of its own: west is locked out of it in the end.
    with federation_of_digits(tmp_path / "trial") as federation:
        old = tmp_path / "old"
        shutil.copy(federation.site("west") / "key", old)
        control.rotate(federation, "west")
        assert old.read_bytes() != (federation.site("west") / "key").read_bytes()
        # The process that runs still has the old key: it is locked out.
        done = learn_over(federation, tmp_path / "a", "--rounds", "1")
        assert done.returncode == 0, done.stderr
        assert history(tmp_path / "a")[0]["failed"] == ["west"]
        loopback.stop(federation, "west")
        loopback.join(federation, ["west"], PATIENCE)  # with the new key
        done = learn_over(federation, tmp_path / "b", "--rounds", "1")
        assert history(tmp_path / "b")[0]["failed"] == [], done.stderr
        control.revoke(federation, "west")
        assert set(control.nodes(federation)) == set(NAMES) - {"west"}
        done = learn_over(federation, tmp_path / "c", "--rounds", "1")
        assert history(tmp_path / "c")[0]["failed"] == ["west"]
        rates = [Rates.load(tmp_path / run / "rates.safetensors").values for run in "ac"]
        assert torch.equal(*rates)  # both times of the other two alone

"""Sharing rates on a model hub, as far as it needs no hub; the rest is in tests/interop/test_hub.py."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import yaml
from torch import nn

import ttpfl
from ttpfl.core import rates_card
from ttpfl.core.rates_file import LARGEST


def rates(**learned: Any) -> ttpfl.Rates:
    zeros = ttpfl.Rates.zeros(nn.Linear(3, 2))
    return zeros.with_values(torch.tensor([0.5, -0.25]), learned=learned)


def card(rates: ttpfl.Rates, license: str | None = None, base_model: str | None = None) -> str:
    fields = {**vars(rates), "cost": rates.cost}
    return rates_card.page("north/rates", fields, rates.table(), license, base_model)


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    for use in (rates().push_to_hub, ttpfl.Rates.from_hub):
        with pytest.raises(ttpfl.RatesError, match=r'not installed: pip install "ttpfl\[hub\]"'):
            use("north/rates")


def test_rates_that_are_not_finite_are_not_uploaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    broken = rates()
    broken.values[0] = float("nan")
    with pytest.raises(ttpfl.RatesError, match="the rate of 'weight' is nan"):
        broken.push_to_hub("north/rates")


class Hub:
    """Stands in for huggingface_hub: it states a size, and downloads a file."""

    def __init__(self, stated: int | None, path: Path) -> None:
        self.stated, self.path, self.downloads = stated, path, 0

    def hf_hub_download(self, repo_id: str, filename: str, dry_run: bool = False, **options: Any) -> Any:
        if dry_run:
            return SimpleNamespace(file_size=self.stated)
        self.downloads += 1
        return str(self.path)


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        (LARGEST + 1, r"rates.safetensors of 'north/rates' is too large for a rates file \(67108865 bytes"),
        (None, "the server does not state its size: download it yourself, and use Rates.load"),
    ],
)
def test_a_file_that_is_stated_too_large_is_not_downloaded(
    stated: int | None, message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hub = Hub(stated, tmp_path / "rates.safetensors")
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    with pytest.raises(ttpfl.RatesFileError, match=message):
        ttpfl.Rates.from_hub("north/rates")
    assert hub.downloads == 0


def test_a_file_of_the_largest_size_is_downloaded_and_checked_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "rates.safetensors"
    hub = Hub(LARGEST, path)
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    rates().save(path)
    assert ttpfl.Rates.from_hub("north/rates").values.tolist() == [0.5, -0.25]
    with path.open("r+b") as file:
        file.truncate(LARGEST + 1)
    with pytest.raises(ttpfl.RatesFileError, match="is too large for a rates file"):
        ttpfl.Rates.from_hub("north/rates")
    assert hub.downloads == 2


def test_the_card_has_what_the_rates_fit_and_what_was_measured() -> None:
    checked = {
        "clients": 12, "plain_loss": 0.81234, "adapted_loss": 0.7, "plain_accuracy": 0.6,
        "adapted_accuracy": 0.714, "expected": {"gain": 0.1, "interval": [0.05, 0.15], "clients": 12},
    }  # fmt: skip
    learned = rates(rounds=7, optimizer="trust-region", checked=checked)
    text = card(learned)
    lines = [line[2:-2].split(" | ") for line in text.splitlines() if line.startswith("| ")]
    rows = dict(line for line in lines if len(line) == 2)
    assert rows["hash of the architecture"] == f"`{learned.fingerprint}`"
    assert rows["hash of the weights"] == f"`{learned.weights_hash}`"
    assert (rows["learned: rounds"], rows["learned: optimizer"]) == ("7", "trust-region")
    assert rows["source clients"] == "12"
    assert (rows["loss, without adaptation"], rows["loss, with adaptation"]) == ("0.8123", "0.7000")
    assert (rows["accuracy, without adaptation"], rows["accuracy, with adaptation"]) == ("60.0%", "71.4%")
    assert rows["decrease of the loss to expect at a new client"] == "0.1000 (90 % interval 0.0500 to 0.1500)"
    assert "no bound" in rows["privacy"]
    assert learned.table() in text
    assert 'Rates.from_hub("north/rates", model=model)' in text


def test_a_card_without_figures_says_so() -> None:
    assert "No comparison with the model without adaptation was recorded." in card(rates())


@pytest.mark.parametrize("license", [None, "cc-by-4.0"])
def test_the_licence_is_metadata_if_it_is_known(license: str | None) -> None:
    text = card(rates(), license)
    assert yaml.safe_load(text.split("---")[1]).get("license") == license
    assert ("Licence: not stated" in text) == (license is None)


@pytest.mark.parametrize("bad", ["mit\nevil: true", "", "a b", "[x]"])
def test_metadata_cannot_be_smuggled_in(bad: str) -> None:
    with pytest.raises(ttpfl.RatesError, match="use letters, digits and the signs"):
        card(rates(), license=bad)


def test_a_value_cannot_leave_its_row() -> None:
    text = card(rates(optimizer="a | b\n# heading"))
    assert "| learned: optimizer | a \\| b\\u000a# heading |" in text
